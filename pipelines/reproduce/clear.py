"""CLEAR [Lin et al. 2021]: tables 1 and 2, and tables 1 and 4 to 9 of its supplement."""

from driftline.eval.experiment.presets import TABLE_1, TABLE_4
from driftline.eval.scoring.published_values import OF_FEATURES, PRESET, values
from driftline.pipelines.reproduce.items import Cell, Item, Need, Paper

FEATURES = ("moco-yfcc-b0", "clip", "imagenet", "moco-imagenet", "byol-imagenet")
PROTOCOLS = ("clear-iid", "clear-streaming")
SEEDS = (0, 1, 2, 3, 4)


def _cell(features: str, network: str, learners: tuple[str, ...], protocol: str = "clear-iid") -> Cell:
    name = f"clear10/{features}"
    found = {one: values(name, protocol, one, network) for one in learners}
    printed = {one: {score: v["mean"] for score, v in of.items()} for one, of in found.items() if of}
    preset = OF_FEATURES.get((features, network), PRESET[network])
    small = {"net": "linear", "epochs": 3} if network == "resnet18" else {"net": network, "epochs": 5}
    stream = ("clear-images",) if network == "resnet18" else ("features", features)
    return Cell(stream, learners, printed, f"{features}, {network}, {protocol}", protocol=protocol, preset=preset,
                quick=small, seeds=SEEDS)  # fmt: skip


def _both(features: str, network: str, learners: tuple[str, ...]) -> list[Cell]:
    return [_cell(features, network, learners, protocol) for protocol in PROTOCOLS]


NEEDS = {
    **{
        name: Need(f"clear10/{name}.npz", f"CLEAR-10's features {name} as arrays x, y, step, classes",
                   "https://clear-benchmark.github.io, read by driftline stream from-clear --features NAME")
        for name in FEATURES
    },
    "clear-images": Need("clear10/images", "CLEAR-10 as unpacked", "https://clear-benchmark.github.io"),
}  # fmt: skip
MATRIX = ("reservoir",)
ITEMS = (
    Item("figure-2", "The dataset: retrieval by CLIP from YFCC100M, validated by workers",
         because="driftline init DIR --preset clear10 and run: needs YFCC100M's metadata, its images and workers."),
    Item("supplement-table-1", "Time spans of the eleven buckets",
         because="driftline list presets: clear10 has them; no evaluation."),
    Item("table-1-linear", "Methods of continual learning, linear heads", "scores",
         _both("moco-yfcc-b0", "linear", TABLE_1), 2, digits=3),
    Item("table-1-resnet18", "The same, ResNet-18 on images", "scores", _both("images", "resnet18", (*TABLE_1, "nap",
         "cumulative", "cumulative(start=scratch)")), 6_000, 60, digits=3),
    Item("table-2", "Biased reservoir sampling, both protocols (supplement, tables 4 and 5)", "scores",
         _both("moco-yfcc-b0", "linear", TABLE_4), 3, digits=3),
    Item("supplement-table-6", "Linear heads on five kinds of features (tables 6 and 8)", "scores",
         [_cell(name, "linear", TABLE_4) for name in FEATURES], 8,
         because="Features of ImageNet have the learning rate 0.1 [supplement 6].", digits=3),
    Item("supplement-table-7", "Networks of two layers on five kinds of features (tables 7 and 9)", "scores",
         [_cell(name, "mlp", TABLE_4) for name in FEATURES], 60, 2, digits=3),
    Item("figure-6", "Accuracy matrix of biased reservoir sampling, linear head", "scores",
         [_cell("moco-yfcc-b0", "linear", MATRIX)], because="The matrix is in the report: driftline report RUNS.",
         digits=3),
    Item("supplement-figures-5-14", "The same on five kinds of features, linear and two layers", "scores",
         [_cell(name, network, MATRIX) for network in ("linear", "mlp") for name in FEATURES], 3,
         because="The matrices are in the report: driftline report RUNS.", digits=3),
    Item("offline-resnet18", "ResNet-18 on all buckets at once: 81.1 %", "scores",
         [Cell(("clear-images",), ("joint",), {"joint": {"in_domain": 0.811}}, "images, resnet18, joint",
               protocol="clear-iid", preset="clear-resnet18-code", seeds=SEEDS,
               quick={"net": "linear", "epochs": 3})], 700, 7, digits=3),
)  # fmt: skip
PAPER = Paper("The CLEAR Benchmark: Continual LEArning on Real-World Imagery", NEEDS, ITEMS, "At most 120 samples of "
              "each step, 5 epochs (3 on images of 32 × 32, with a linear head), one seed")  # fmt: skip
