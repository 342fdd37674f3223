"""OCRR [Grassi 2026]: its headline table, sweep, ablations and studies."""

from driftline.eval.experiment.learner_sets import GRIDS
from driftline.pipelines.reproduce.items import Cell, Item, Need, Paper

ONLINE = ("substrate", "bounded-reservoir(capacity=5000)", "bounded-reservoir(capacity=1000)", "river-logreg",
          "knn-lm", "online-linear", "agem", "ewc", "lwf", "static-knn", "static-linear")  # fmt: skip
SYSTEMS = (*ONLINE, "bounded-fifo(capacity=5000)", "bounded-fifo(capacity=1000)")
TABLE = {  # Banking77, oracle: novel, original, corrections to 70 %
    "substrate": (0.905, 0.950, 103), "bounded-reservoir(capacity=5000)": (0.883, 0.943, 135),
    "bounded-reservoir(capacity=1000)": (0.807, 0.897, 351), "river-logreg": (0.867, 0.000, 134),
    "knn-lm": (0.823, 0.963, 271), "online-linear": (0.544, 0.928, None), "agem": (0.484, 0.938, None),
    "ewc": (0.405, 0.946, None), "lwf": (0.118, 0.949, None), "static-knn": (0.000, 0.957, None),
    "static-linear": (0.000, 0.952, None),
}  # fmt: skip
NAMES = ("novel", "original", "corrections_to_70")
PRINTED = {
    learner: {name: float(value) for name, value in zip(NAMES, values, strict=True) if value is not None}
    for learner, values in TABLE.items()
}
ABLATIONS, SANITY = GRIDS["ocrr-ablations"], GRIDS["ocrr-sanity"]
DATASETS, POLICIES = ("banking77", "clinc150"), ("oracle", "random_50", "random_10")
FEW = {"order": "file", "every": 200}


def _cell(name: str, policy: str, learners: tuple[str, ...], seeds: tuple[int, ...] = (0, 1, 2)) -> Cell:
    headline = (name, policy) == ("banking77", "oracle")
    printed = {learner: PRINTED[learner] for learner in learners if headline and learner in PRINTED}
    return Cell(("intents", name), learners, printed, f"{name}, {policy}", protocol="ocrr", preset="ocrr",
                settings={"order": "file", "policy": policy}, quick=FEW | {"policy": policy}, seeds=seeds)  # fmt: skip


ENCODER = "The paper's vectors are of BAAI/bge-large-en-v1.5: without NAME_bge.npz those of MiniLM are used."
SWEEP = [_cell(name, policy, SYSTEMS) for name in DATASETS for policy in POLICIES]
LORA = "lora_deberta_v3_large needs the model microsoft/deberta-v3-large and texts: eval --learners lora."
NEEDS = {
    name: Need(f"intent/{name}_minilm.npz", f"sentence vectors of {title}, train_x, train_y, test_x, test_y, labels",
               f"{source}, encoded as driftline stream encode does")
    for name, title, source in (
        ("banking77", "Banking77", "https://github.com/PolyAI-LDN/task-specific-datasets"),
        ("clinc150", "CLINC150", "https://github.com/clinc/oos-eval"),
    )
}  # fmt: skip
ITEMS = (
    Item("table-1", "Storage and recovery, Banking77, every error corrected", "scores",
         [_cell("banking77", "oracle", ONLINE)], 0.3, because=f"{ENCODER} {LORA}", digits=3),
    Item("sweep", "Thirteen systems, two data sets, three policies, three seeds", "scores", SWEEP, 2,
         because=f"{ENCODER} {LORA} The readme prints the first cell only.", digits=3),
    Item("pareto", "Nobody matches the substrate on new and original classes in any of six cells", "scores", SWEEP, 2,
         because=f"{ENCODER} The scores of the sweep; the readme has no numbers."),
    Item("ablations", "Parts of the substrate", "scores", [_cell(name, "oracle", ABLATIONS) for name in DATASETS], 0.3,
         because=f"{ENCODER} The readme has no numbers."),
    Item("sanity-check", "Four systems, one seed", "scores", [_cell("banking77", "oracle", SANITY, (0,))],
         because=ENCODER, digits=3),
    Item("scale-study", "Recall and latency of the index at 10,000 to 1,000,000 entries",
         because="Not an evaluation: docs/reference/ocrr.md names its command."),
    Item("llm", "A language model in context", because="The paper's row is partial; eval --learners llm(endpoint=…)."),
)  # fmt: skip
PAPER = Paper("OCRR: Online Correction Recovery Rate", NEEDS, ITEMS, "A test after every 200 samples, one seed")
