"""Hand-made inputs that many tests use."""

import importlib.util
import io
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign.images import reads_heic
from driftline.curate.release import Release
from driftline.curate.release.compose import write_release
from driftline.curate.release.packing import SHARD_IMAGES, pack
from driftline.curate.release.selection import all_splits, split_groups
from driftline.curate.release.settings import ReleaseSettings
from driftline.pipelines.demo.world import write_album
from driftline.stream_builder.class_texts import ClassTexts
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.stream import Split, Step, Stream


def few_of(cases: Iterable[Any], few: Collection[Any], reason: str = "matrix") -> list[Any]:
    """Parameters of a test: `make test` takes those of `few`, `make proofs` the others."""
    proof = pytest.mark.proof(reason)
    return [
        c if c in few else pytest.param(*c, marks=proof) if isinstance(c, tuple) else pytest.param(c, marks=proof)
        for c in cases
    ]


def drifting(
    steps: int = 4, classes: int = 3, n: int = 60, width: int = 8, drift: float = 0.5, noise: float = 1.0
) -> Stream:
    """Gaussian classes whose means move a little every step; train and test splits."""
    rng = rng_for(0, "drifting")
    means, way = rng.normal(0, 1.5, (classes, width)), rng.normal(0, drift, (classes, width))
    made = []
    for t in range(steps):
        splits = {}
        for name, size in (("train", n), ("test", n // 2)):
            y = np.arange(size, dtype=np.int64) % classes
            x = ((means + t * way)[y] + rng.normal(0, noise, (size, width))).astype(np.float32)
            ids = np.array([f"{t}-{name}-{i}" for i in range(size)])
            splits[name] = Split(x, y, ids, np.arange(size, dtype=np.int64) + t * 1000)
        made.append(Step(t, str(t), splits))
    return Stream("drifting", made, [f"class {c}" for c in range(classes)], sha256="drifting")


def spaced(stream: Stream, seconds: int, start: int = 0) -> Stream:
    """The same, with its steps so many seconds further apart, from `start` on."""
    steps = [
        replace(s, splits={n: replace(p, time=p.time + start + s.index * seconds) for n, p in s.splits.items()})
        for s in stream.steps
    ]
    return replace(stream, steps=steps, sha256=f"{stream.sha256}-{seconds}")


def grouped(stream: Stream) -> Stream:
    """The same, where three samples in a row are of one uploader."""

    def of_three(split: Split) -> Split:
        return replace(split, group=np.arange(len(split)) // 3)

    steps = [replace(s, splits={n: of_three(split) for n, split in s.splits.items()}) for s in stream.steps]
    return replace(stream, steps=steps)


def numbers(split: Split) -> npt.NDArray[np.int64]:
    """(N,) positions in the dataset's training or test samples, of a composed split."""
    return np.array([int(i.partition("-")[2]) for i in split.ids.tolist()], np.int64)


def hinted(stream: Stream) -> Stream:
    """The same, with every step's training samples as unlabelled ones, too: for learners that ask for some."""
    return replace(stream, steps=[replace(step, unlabelled=step["train"].x) for step in stream.steps])


def described(stream: Stream) -> Stream:
    """The same with two texts for each class, whose vectors are near the class's mean in the first step that has it."""
    rng, trained = rng_for(0, "described"), [step["train"] for step in stream.steps]
    first = [next(split for split in trained if (split.y == k).any()) for k in range(len(stream.classes))]
    means = np.stack([split.x[split.y == k].mean(0) for k, split in enumerate(first)])
    x = np.repeat(means, 2, 0) + rng.normal(0, 0.1, (2 * len(means), means.shape[1]))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    y = np.repeat(np.arange(len(means)), 2)
    prompts = np.array([f"text {i} of {stream.classes[k]}" for i, k in enumerate(y.tolist())])
    return replace(stream, class_texts=ClassTexts(x, y, prompts, "made by hand"))


YFCC_LINE = (
    "{id}\t39089491@N00\tnino\t2012-02-16 09:56:37.0\t{uploaded}\tCanon+PowerShot\tIMG\t\ta,b\t\t\t\t\t"
    "http://www.flickr.com/photos/39089491@N00/{id}/\t{url}\tAttribution License\t"
    "http://creativecommons.org/licenses/by/2.0/\t7205\t8\tdf7747990d\t692d7e0a7f\tjpg\t{marker}"
)


def yfcc_line(
    id: object = 1, uploaded: object = 1331840483, url: str = "http://127.0.0.1:9/a.jpg", marker: int = 0
) -> str:
    """One 23-column record."""
    return YFCC_LINE.format(id=id, uploaded=uploaded, url=url, marker=marker)


def saved(image: Image.Image, kind: str, **how: Any) -> bytes:
    """A file of an image."""
    reads_heic()
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)
    return buffer.getvalue()


def teal(date: str | None = None) -> bytes:
    """A small photo, with the moment of its EXIF data if any."""
    exif = Image.Exif()
    if date:
        exif.get_ifd(0x8769)[0x9003] = date
    return saved(Image.new("RGB", (16, 12), "teal"), "JPEG", exif=exif)


def blobs(n: int, width: int, classes: int, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Vectors around the centres of their classes."""
    rng = rng_for(seed, "blobs")
    y = rng.integers(classes, size=n)
    x = rng.normal(size=(classes, width))[y] + 0.7 * rng.normal(size=(n, width))
    return (x / np.sqrt(width)).astype(np.float32), y.astype(np.int64)


def dataset(per_class: int = 60, classes: int = 4, subs: int = 0) -> Dataset:
    """Images of 8 × 8, training and test alike; subs: subclasses."""
    rng = rng_for(0, "base")

    def samples(n: int) -> Samples:
        y = np.repeat(np.arange(classes), n).astype(np.int64)
        x = (rng.integers(0, 120, (len(y), 8, 8, 3)) + 20 * y[:, None, None, None]).astype(np.uint8)
        sub = None if not subs else (np.arange(len(y)) % subs).astype(np.int64)
        return Samples(x, y, np.arange(len(y)), sub)

    return Dataset("toy", samples(per_class), samples(per_class), [str(c) for c in range(classes)])


def write_base(folder: Path, mode: str = "RGB") -> None:
    """A base of two classes, 60 + 60 images of 8 × 8, as Parquet."""
    folder.mkdir()
    for side in ("train", "test"):
        rows = []
        for i in range(60):
            pixels = rng_for(0, side, i).integers(0, 256, (8, 8, 3)).astype(np.uint8)
            rows.append({"image": saved(Image.fromarray(pixels).convert(mode), "PNG"), "label": i % 2})
        pq.write_table(pa.Table.from_pylist(rows), folder / f"toy_{side}.parquet")


def made_rows(rows: int, seed: int = 0, columns: int = 23, dirty: float = 0.0) -> Iterator[bytes]:
    """Blocks of made YFCC100M lines, as the benchmarks use them."""
    blocks: Iterator[bytes] = benchmark("yfcc_rows").lines(rows, seed, columns, dirty)
    return blocks


def benchmark(name: str) -> ModuleType:
    """A module of `benchmarks/`, which is no package."""
    return _module("benchmarks", name)


def example(name: str) -> ModuleType:
    """A module of `examples/`, which is no package."""
    return _module("examples", name)


def study(name: str) -> ModuleType:
    """A module of `studies/`, which is no package."""
    return _module("studies", name)


def _module(folder: str, name: str) -> ModuleType:
    path = Path(__file__).resolve().parents[2] / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class ImagesInMemory:
    """Images in memory, for `pack`."""

    images: Mapping[str, tuple[bytes, str]]
    """id → (bytes, extension)"""

    def get(self, id_: str) -> tuple[bytes, str]:
        return self.images[id_]

    def subset(self, ids: Collection[str]) -> "ImagesInMemory":
        return ImagesInMemory({id_: self.images[id_] for id_ in ids})


def release_of(
    rows: Sequence[Mapping[str, Any]],
    images: Mapping[str, tuple[bytes, str]],
    vectors: npt.NDArray[np.float16],
    buckets: Sequence[Mapping[str, Any]],
    classes: Sequence[str],
    provenance: Mapping[str, Any],
    folder: Path,
    rules: ReleaseSettings,
    strip: bool = False,
    shard_images: int = SHARD_IMAGES,
    features: Sequence[str] = ("clip",),
) -> Release:
    """Publish rows as they come from `select`. features: names of the vectors."""
    groups = split_groups(rows)
    full = [
        {**row, "class": row["concept"], "label": classes.index(row["concept"]), "group": group}
        for row, group in zip(rows, groups, strict=True)
    ]
    splits = all_splits(full, groups, rules, 0)
    records = folder.parent / f"{folder.name}-records"
    packed = pack(full, ImagesInMemory(images), folder / "shards", records, shard_images, strip)
    of = dict.fromkeys(features, vectors)
    write_release(packed, of, buckets, classes, splits, provenance, folder, rules)
    return Release.open(folder)


def album(folder: Path, each: int = 10) -> Path:
    """What `driftline demo --album` writes."""
    write_album(folder, each)
    return folder


OWN_PHOTOS = "{source: folder, path: photos, label: parent, dates: [path]}"


def photo_config(
    retrieve: str, short: str = "fewer", collection: str = OWN_PHOTOS, validation: str = "{method: catalogue}"
) -> str:
    """A run on dated photos of cars and buses, labelled by their folders. retrieve: more lines of that section; short:
    what the release does with classes that are not full."""
    return f"""
collection: {collection}
filter: {{upload_after_capture: false}}
buckets: {{kind: calendar, unlabelled: []}}
embed: {{model: driftline-photo-world}}
retrieve:
{retrieve}
  depth: 20
  background_share: 0
  short: fewer
  concepts: [{{name: car, prompts: [a car]}}, {{name: bus, prompts: [a bus]}}]
validation: {validation}
release: {{per_class: 4, splits: 1, short: {short}, own: true}}
"""


def correlated(
    n: int = 1200, classes: int = 12, width: int = 8, stay: float = 0.9, steps: int = 3, timed: bool = True,
    apart: float = 1.5,
) -> Stream:  # fmt: skip
    """Gaussian classes in runs: each sample has the class of the one before with probability `stay`; a tenth of every
    step is held out. apart: standard deviation of the classes' means; that of a class is 1."""
    rng = rng_for(0, "correlated")
    means = rng.normal(0, apart, (classes, width))
    fresh = rng.integers(0, classes, n)
    runs = rng.random(n) < stay
    runs[0] = False
    y = fresh[np.maximum.accumulate(np.where(runs, 0, np.arange(n)))]
    x = (means[y] + rng.normal(0, 1, (n, width))).astype(np.float32)
    made = []
    for t, rows in enumerate(np.array_split(np.arange(n), steps)):
        held = np.zeros(len(rows), bool)
        held[rng.permutation(len(rows))[: len(rows) // 10]] = True
        splits = {
            name: Split(x[r], y[r], r.astype(np.str_), r.astype(np.int64) * 60 if timed else None)
            for name, r in (("train", rows[~held]), ("test", rows[held]))
        }
        made.append(Step(t, str(t), splits))
    return Stream("correlated", made, [f"class {c}" for c in range(classes)], sha256=f"correlated{n}{stay}{apart}")


def made_intents(
    classes: int, n: int, width: int, noise: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Unit vectors (n, width) near one direction a class, as sentence vectors of intents, and their classes."""
    rng = rng_for(0, "made intents")
    y = rng.integers(0, classes, n)
    means = rng.normal(size=(classes, width))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    x = (means[y] + rng.normal(0, noise, (n, width))).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y.astype(np.int64)
