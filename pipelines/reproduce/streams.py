"""The streams of the papers' cells, made of the files in --data; smaller ones for --quick."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.foreign.arrays import read_arrays
from driftline.stream_builder.stream import Split, Step, Stream

TENTH, TESTS, FEW = 10, 500, 120  # --quick: of the sizes of steps; test samples; samples of a split


def composed(data: Path, quick: bool, base: str, sequence: str) -> Stream:
    """A sequence of shifts of CIFAR, as the paper's code renders it. quick: images of half the height and width."""
    from driftline.stream_builder.builders.sampling import Composition
    from driftline.stream_builder.builders.shift_sequence import compose
    from driftline.stream_builder.datasets import Options, open_dataset
    from driftline.stream_builder.shifts.grammar import sizes_of

    dataset, how = open_dataset(data / base, Options()), Composition(fidelity="paper-code")
    if not quick:
        return compose(dataset, sequence, composition=how)
    train, test = (replace(side, x=_halved(side.x[:])) for side in (dataset.train, dataset.test))
    small = replace(dataset, train=train, test=test)
    sizes = [size // TENTH for size in sizes_of(sequence)]
    return compose(small, sequence, sizes, min(TESTS, len(dataset.test)), composition=how)


def _halved(x: Any) -> Any:
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4)).round().astype(np.uint8)


def portraits(data: Path, quick: bool) -> Stream:
    """A step for each decade of yearbooks."""
    from driftline.stream_builder.builders.shift_sequence import portraits as made

    stream = made(data / "portraits", 16 if quick else 32, fidelity="paper-code")
    return _fewer(stream) if quick else stream


def features(data: Path, quick: bool, name: str) -> Stream:
    """CLEAR-10's published features, as arrays: x, y, step, classes."""
    from driftline.stream_builder.builders.arrays import from_arrays

    stream = from_arrays(data / "clear10" / f"{name}.npz", test_share=0.3)
    stream = replace(stream, facts={**stream.facts, "published": f"clear10/{name}"})
    return _fewer(stream) if quick else stream


def clear_images(data: Path, quick: bool) -> Stream:
    """CLEAR-10's images as its authors publish them."""
    from driftline.stream_builder.importers.clear import from_clear

    stream = from_clear(data / "clear10" / "images", f"images:{32 if quick else 224}")
    return replace(stream, facts={**stream.facts, "published": "clear10/images"})


def intents(data: Path, quick: bool, name: str) -> Stream:
    """Sentence vectors of a dataset of intents, in its own order and with its own tests: one step."""
    from driftline.stream_builder.builders.arrays import from_arrays

    places = [data / "intent" / f"{name}_{encoder}.npz" for encoder in ("bge", "minilm")]
    path = next((place for place in places if place.is_file()), places[0])
    expected = "Expected train_x, train_y, test_x, test_y and labels."
    found = read_arrays(path, expected)
    if lost := [key for key in ("train_x", "train_y", "test_x", "test_y", "labels") if key not in found]:
        raise BadInput(f"{path} has no array {lost[0]}.", expected)
    x = np.concatenate([found["train_x"], found["test_x"]]).astype(np.float32)
    y = np.concatenate([found["train_y"], found["test_y"]]).astype(np.int64)
    split = np.repeat(["train", "test"], [len(found["train_y"]), len(found["test_y"])])
    classes = found["labels"]  # held-out classes are drawn in the order of their names
    stream = from_arrays(
        {"x": x / np.linalg.norm(x, axis=1, keepdims=True), "y": y, "split": split, "classes": classes}
    )
    return replace(stream, name=name)


def texts(data: Path, quick: bool) -> Stream:
    """Banking77's texts, for learners that read: one step."""
    from driftline.stream_builder.builders.shift_sequence import from_dataset
    from driftline.stream_builder.datasets import Options
    from driftline.stream_builder.datasets.texts import open_texts

    stream = from_dataset(open_texts(data / "intent", Options()))
    return _fewer(stream) if quick else stream


def ordered(data: Path, quick: bool, name: str) -> Stream:
    """The published order of CGLM or CLOC, with its images; with vectors of them, where there are some."""
    from driftline.stream_builder.builders.table import from_table

    folder = data / name
    vectors = folder / "features"
    if not vectors.is_dir() and not (folder / "images").is_dir():
        raise MissingFile(f"{folder} has order files and no folder images.", "Expected the images below it.")
    more: Any = {"features": vectors} if vectors.is_dir() else {"root": folder / "images", "size": 32 if quick else 224}
    return from_table(folder, **more)


def _fewer(stream: Stream) -> Stream:
    """At most FEW samples of each split."""

    def small(step: Step) -> Step:
        splits: dict[str, Split] = {}
        for name, split in step.splits.items():
            rows = np.linspace(0, len(split) - 1, min(len(split), FEW)).astype(np.int64)
            splits[name] = split.take(np.unique(rows))
        return replace(step, splits=splits)

    return replace(stream, steps=[small(step) for step in stream.steps])


OURS: tuple[Callable[..., Stream], ...] = (composed, portraits, features, clear_images, intents, texts, ordered)
MAKERS = {maker.__name__.replace("_", "-"): maker for maker in OURS}
