"""The Banking77 × oracle cell, tests of what is known, and the ledger, against the reference and literal loops.

    python benchmarks/ocrr.py [--data ../shared] [--seeds 3] [--kills 0] [--scale 10000,100000,1000000]

The cell, where the data is there: every system, three seeds, in the reference's order, CPU seconds, against the
reference's formulation in this process (seed 0, times three; `same_ends`: systems that end within
a point of the reference's own run), and against the seconds that the specification records of that run. Tests:
2,000 held-out vectors among 10,000 known, asked at first and after every 50 of 1,250 new ones, as the protocol asks;
and asked at first and once after 100 new ones. The first search counts on both sides; peers, warm: torch's product with
topk, and `faiss.knn`, each for all vectors anew. The ledger: entries of
384 numbers, not waiting for the disk, against JSON and SHA-256 as the reference's. Kills: SIGKILLs of a writer; no
acknowledged entry may be lost. Scale: `driftline.eval.protocols.ocrr.scale_study`.
"""

import argparse
import copy
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, get_args

import faiss
import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from driftline.curate.core.errors import IntegrityError
from driftline.curate.core.seeding import rng_for
from driftline.eval.memory.correction_ledger import Ledger, entries, verify
from driftline.eval.memory.knn_index import Memory, TrackedQueries, halves, unit
from driftline.eval.protocols.ocrr.scale_study import Search, scale_study
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

SYSTEMS = {
    "substrate": "substrate", "substrate_k1": "substrate-k1", "substrate_sumsim": "substrate-sumsim",
    "substrate_count_only": "substrate-count-only", "substrate_no_recency": "substrate-no-recency",
    "static_knn": "static-knn", "static_linear": "static-linear", "online_linear": "online-linear", "knn_lm": "knn-lm",
    "ewc": "ewc", "a_gem": "agem", "lwf": "lwf",
} | {
    f"bounded_substrate_{kind}_{n}": f"bounded-{kind}(capacity={n})"
    for kind in ("reservoir", "fifo") for n in (100, 500, 1000, 5000)
}  # fmt: skip
WRITER = """
import sys, numpy as np
from pathlib import Path
from driftline.eval.memory.correction_ledger import Ledger
with Ledger(Path(sys.argv[1])) as ledger:
    print("begun", flush=True)
    while True:
        print(ledger.append({"id": "p", "label": "x" * (ledger.n % 50)}, np.zeros(64, np.float32)), flush=True)
"""


# OCRR as the reference formulates it: one query after the other, autograd, an entry as JSON and its SHA-256 [spec,
# sections 2 and 3]. Written from the description, not a copy of its code.
K, MARGIN, EVERY = 5, 0.05, 50
Vectors, Labels = npt.NDArray[np.float32], npt.NDArray[np.int64]


@dataclass
class Voter:
    """Neighbours of one query vote: a band below the most similar one, by count, similarity, and age."""

    kind: str = "full"  # or k1, sumsim, count, frozen, fifo, reservoir
    room: int = 20_000
    vectors: Any = None
    labels: list[int] = field(default_factory=list)
    before: str = "0" * 64
    seen: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, x: Vectors, label: int) -> None:
        """One sample; unbounded kinds write it into the chain of entries first."""
        if self.vectors is None:
            self.vectors = np.empty((self.room, len(x)), np.float32)
        place = len(self.labels)
        self.seen += 1
        if self.kind in ("full", "k1", "sumsim", "count"):
            entry = {"id": str(place), "t_created": 0.0, "embedding": x.tolist(), "text": "", "tags": {"label": label},
                     "contradicts": [], "prev_hash": self.before}  # fmt: skip
            self.before = hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
        elif place == self.room:
            place = (self.seen - 1) % self.room if self.kind == "fifo" else int(self.rng.integers(self.seen))
            if place >= self.room:
                return
        self.vectors[place] = x
        self.labels[place : place + 1] = [label]

    def nearest(self, x: Vectors) -> list[tuple[float, int]]:
        """Similarity and place of the nearest, the most similar first."""
        similar = self.vectors[: len(self.labels)] @ x
        top = np.argpartition(-similar, K)[:K]
        return sorted(((float(similar[i]), int(i)) for i in top), key=lambda pair: -pair[0])

    def predict(self, x: Vectors) -> int:
        """The label of one query."""
        found = self.nearest(x)[: 1 if self.kind == "k1" else K]
        votes: dict[int, list[float]] = {}
        for similarity, place in found:
            if self.kind == "sumsim" or similarity >= found[0][0] - MARGIN:
                votes.setdefault(self.labels[place], []).append(similarity)
        return max(votes, key=lambda c: sum(votes[c]) if self.kind == "sumsim" else (len(votes[c]), max(votes[c])))

    def correct(self, x: Vectors, label: int) -> None:
        """A correction is a sample more, unless the memory is frozen."""
        if self.kind != "frozen":
            self.add(x, label)


class Network:
    """A linear head on vectors, one query and one correction at a time."""

    def __init__(self, kind: str, x: Vectors, y: Labels, classes: int) -> None:
        """Fitted on the seed set: AdamW 1e-2, decay 1e-4, 30 epochs, batches of 256."""
        torch.manual_seed(0)
        self.kind, self.net = kind, torch.nn.Linear(x.shape[1], classes)
        data, target = torch.from_numpy(x), torch.from_numpy(y)
        optimiser = torch.optim.AdamW(self.net.parameters(), lr=1e-2, weight_decay=1e-4)
        for _ in range(30):
            for part in torch.randperm(len(data)).split(256):
                self.step(optimiser, functional.cross_entropy(self.net(data[part]), target[part]))
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=0.05)
        self.teacher = copy.deepcopy(self.net)
        self.fixed = [p.detach().clone() for p in self.net.parameters()]
        chosen = torch.randperm(len(data))[:2000]
        self.memory = data[chosen[:1000]], target[chosen[:1000]]
        self.fisher = [torch.zeros_like(p) for p in self.fixed]
        for i in chosen if kind == "ewc" else []:
            scores = self.net(data[i : i + 1])
            grads = torch.autograd.grad(functional.cross_entropy(scores, scores.argmax(1)), list(self.net.parameters()))
            self.fisher = [f + g**2 / len(chosen) for f, g in zip(self.fisher, grads, strict=True)]

    @staticmethod
    def step(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        """One update."""
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    @torch.no_grad()
    def scores(self, x: Vectors) -> torch.Tensor:
        """(1, C) of one query."""
        scores: torch.Tensor = self.net(torch.from_numpy(x)[None])
        return scores

    def predict(self, x: Vectors) -> int:
        """The label of one query."""
        return int(self.scores(x).argmax())

    def correct(self, x: Vectors, label: int) -> None:
        """One step of SGD on one sample, with the addition of its kind."""
        if self.kind == "static":
            return
        one, params = torch.from_numpy(x)[None], list(self.net.parameters())
        scores = self.net(one)
        loss = functional.cross_entropy(scores, torch.tensor([label]))
        if self.kind == "ewc":
            drift = zip(self.fisher, params, self.fixed, strict=True)
            loss = loss + 500 * sum(((f * (p - q) ** 2).sum() for f, p, q in drift), torch.zeros(()))
        if self.kind == "lwf":
            soft = functional.softmax(self.teacher(one).detach() / 2, 1)
            loss = loss + 4 * functional.kl_div(functional.log_softmax(scores / 2, 1), soft, reduction="batchmean")
        if self.kind != "agem":
            return self.step(self.optimiser, loss)
        grads = torch.autograd.grad(loss, params)
        rows = torch.randint(1000, (64,))
        kept = torch.autograd.grad(
            functional.cross_entropy(self.net(self.memory[0][rows]), self.memory[1][rows]), params
        )
        dot = sum(((g * r).sum() for g, r in zip(grads, kept, strict=True)), torch.zeros(()))
        share = dot / sum(((r * r).sum() for r in kept), torch.zeros(())) if dot < 0 else torch.zeros(())
        for p, g, r in zip(params, grads, kept, strict=True):
            p.grad = g - share * r
        self.optimiser.step()


class Mixed(Voter):
    """knn_lm: half softmax of the similarities of five at a temperature of .1, half the frozen head."""

    head: Network
    classes: int = 0

    def predict(self, x: Vectors) -> int:
        """The label of one query."""
        found = self.nearest(x)
        weights = np.exp((np.array([similarity for similarity, _ in found]) - found[0][0]) / 0.1)
        both = np.zeros(self.classes)
        frozen = functional.softmax(self.head.scores(x)[0], 0).numpy() / 2
        both[: len(frozen)] = frozen
        for weight, (_, place) in zip(weights / weights.sum(), found, strict=True):
            both[self.labels[place]] += weight / 2
        return int(both.argmax())


def system(name: str, x: Vectors, y: Labels, known: int, classes: int) -> Voter | Network:
    """A system of the reference that has seen the seed set. known: classes of it."""
    heads = {"static_linear": "static", "online_linear": "online", "ewc": "ewc", "a_gem": "agem", "lwf": "lwf"}
    if name in heads:
        return Network(heads[name], x, y, known if name == "static_linear" else classes)
    if name.startswith("bounded"):
        *_, kind, room = name.split("_")
        made = Voter(kind, int(room))
    elif name == "knn_lm":
        made = Mixed()
        made.head, made.classes = Network("static", x, y, known), classes
    else:
        made = Voter({"substrate_k1": "k1", "substrate_sumsim": "sumsim", "static_knn": "frozen"}.get(name, "full"))
    for row, label in zip(x, y, strict=True):
        made.add(row, int(label))
    return made


def reference(
    name: str, found: dict[str, Any], split: dict[str, Any], seconds: Callable[[Callable[[], object]], float]
) -> Any:
    """CPU seconds of one system, every error corrected, and its last accuracies on new and known classes.

    found: arrays train_x, train_y, test_x, test_y, vectors of unit length. split: rows of the reference's seed."""
    names = [str(label) for label in found["labels"]]
    held = [names.index(label) for label in split["held_out"]]
    order = [c for c in range(len(names)) if c not in held] + held  # known classes first: the static head has only them
    new = np.empty(len(names), np.int64)
    new[order] = range(len(names))
    train_y, test_y = new[found["train_y"]], new[found["test_y"]]
    known = train_y < len(names) - len(held)
    ends: list[float] = []

    def work() -> None:
        made = system(name, found["train_x"][known], train_y[known], len(names) - len(held), len(names))
        stream = split["stream_train_idx"]
        for at, row in enumerate([*stream, None]):
            if at % EVERY == 0 or row is None:
                sides = (split["eval_novel_test_idx"], split["eval_orig_test_idx"])
                ends[:] = [float(np.mean([made.predict(found["test_x"][i]) == test_y[i] for i in s])) for s in sides]
            if row is not None and made.predict(found["train_x"][row]) != train_y[row]:
                made.correct(found["train_x"][row], int(train_y[row]))

    return seconds(work), ends


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    clock = time.process_time()
    work()
    return time.process_time() - clock


def cell(data: Path, seeds: int) -> dict[str, object]:
    """All systems but river."""
    if not (data / "data" / "intent").is_dir():
        return {}
    with np.load(data / "data" / "intent" / "banking77_minilm.npz", allow_pickle=False) as found:
        splits = {}
        for side in ("train", "test"):
            x = unit(found[f"{side}_x"].astype(np.float32))
            splits[side] = Split(x, found[f"{side}_y"].astype(np.int64), np.arange(len(x)).astype(np.str_))
        stream = Stream("banking77", [Step(0, "0", splits)], [str(c) for c in found["labels"]], sha256="banking77")
    told = json.loads((data / "spec" / "ocrr_reference_banking77.json").read_text())
    first = {run["system"]: run for run in told["runs"] if (run["seed"], run["policy"]) == (0, "oracle")}
    wall = seeds * sum(sum(told["quiet_wall_seed0"][name][part] for part in ("init_s", "run_s")) for name in SYSTEMS)
    arrays = {f"{side}_{part}": getattr(split, part) for side, split in splits.items() for part in "xy"}
    theirs, alike = 0.0, 0
    for name in SYSTEMS:
        spent, ends = reference(name, arrays | {"labels": stream.classes}, told["splits"]["0"], seconds)
        theirs += seeds * spent
        alike += max(abs(ends[0] - first[name]["final_novel"]), abs(ends[1] - first[name]["final_orig"])) <= 0.01

    def run() -> None:
        for learner in SYSTEMS.values():
            evaluate(stream, "ocrr", [learner], range(seeds), {"order": "file"})

    evaluate(stream, "ocrr", ["online-linear"], [0], {"order": "file", "epochs": 1})  # warm
    mine = seconds(run)
    return {"cell_s": round(mine, 1), "formulation_s": round(theirs, 1), "cell": round(theirs / mine, 1),
            "same_ends": alike, "recorded_s": round(wall, 1), "cell_as_recorded": round(wall / mine, 1)}  # fmt: skip


def tests() -> dict[str, object]:
    """Asking 2,000 vectors at first and again, against the faster of two peers; the best of four interleaved runs."""
    rng = rng_for(0, "tests")
    known, new, asked = (unit(rng.normal(size=(n, 384))) for n in (10_000, 1_250, 2_000))
    everything = np.concatenate([known, new])

    def by_torch(n: int) -> np.ndarray:
        among = torch.from_numpy(everything[:n]).T
        return torch.cat([(q @ among).topk(5).indices for q in torch.from_numpy(asked).split(500)]).numpy()

    def by_faiss(n: int) -> np.ndarray:
        place: np.ndarray = faiss.knn(asked, everything[:n], 5, metric=faiss.METRIC_INNER_PRODUCT)[1]
        return place

    def ours(points: Sequence[int]) -> np.ndarray:
        memory = Memory(384)
        memory.add(known)
        tracked = TrackedQueries(memory, [asked], 5)
        for n in points:
            for row in everything[memory.n : n]:
                memory.add(row[None])
            answers = tracked.nearest(asked)
        assert answers is not None
        return answers[1]

    found: dict[str, object] = {}
    for name, points in (("tests_as_asked", range(10_000, 11_251, 50)), ("tests_once", (10_000, 10_100))):
        ways = {
            "torch": lambda points=points: [by_torch(n) for n in points][-1],  # type: ignore[misc]
            "faiss": lambda points=points: [by_faiss(n) for n in points][-1],  # type: ignore[misc]
            "ours": lambda points=points: ours(points),  # type: ignore[misc]
        }
        assert all((way() == ways["torch"]()).all() for way in ways.values()), "not the same neighbours"
        taken = {way: min(seconds(work) for _ in range(4)) for way, work in ways.items()}
        mine = taken.pop("ours")
        found |= {f"{name}_{way}_ms": round(1e3 * value, 1) for way, value in taken.items()}
        found |= {f"{name}_ms": round(1e3 * mine, 1), name: round(min(taken.values()) / mine, 2)}
    once = round(float(str(found["tests_once_torch_ms"])) / float(str(found["tests_once_ms"])), 2)
    return found | {"tests_once_over_torch": once} | ({"tests_once_over_torch_bfloat16": once} if halves() else {})


def ledger(n: int = 3000) -> dict[str, object]:
    """Entries of 384 numbers."""
    x = rng_for(0, "ledger").normal(size=(n, 384)).astype(np.float32)

    def as_the_reference() -> None:
        before = "0" * 64
        for i, row in enumerate(x):
            payload = {"id": str(i), "t_created": 0.0, "embedding": row.tolist(), "text": "t", "tags": {"label": "a"},
                       "contradicts": [], "prev_hash": before}  # fmt: skip
            before = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l"
        with Ledger(path, sync=False) as book:

            def ours() -> None:
                for i, row in enumerate(x):
                    book.append({"id": str(i), "label": "a"}, row)

            slow, fast = seconds(as_the_reference), seconds(ours)
        checked = seconds(lambda: verify(path))
    return {"reference_us": round(1e6 * slow / n, 1), "append_us": round(1e6 * fast / n, 1),
            "verify_us": round(1e6 * checked / n, 1), "ledger": round(slow / fast, 1)}  # fmt: skip


def kills(times: int) -> dict[str, object]:
    """Acknowledged entries that a SIGKILL lost."""
    rng, lost = rng_for(0, "kills"), 0
    with tempfile.TemporaryDirectory() as folder:
        entries_found = 0
        for turn in range(times):
            path = Path(folder) / str(turn)
            process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(float(rng.uniform(0, 0.02)))
            process.send_signal(signal.SIGKILL)
            rest = [int(word) for word in process.communicate()[0].split() if word.isdigit()]
            whole = 0
            with suppress(IntegrityError):  # the record that the kill tore
                for _ in entries(path):
                    whole += 1
            lost += whole < max([-1, *rest[:-1]]) + 1  # the last line may be cut
            entries_found += whole
        return {"kills": times, "entries": entries_found, "lost": lost}


def scale(sizes: list[int]) -> dict[str, object]:
    """The scale study of the package; an index of a million entries takes half an hour."""
    found = []
    for size, search in product(sizes, get_args(Search)):
        found.append(scale_study(size, search))
        print(json.dumps(found[-1]), file=sys.stderr)
    return {"scale": found}


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--scale", default="")
    given = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    found: dict[str, object] = {}
    sizes = [int(n) for n in given.scale.split(",") if n]
    for work in (
        lambda: cell(given.data, given.seeds),
        tests,
        ledger,
        lambda: kills(given.kills),
        lambda: scale(sizes),
    ):
        found |= work()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
