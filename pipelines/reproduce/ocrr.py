"""OCRR [Grassi 2026]: its headline table, sweep, ablations and studies."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from driftline.eval.experiment.presets import GRIDS
from driftline.pipelines.reproduce.items import Cell, Item, Need, Paper

ONLINE = ("substrate", "bounded-reservoir(capacity=5000)", "bounded-reservoir(capacity=1000)", "river-logreg",
          "knn-lm", "online-linear", "agem", "ewc", "lwf", "static-knn", "static-linear")  # fmt: skip
SYSTEMS = (*ONLINE, "bounded-fifo(capacity=5000)", "bounded-fifo(capacity=1000)")
TABLE = {  # Banking77, oracle: novel, original, corrections to 70 %
    "substrate": (0.905, 0.950, 103), "bounded-reservoir(capacity=5000)": (0.883, 0.943, 135),
    "bounded-reservoir(capacity=1000)": (0.807, 0.897, 351), "river-logreg": (0.867, 0.000, 134),
    "knn-lm": (0.823, 0.963, 271), "online-linear": (0.544, 0.928, None), "agem": (0.484, 0.938, None),
    "ewc": (0.405, 0.946, None), "lwf": (0.118, 0.949, None), "lora": (0.771, 0.108, 297),
    "static-knn": (0.000, 0.957, None), "static-linear": (0.000, 0.952, None),
}  # fmt: skip
NAMES = ("novel", "original", "corrections_to_70")
PRINTED = {
    learner: {name: float(value) for name, value in zip(NAMES, values, strict=True) if value is not None}
    for learner, values in TABLE.items()
}
ABLATIONS, SANITY = GRIDS["ocrr-ablations"], GRIDS["ocrr-sanity"]
SIZES = (10_000, 100_000, 1_000_000)
DATASETS, POLICIES = ("banking77", "clinc150"), ("oracle", "random_50", "random_10")
MODEL = Need("intent/deberta-v3-large", "the transformer microsoft/deberta-v3-large as a folder",
             "https://huggingface.co/microsoft/deberta-v3-large")  # fmt: skip
LORA = {"lora.model": MODEL}
LLM = {"llm.endpoint": "http://127.0.0.1:11434/v1", "llm.model": "qwen2.5:14b"}  # Ollama on this machine [readme]


def _cell(name: str, policy: str, learners: tuple[str, ...], seeds: tuple[int, ...] = (0, 1, 2),
          stream: tuple[str, ...] = (), more: Mapping[str, Any] = MappingProxyType({})) -> Cell:  # fmt: skip
    headline = (name, policy) == ("banking77", "oracle")
    printed = {learner: PRINTED[learner] for learner in learners if headline and learner in PRINTED}
    rules = {"order": "file", "policy": policy, **more}
    return Cell(stream or ("intents", name), learners, printed, f"{name}, {policy}", protocol="ocrr", preset="ocrr",
                settings=rules, quick=rules | {"every": 200}, seeds=seeds)  # fmt: skip


def _reader(learner: str, more: Mapping[str, Any]) -> Cell:
    return _cell("banking77", "oracle", (learner,), stream=("texts",), more=more)


def _index(entries: int) -> Cell:
    quick = {"entries": entries} if entries == SIZES[0] else None
    return Cell((), ("brute", "ivf", "hnsw"), row=f"{entries:,} entries", settings={"entries": entries}, quick=quick)


ENCODER = "The paper's vectors are of BAAI/bge-large-en-v1.5: without NAME_bge.npz those of MiniLM are used."
SWEEP = [_cell(name, policy, SYSTEMS) for name in DATASETS for policy in POLICIES]
NEEDS = {
    "texts": Need("intent/banking77_train.csv", "Banking77's texts; banking77_test.csv is beside them",
                  "https://github.com/PolyAI-LDN/task-specific-datasets"),
} | {
    name: Need(f"intent/{name}_minilm.npz", f"sentence vectors of {title}, train_x, train_y, test_x, test_y, labels",
               f"{source}, encoded as driftline stream encode does")
    for name, title, source in (
        ("banking77", "Banking77", "https://github.com/PolyAI-LDN/task-specific-datasets"),
        ("clinc150", "CLINC150", "https://github.com/clinc/oos-eval"),
    )
}  # fmt: skip
ITEMS = (
    Item("table-1", "Storage and recovery, Banking77, every error corrected", "scores",
         [_cell("banking77", "oracle", ONLINE), _reader("lora", LORA)], 15, 0.5,
         f"{ENCODER} Without lora it takes 3 minutes.", digits=3),
    Item("sweep", "Thirteen systems, two datasets, three policies, three seeds", "scores", SWEEP, 0.4,
         because=f"{ENCODER} The readme prints the first cell only.", digits=3),
    Item("pareto", "No system equals the substrate on both new and original classes: six cells", "scores", SWEEP, 0.4,
         because=f"{ENCODER} The scores of the sweep; the readme has no numbers."),
    Item("ablations", "Parts of the substrate", "scores", [_cell(name, "oracle", ABLATIONS) for name in DATASETS],
         because=f"{ENCODER} The readme has no numbers."),
    Item("sanity-check", "Four systems, one seed", "scores", [_cell("banking77", "oracle", SANITY, (0,))],
         because=ENCODER, digits=3),
    Item("scale-study", "Recall and latency of the index at 10,000 to 1,000,000 entries", "scale",
         [_index(entries) for entries in SIZES], 1.5, because="The readme has no numbers."),
    Item("llm", "A language model in context", "scores", [_reader("llm", LLM)], 1_000,
         because="The readme's row is partial. Ollama must run here with qwen2.5:14b."),
)  # fmt: skip
PAPER = Paper("OCRR: Online Correction Recovery Rate", NEEDS, ITEMS,
              "A test after every 200 samples, one seed; 120 texts of a split; an index of 10,000")  # fmt: skip
