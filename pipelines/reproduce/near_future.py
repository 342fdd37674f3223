"""Near-future accuracy [Hammoud et al. 2023]: its figures; numbers are printed in its text only."""

from collections.abc import Sequence

from driftline.eval.experiment.presets import GRIDS
from driftline.pipelines.reproduce.items import Cell, Item, Need, Paper, Values

ORDERS = ("cglm", "cloc")
HOURS = {"cglm": (4_000, 4.0), "cloc": (120_000, 110.0)}  # on cores and on a GPU, of one learner on the slow stream
QUICK = {"preset": "", "shift": 8, "batch": 8, "prefix": 0}
FIGURE_3, FIGURE_4, FIGURE_6 = (GRIDS[f"near-future-figure-{number}"] for number in (3, 4, 6))
SAMPLERS = GRIDS["near-future-figures-7-10"]
PRINTED: dict[str, Values] = {  # section 4.2
    "cglm": {"cosine-fc": {"near_future": 0.38, "retention": 0.77}},
    "cloc": {"cosine-fc": {"near_future": 0.16}},
    "cglm-fast": {"acm": {"near_future": 0.29}, "fc-only": {"near_future": 0.21}},
    "cloc-fast": {},
}
CURVES = "The paper draws curves without numbers."


def _cell(preset: str, learners: Sequence[str], printed: Values | None = None) -> Cell:
    order, _, fast = preset.partition("-")
    return Cell(("ordered", order), learners, printed or {}, preset, protocol="near-future", preset=preset,
                quick=QUICK | {"updates": 1 if fast else 2})  # fmt: skip


def _item(name: str, title: str, learners: Sequence[str], orders: Sequence[str] = ORDERS) -> Item:
    cores, gpus = (len(learners) * sum(HOURS[order][k] for order in orders) for k in (0, 1))
    return Item(name, title, "scores", [_cell(order, learners) for order in orders], cores, gpus, CURVES)


NEEDS = {
    order: Need(order, "order files *_labels.hdf5, *_image_paths.hdf5, and images/ (or features/)",
                f"https://github.com/hammoudhasan/EvalOCL; images: {images}")
    for order, images in (("cglm", "Google Landmarks v2"), ("cloc", "YFCC100M"))
}  # fmt: skip
ITEMS = (
    Item("figure-1", "OverAdapt against others: online, near-future, retention", "scores",
         [_cell(order, FIGURE_3) for order in ORDERS], 500_000, 460, CURVES),
    Item("figure-2", "The blind classifier over the lookahead S", "scores",
         [_cell(order, ("blind",)) for order in ORDERS], because="The whole curve: driftline stream measure --labels."),
    _item("figure-3", "OverAdapt against others, online accuracy", FIGURE_3),
    _item("figure-4", "OverAdapt's parts: newest or uniform samples, head or whole network", FIGURE_4),
    Item("figure-6", "Five methods, slow and fast streams", "scores",
         [_cell(preset, FIGURE_6, printed) for preset, printed in PRINTED.items()], 740_000, 670,
         "Numbers are those of the text; curves have none."),
    *(_item(f"figure-{7 + n}", f"Samplers, {('online', 'near-future')[n % 2]} accuracy, {order.upper()}", SAMPLERS,
            (order,)) for n, order in enumerate(("cglm", "cglm", "cloc", "cloc"))),
    *(_item(f"figure-{n}", f"{what} of ER, CGLM", GRIDS[f"near-future-figure-{n}"], ("cglm",))
      for n, what in ((11, "Weight decay"), (12, "Learning rate"))),
)  # fmt: skip
PAPER = Paper("Rapid Adaptation in Online Continual Learning: Are We Evaluating It Right?", NEEDS, ITEMS,
              "Images of 32 × 32 with linear heads, batches and a shift of 8, two updates, one if fast")  # fmt: skip
