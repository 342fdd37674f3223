"""The Banking77 × oracle cell, tests of what is known, and the ledger, against the reference and literal loops.

    python benchmarks/ocrr.py [--data ../shared] [--seeds 3] [--kills 0] [--scale 10000,100000,1000000]

The cell, where the data is there: every system, three seeds, in the reference's order, CPU seconds, against the
reference's formulation in this process (`ocrr_reference.py`; seed 0, times three; `same_ends`: systems that end within
a point of the reference's own run), and against the seconds that the specification records of that run. Tests:
2,000 held-out vectors among 10,000 known, asked at first and after every 50 of 1,250 new ones, as the protocol asks;
and asked at first and once after 100 new ones. The first search counts on both sides; peers, warm: torch's product with
topk, and `faiss.knn`, each for all vectors anew. The ledger: entries of
384 numbers, not waiting for the disk, against JSON and SHA-256 as the reference's. Kills: SIGKILLs of a writer; no
acknowledged entry may be lost. Scale: `driftline.eval.protocols.ocrr.scale_study`.
"""

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import faiss
import numpy as np
import ocrr_reference
import torch

from driftline.curate.core.errors import IntegrityError
from driftline.curate.core.seeding import rng_for
from driftline.eval.memory.correction_ledger import Ledger, entries, verify
from driftline.eval.memory.knn_index import Memory, TrackedQueries, halves, unit
from driftline.eval.protocols.ocrr.scale_study import scale_study
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
    arrays = {f"{side}_x": split.x for side, split in splits.items()} | {
        f"{side}_y": split.y for side, split in splits.items()
    }
    theirs, alike = 0.0, 0
    for name in SYSTEMS:
        spent, ends = ocrr_reference.run(name, arrays | {"labels": stream.classes}, told["splits"]["0"], seconds)
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
    for cost in scale_study(sizes):
        found.append(asdict(cost))
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
