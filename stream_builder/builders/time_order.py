"""Samples with time stamps → a stream in their own order, for online evaluation: periods, each with a held-out part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile
from curate.core.seeding import rng_for
from curate.release import Release
from stream_builder.builders.release import encoded
from stream_builder.lazy_images import of_files
from stream_builder.stream import Array, Split, Step, Stream, pick

KEY = "store_list"  # the one data set in each of EvalOCL's HDF5 files


@dataclass(frozen=True)
class Timed:
    """x: samples; y: (N,) int64; ids: (N,) text; time: (N,) int64 seconds, or positions where only the order is known.
    test: a test set of its own in the same order, or None."""

    name: str
    x: Any
    y: npt.NDArray[np.int64]
    ids: Array
    time: npt.NDArray[np.int64]
    classes: Sequence[str]
    test: Timed | None = None


def ordered(
    data: Timed,
    periods: int = 10,
    held_out: float = 0.1,
    order: Literal["natural", "balanced"] = "natural",
    seed: int = 0,
) -> Stream:
    """Steps of equally many samples in order of time, equal times by id; each one's test split, for retention, is a
    random `held_out` share of it, also in order – or its part of the data's own test set.

    order: "balanced" keeps of every class in a period at most as many as the median class has. Raises
    IncompatibleStream for fewer samples than periods.
    """
    if not 0 <= held_out < 1:
        raise BadConfig(f"--held-out is {held_out}.", "Expected a share from 0 to below 1.")
    if len(data.y) < periods or periods < 1:
        raise IncompatibleStream(
            f"{data.name} has {len(data.y)} samples for {periods} periods.", "Expected one each at least."
        )
    rows = np.lexsort((data.ids, data.time))
    tests = None if data.test is None else np.array_split(np.lexsort((data.test.ids, data.test.time)), periods)
    steps = []
    for t, mine in enumerate(np.array_split(rows, periods)):
        rng = rng_for(seed, "period", t)
        if order == "balanced":
            mine = _balanced(mine, data.y, rng)
        out = np.zeros(len(mine), bool)
        if tests is None:
            out[rng.permutation(len(mine))[: round(held_out * len(mine))]] = True
        splits = {"train": _split(data, mine[~out])}
        if tests is not None and data.test is not None and len(tests[t]):
            splits["test"] = _split(data.test, tests[t])
        elif out.any():
            splits["test"] = _split(data, mine[out])
        steps.append(Step(t, str(t), splits))
    facts = {
        "from": "order",
        "source": data.name,
        "periods": periods,
        "held_out": held_out,
        "order": order,
        "seed": seed,
    }
    return Stream(f"{data.name}-in-order", steps, list(data.classes), facts=facts)


def _balanced(rows: Array, y: npt.NDArray[np.int64], rng: np.random.Generator) -> Array:
    labels, counts = np.unique(y[rows], return_counts=True)
    most = max(1, int(np.median(counts)))
    keep = np.zeros(len(rows), bool)
    for label in labels.tolist():
        here = np.flatnonzero(y[rows] == label)
        keep[rng.permutation(here)[:most]] = True
    return rows[keep]


def _split(data: Timed, rows: Array) -> Split:
    return Split(pick(data.x, rows), data.y[rows], data.ids[rows], data.time[rows])


def timed_release(path: Path, features: str | None = None) -> Timed:
    """All labelled images of a release, by time of upload. features: a name in the release, or images:SIZE."""
    release = Release.open(path)
    kind, _, size = (features or "").partition(":")
    if kind == "images":
        if not size.isdigit():
            raise BadConfig(f"The features are {features!r}.", "Expected images:SIZE.")
        x: Any = encoded(release, int(size))
    else:
        if features is None and not release.facts["features"]:
            raise BadConfig(f"The release {release.name} ships no features.", "", "Use --features images:SIZE.")
        x = np.asarray(release.features(features or release.facts["features"][0]), np.float32)
    table = release.table
    return Timed(
        release.name,
        x,
        table["label"].to_numpy().astype(np.int64),
        np.array(table["id"].to_pylist(), np.str_),
        table["uploaded"].to_numpy().astype(np.int64),
        release.classes,
    )


def timed_table(path: Path, features: Path | None = None, root: Path | None = None, size: int = 64) -> Timed:
    """A CSV or Parquet table with the columns id, time (seconds UTC) and label; and features (N, D) in an .npy file,
    rows as in the table, or a column path of images below `root`. Raises BadInput naming file and column."""
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a CSV or Parquet table.")
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
    except pa.ArrowInvalid as error:
        raise BadInput(f"{path} cannot be read ({error}).", "Expected CSV or Parquet.") from None
    if missing := {"id", "time", "label"} - set(table.column_names):
        raise BadInput(f"{path} lacks {', '.join(sorted(missing))}.", f"It has {', '.join(table.column_names)}.")
    for column in ("id", "time", "label"):
        if table[column].null_count:
            row = table[column].to_pylist().index(None)
            raise BadInput(f"{path}, row {row}: {column} is empty.", "Expected a value in every row.")
    if not pa.types.is_integer(table["time"].type):
        raise BadInput(f"{path}: time is {table['time'].type}.", "Expected whole seconds UTC.")
    names = [str(v) for v in table["label"].to_pylist()]
    classes = sorted(set(names))
    number = {c: i for i, c in enumerate(classes)}
    if features is not None:
        x: Any = np.load(features, mmap_mode="r", allow_pickle=False)
        if len(x) != len(table):
            raise BadInput(f"{features} has {len(x)} rows, {path} {len(table)}.", "Expected as many.")
    elif "path" in table.column_names:
        places = [(root or path.parent) / str(p) for p in table["path"].to_pylist()]
        if lost := [p for p in places if not p.is_file()]:
            raise MissingFile(f"{path} names {lost[0]}, which is not there.", f"{len(lost)} of {len(places)} are not.")
        x = of_files(places, size)
    else:
        raise BadInput(f"{path} has no column path.", "Expected one, or --features FILE.npy.")
    return Timed(
        path.stem,
        x,
        np.array([number[n] for n in names], np.int64),
        np.array([str(v) for v in table["id"].to_pylist()], np.str_),
        table["time"].to_numpy().astype(np.int64),
        classes,
    )


def timed_hdf5(folder: Path, features: Path | None = None, root: Path | None = None, size: int = 64) -> Timed:
    """CGLM's or CLOC's published order: `train_labels.hdf5`, `train_image_paths.hdf5`, the same for test.

    features: a folder with train.npy and test.npy, rows as in the files; without it, images below `root`.
    """
    sides = {}
    for side in ("train", "test"):
        labels = _stored(folder / f"{side}_labels.hdf5").astype(np.int64)
        raw = _stored(folder / f"{side}_image_paths.hdf5")
        paths = [p.decode("utf-8", "replace") if isinstance(p, bytes) else str(p) for p in raw.tolist()]
        if len(paths) != len(labels):
            raise BadInput(f"{folder}: {len(paths)} paths and {len(labels)} labels of {side}.", "Expected as many.")
        if features is not None:
            x: Any = np.load(features / f"{side}.npy", mmap_mode="r", allow_pickle=False)
            if len(x) != len(labels):
                raise BadInput(
                    f"{features / side}.npy has {len(x)} rows for {len(labels)} labels.", "Expected as many."
                )
        elif root is not None:
            places = [_below(root, p) for p in paths]
            if lost := [p for p in places if not p.is_file()]:
                raise MissingFile(f"{folder} names {lost[0]}, which is not there.", f"{len(lost)} are not.")
            x = of_files(places, size)
        else:
            raise BadConfig(f"{folder} holds an order and no samples.", "Expected --features or --root.")
        sides[side] = (x, labels, np.array(paths, np.str_))
    n_classes = int(max(s[1].max() for s in sides.values())) + 1
    classes = [str(c) for c in range(n_classes)]
    train, test = (Timed(folder.name, x, y, ids, np.arange(len(y)), classes) for x, y, ids in sides.values())
    return Timed(folder.name, train.x, train.y, train.ids, train.time, classes, test)


def _below(root: Path, name: str) -> Path:
    """A path from outside, kept inside `root`."""
    parts = [p for p in Path(name).parts if p not in ("/", "..", ".")]
    return root.joinpath(*parts)


def _stored(path: Path) -> Array:
    import h5py

    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected EvalOCL's order files.")
    try:
        with h5py.File(path, "r") as file:
            if KEY not in file:
                raise BadInput(f"{path} holds {sorted(file)}.", f"Expected the data set {KEY}.")
            return np.asarray(file[KEY][:])
    except OSError as error:
        raise BadInput(f"{path} is no HDF5 file ({error}).", "Expected EvalOCL's order files.") from None


def open_timed(path: Path, features: str | None = None, root: Path | None = None, size: int = 64) -> Timed:
    """A table, a folder of order files, or a release, by what lies at `path`."""
    if path.is_dir() and (path / "train_labels.hdf5").is_file():
        return timed_hdf5(path, None if features is None else Path(features), root, size)
    if path.is_dir():
        return timed_release(path, features)
    return timed_table(path, None if features is None else Path(features), root, size)
