"""A package of somebody else: one of everything that driftline can be extended with. Tests copy it out of the
repository and install it by its metadata alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.encoders import Encoder
from driftline.curate.metadata.schema import batch_of
from driftline.curate.release import Release
from driftline.curate.retrieval.settings import Concept
from driftline.curate.sources.base import FileSource, Workplace
from driftline.eval.abilities import learn_step
from driftline.eval.answers import evaluate_split
from driftline.eval.history import Past
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.memory.samplers import Positions, Sampler
from driftline.eval.nets.chain import HEAD, Blocks
from driftline.eval.protocol import Protocol, Result, Score
from driftline.eval.rows import Row
from driftline.stream_builder.builders.table import from_table
from driftline.stream_builder.datasets import Dataset, Options, Samples
from driftline.stream_builder.shifts.base import Images, Shift, check_images
from driftline.stream_builder.stream import Stream

WIDTH = 12
PLACE = Workplace()


class Album(FileSource):
    """Source: a text file with one photo a line: path, class, year."""

    separator: str = ","
    """between the three"""

    def inputs(self, at: Workplace) -> list[Path]:
        """The file."""
        path = at.path(self.path)
        if not path.is_file():
            raise MissingFile(f"There is no file {path}.")
        return [path]

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = PLACE) -> Iterator[pa.RecordBatch]:
        """Records in the order of the lines."""
        (path,) = self.inputs(at)
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines:
            raise BadInput(f"The file {path} is empty.")
        records = [self._record(line, row, path.parent) for row, line in enumerate(lines)][skip:]
        for low in range(0, len(records), rows):
            yield batch_of(records[low : low + rows])

    def _record(self, line: str, row: int, root: Path) -> dict[str, Any]:
        name, label, year = line.split(self.separator)
        uploaded = int(datetime(int(year), 6, 1, tzinfo=UTC).timestamp())
        known = {"id": f"photo-{row}", "row": row, "path": str((root / name).resolve()), "media": "photo"}
        return known | {"label": label, "uploaded": uploaded}


class Colours(Encoder):
    """Encoder: the mean colours of the four quarters of an image."""

    width = WIDTH

    def __init__(self, model: str, *settings: object) -> None:
        self.fingerprint = f"colours-{model}"

    def prepare(self, image: Any) -> Any:
        """A PIL image → uint8 (3, 2, 2)."""
        import torch

        return torch.from_numpy(np.asarray(image.convert("RGB").resize((2, 2))).transpose(2, 0, 1).copy())

    def images(self, batch: Any) -> Any:
        """Prepared inputs → (N, 12) float32, unit length."""
        return unit(np.asarray(batch, np.float32).reshape(len(batch), -1) + 1)

    def texts(self, texts: Sequence[str]) -> Any:
        """N texts → (N, 12) float32, unit length."""
        rows = [np.frombuffer(hashlib.sha256(text.encode()).digest()[:WIDTH], np.uint8) for text in texts]
        return unit(np.stack(rows).astype(np.float32) + 1)


def unit(x: Any) -> Any:
    """Rows of length 1."""
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@dataclass(frozen=True)
class Invert(Shift):
    """Shift: light becomes dark, half of the way each time."""

    code: ClassVar[str] = "acme-invert"
    acts_on: ClassVar[str] = "colour"

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        check_images(x)
        share = min(count, 2) / 2
        return np.rint(x * (1 - share) + (255 - x.astype(float)) * share).astype(np.uint8), y


@dataclass
class Prototype(Learner):
    """Learner: the nearest class mean, where newer samples weigh more."""

    weight: float = 0.5
    """of the old mean"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """No means."""
        self.means = np.zeros((task.n_classes, int(np.prod(task.x_shape))), np.float32)

    def learn(self, x: Array, y: Labels) -> None:
        """Move each class's mean."""
        flat = np.asarray(x, np.float32).reshape(len(x), -1)
        for c in np.unique(y):
            new = flat[y == c].mean(0)
            self.means[c] = new if not self.means[c].any() else self.weight * self.means[c] + (1 - self.weight) * new

    def predict(self, x: Array) -> Labels:
        """The nearest mean."""
        flat = np.asarray(x, np.float32).reshape(len(x), -1)
        return ((flat[:, None] - self.means[None]) ** 2).sum(2).argmin(1)


@dataclass(frozen=True)
class LastStep(Protocol):
    """How many samples of the last step are wrong, after each step."""

    scores: ClassVar[Sequence[Score]] = (
        Score("wrong", "wrong answers", higher_is_better=False, unit="answers"),
        Score("final", "accuracy on the last step"),
    )

    def check(self, stream: Stream) -> None:
        """Every stream will do."""

    def task(self, stream: Stream) -> Task:
        """Classes and shape."""
        return Task(len(stream.classes), stream.x_shape, len(stream.steps))

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int) -> Iterator[Row]:
        """Learn a step, then test."""
        for step in stream.steps:
            learn_step(learner, step.visible())
            yield evaluate_split(learner, stream.steps[-1]["test"], "last", 0.0, learned_to=step.index)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """Of the last row."""
        return Result({"wrong": float(rows[-1].n - rows[-1].n_correct), "final": rows[-1].n_correct / rows[-1].n})


def listing(release: Release, out: Path) -> dict[str, int]:
    """Export: id, bucket, label and SHA-256 of all images, one a line."""
    rows = release.table.select(["id", "bucket", "label", "sha256"]).to_pylist()
    out.mkdir(parents=True, exist_ok=True)
    (out / "images.txt").write_text("\n".join(" ".join(map(str, row.values())) for row in rows))
    return {"images": len(release.table)}


def ledger(stream: Stream, out: Path) -> dict[str, int]:
    """Export of a stream: one line a sample: step, split, id, label."""
    out.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{step.index} {name} {id_} {label}"
        for step in stream.steps
        for name, split in step.splits.items()
        for id_, label in zip(split.ids, split.y, strict=True)
    ]
    (out / "ledger.txt").write_text("\n".join(lines))
    return {"samples": len(lines)}


def post(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Platform: a letter to each worker with all addresses and options."""
    out.mkdir(parents=True, exist_ok=True)
    lines = [*addresses.values(), *(concept.option or concept.name for concept in concepts)]
    for worker in range(batch["workers"]):
        (out / f"letter-{worker}.txt").write_text("\n".join(lines))
    return {"images": len(addresses), "answers": len(addresses) * batch["workers"]}


def centres(a: Any, b: Any, seed: int = 0) -> float:
    """Measure: the distance of the two means."""
    return float(np.linalg.norm(np.asarray(a, float).mean(0) - np.asarray(b, float).mean(0)))


def diary(source: Path, separator: str = ";", seed: int = 0, work: Path | None = None) -> Stream:
    """Importer: a text file with one sample a line: year, class, number.

    Its stream says where the numbers lay meanwhile.
    """
    assert work is not None
    work.mkdir(parents=True)
    rows = [line.split(separator) for line in source.read_text().splitlines()]
    columns = {"year": [int(row[0]) for row in rows], "kind": [row[1] for row in rows]}
    columns["number"] = [float(row[2]) for row in rows]
    return from_table(columns, time="year", label="kind", x="number", period="year", seed=seed)


def squares(path: Path, options: Options) -> Dataset:
    """Dataset: dark and light squares."""

    def samples(n: int) -> Samples:
        y = np.arange(n) % 2
        noise = np.random.default_rng(n).integers(0, 60, (n, 8, 8, 3))
        return Samples((noise + 150 * y[:, None, None, None]).astype(np.uint8), y, np.arange(n))

    return Dataset("acme-squares", samples(200), samples(100), ["dark", "light"])


def narrow(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """Network: one linear layer on pixels."""
    from torch import nn

    return Blocks({HEAD: partial(nn.Linear, int(np.prod(x_shape)), n_classes)}, before_head=nn.Flatten())


class Oldest(Sampler):
    """Sampler: the first samples of all."""

    def draw(self, past: Past, n: int) -> Positions:
        """[0, n)."""
        return np.arange(min(n, past.seen))
