"""Baselines: every learner on streams that anybody can build, packed as the submissions that driftline ships.

    python studies/baselines.py --data DATA --out baselines            about 5 CPU minutes

painted-fruit is the stream of `driftline demo --real`, photo-world that of `driftline demo` on a world of plain
files (upright JPEGs, no clock that was reset). Without AVX-512 it has the same photos, some numbers of their vectors
differ by .0002, and so does the hash. banking77 needs
DATA/banking77/train.csv and test.csv (`--download` gets them), cifar10 the images of Seq-to-Final's draws in
DATA/cifar10. Finished runs are not repeated. Each stream's submission is written to baselines/NAME.zip, and the stream
to baselines/streams/NAME.zip; eval/leaderboard/baselines/ holds copies of both. The published page, with the streams in
the working directory:

    driftline leaderboard --baselines --stream painted-fruit --stream photo-world --stream banking77 --again 4 \\
        --public-value driftline --out eval/leaderboard/baselines/leaderboard.md
"""

import argparse
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.run_log import RunLog
from driftline.curate.encoders import spec_of
from driftline.curate.encoders.weights import seen
from driftline.eval.experiment.presets import expand
from driftline.eval.leaderboard.submission import EPOCH, pack
from driftline.eval.learners import LEARNERS
from driftline.eval.run import evaluate
from driftline.pipelines.demo import journey, real
from driftline.stream_builder.builders.encoded import encode
from driftline.stream_builder.builders.shift_sequence import compose, from_dataset
from driftline.stream_builder.datasets import Options, open_dataset
from driftline.stream_builder.storage import VERIFIED
from driftline.stream_builder.stream import Step, Stream

NAME = "driftline baselines"
NOT_HERE = ("llm", "lora", "river-logreg")  # need a model, an endpoint, or another library

SLOW = ("random-features", "ranpac", "fecam")  # with thousands of samples and 77 classes

BANKING77 = {
    "licence": "CC BY 4.0",
    "cite": "Casanueva et al.: Efficient Intent Detection with Dual Sentence Encoders. NLP4ConvAI 2020",
}


@dataclass(frozen=True)
class Board:
    """A stream, and what is run on it."""

    stream: Callable[[Path, Path, bool], Stream]
    """(data, out, download) → the stream"""
    protocol: str
    seeds: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    """of protocol and learners; what is not named has its default"""
    left_out: tuple[str, ...] = ()
    """learners that take minutes on it"""
    shipped: bool = True
    """whether the stream itself may be passed on"""


def painted_fruit(data: Path, out: Path, download: bool) -> Stream:
    """The stream of `driftline demo --real`."""
    real.demo(out, RunLog(out / "log.jsonl"))
    return Stream.load(out / "stream")


def photo_world(data: Path, out: Path, download: bool) -> Stream:
    """The stream of `driftline demo` on a world of plain files."""
    journey.demo(out, journey.Scale(1600, 14, 4, 2, 5, plain=True), RunLog(out / "log.jsonl"))
    return Stream.load(out / "stream")


def banking77(data: Path, out: Path, download: bool) -> Stream:
    """`driftline stream from-dataset banking77`, encoded by `ngrams:256`."""
    texts = from_dataset(open_dataset("banking77", Options(data_dir=data, download=download)))
    stream = encode(texts, spec_of("ngrams:256").load(), "ngrams:256")
    return stream.save(out / "stream", {**stream.facts, **BANKING77, **seen("ngrams", "256").facts()})


def cifar10(data: Path, out: Path, download: bool) -> Stream:
    """`driftline stream compose --base DATA/cifar10 --sequence C:L:R --sizes 600,400,600,400 --test-size 1000`, each
    image as the means of 8 × 8 fields: float16 (N, 192), 0 … 1."""
    made = compose(open_dataset(str(data / "cifar10"), Options()), "C:L:R", (600, 400, 600, 400), 1000)

    def small(step: Step) -> Step:
        means = {n: np.asarray(s.x[:]).reshape(-1, 8, 4, 8, 4, 3).mean((2, 4)) / 255 for n, s in step.splits.items()}
        vectors = {n: m.reshape(len(m), -1).astype(np.float16) for n, m in means.items()}
        return replace(step, splits={n: replace(s, x=vectors[n]) for n, s in step.splits.items()})

    oracle = None if made.oracle is None else small(made.oracle)
    facts = {"from": "cifar10", "features": "means of 8 x 8 fields", "sequence": "C:L:R"}
    return replace(made, steps=[small(step) for step in made.steps], oracle=oracle, facts=facts).save(out / "stream")


BOARDS = {
    "painted-fruit": Board(painted_fruit, "clear-iid", (0, 1, 2), {"splits": "published"}),
    "photo-world": Board(photo_world, "clear-iid", (0, 1, 2), {"splits": "published"}),
    "banking77": Board(banking77, "ocrr", (0,), {"every": 200}, left_out=SLOW),
    "cifar10": Board(cifar10, "seq-to-final", (0,), {"network": "linear"}, shipped=False),
}


def run(name: str, data: Path, out: Path, download: bool) -> Path:
    """Build a stream, run every learner on it, pack the runs; returns the submission."""
    board = BOARDS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    built = (folder / "stream" / "stream.json").is_file()
    stream = Stream.load(folder / "stream") if built else board.stream(data, folder, download)
    learners = [learner for learner in expand(["all"], list(LEARNERS)) if learner not in (*NOT_HERE, *board.left_out)]
    found = evaluate(
        stream, board.protocol, learners, board.seeds, board.settings, folder / "baselines",
        lambda n: print(".", end="", flush=True),
    )  # fmt: skip
    for entry in found["skipped"]:
        print(f"\n{entry['learner']}: {entry['because']}", end="")
    target = out / f"{name}.zip"
    pack([folder / "baselines"], NAME, target)
    if board.shipped:
        write_bytes(out / "streams" / f"{name}.zip", zipped(folder / "stream"))
    seconds = sum(result["seconds"] for result in found["results"])
    print(f"\n{target}: {len(found['results'])} learners, {seconds:.0f} s, {target.stat().st_size:,} bytes")
    return target


def zipped(folder: Path) -> bytes:
    """A folder as a zip file; the same files give the same bytes."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != VERIFIED):
            info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return sink.getvalue()


def main() -> None:
    """All streams, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("baselines"))
    parser.add_argument("--only", choices=list(BOARDS), nargs="*", default=list(BOARDS))
    parser.add_argument("--download", action="store_true", help="Banking77's two files, if they are not in DATA.")
    given = parser.parse_args()
    for name in given.only:
        run(name, given.data, given.out, given.download)


if __name__ == "__main__":
    main()
