"""Samples with timestamps → a stream in time order, for online evaluation: periods, each with a held-out part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile, reason
from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.outside.arrays import number_of_classes, open_array
from driftline.curate.core.outside.limits import UNPACKED
from driftline.curate.core.outside.names import is_count
from driftline.curate.core.outside.tables import read_parquet, readable
from driftline.curate.core.seeding import rng_for, time_order
from driftline.curate.release import Release
from driftline.stream_builder.builders.release import release_groups, release_images
from driftline.stream_builder.lazy_images import from_download
from driftline.stream_builder.splitting import no_test, numbered
from driftline.stream_builder.stream import Array, Split, Step, Stream, join, pick
from driftline.stream_builder.ties import drawn

KEY = "store_list"  # the data set in each of EvalOCL's HDF5 files


@dataclass(frozen=True)
class TimedSamples:
    """Labelled samples with timestamps, in any order."""

    name: str
    """becomes part of the stream's name"""
    x: Any
    """(N, …) samples, as in `Split`"""
    y: npt.NDArray[np.int64]
    """(N,) labels"""
    ids: Array
    """(N,) strings"""
    time: npt.NDArray[np.int64]
    """(N,) seconds UTC, or positions if only the order is known"""
    classes: Sequence[str]
    """class names; the index is the label"""
    test: TimedSamples | None = None
    """a separate test set over the same time, or None"""
    pretrain: TimedSamples | None = None
    """samples from before the others, set apart for the choice of settings, or None"""
    group: npt.NDArray[np.int64] | None = None
    """(N,) samples with the same number share an uploader or are near copies; None: not known"""


def in_time_order(
    data: TimedSamples,
    periods: int = 10,
    held_out: float = 0.1,
    order: Literal["natural", "balanced"] = "natural",
    seed: int = 0,
    split: Literal["grouped", "random"] = "grouped",
) -> Stream:
    """One step per period, with equally many samples, in order of time; `seed` draws the order of equal times.

    The test split of a step, for retention, is a random share `held_out` of its samples, also in order, or its part of
    the separate test set. split "grouped": samples of one uploader, and near copies, are on one side in all periods, if
    the source names them. order "balanced": of each class in a period, keep at most as many samples as the median class
    has. Raises BadConfig, and IncompatibleStream for fewer samples than periods or a period without test samples.
    """
    if not 0 <= held_out < 1:
        raise BadConfig(f"--held-out is {held_out}.", "Expected a share from 0 to below 1.")
    if len(data.y) < periods or periods < 1:
        raise IncompatibleStream(
            f"{data.name} has {len(data.y)} samples for {periods} periods.", "Expected at least one per period."
        )
    rows = time_order(data.time, data.ids, seed)
    tests = None if data.test is None else np.array_split(time_order(data.test.time, data.test.ids, seed), periods)
    chosen = []
    for t, period in enumerate(np.array_split(rows, periods)):
        rng = rng_for(seed, "period", t)
        chosen.append(_balanced(period, data.y, rng) if order == "balanced" else period)
    grouped = split == "grouped" and data.group is not None and tests is None
    lengths = [len(period) for period in chosen]
    held = [np.zeros(n, bool) for n in lengths]
    if tests is None:
        rows = np.concatenate(chosen)
        group = data.group[rows] if grouped and data.group is not None else np.arange(len(rows))
        side = draw_sides([np.repeat(np.arange(periods), lengths)], group, held_out, rng_for(seed, "held out"))
        held = np.split(side, np.cumsum(lengths)[:-1])
        if grouped and (empty := [t for t, s in enumerate(held) if not s.any() and held_out * len(s) >= 1]):
            raise no_test(f"Period {empty[0]} of {data.name}", held_out, "Use --split random.")
    steps = []
    for t, (period, is_test) in enumerate(zip(chosen, held, strict=True)):
        splits = {"train": _split(data, period[~is_test])}
        if t == 0 and data.pretrain is not None:
            splits["train"] = join([_split(data.pretrain, np.arange(len(data.pretrain.y))), splits["train"]])
        if tests is not None and data.test is not None and len(tests[t]):
            splits["test"] = _split(data.test, tests[t])
        elif is_test.any():
            splits["test"] = _split(data, period[is_test])
        steps.append(Step(t, str(t), splits))
    facts = {"from": "order", "source": data.name, "periods": periods, "held_out": held_out}
    facts |= {"order": order, "seed": seed, "split": "published" if tests else "grouped" if grouped else "random"}
    facts |= drawn(seed) | ({} if data.pretrain is None else {"pretrain": len(data.pretrain.y)})
    return Stream(f"{data.name}-in-order", steps, list(data.classes), facts=facts)


def _balanced(rows: Array, y: npt.NDArray[np.int64], rng: np.random.Generator) -> Array:
    labels, counts = np.unique(y[rows], return_counts=True)
    most = max(1, int(np.median(counts)))
    keep = np.zeros(len(rows), bool)
    for label in labels.tolist():
        of_class = np.flatnonzero(y[rows] == label)
        keep[rng.permutation(of_class)[:most]] = True
    return rows[keep]


def _split(data: TimedSamples, rows: Array) -> Split:
    group = None if data.group is None else data.group[rows]
    return Split(pick(data.x, rows), data.y[rows], data.ids[rows], data.time[rows], group)


def timed_release(path: Path, features: str | None = None) -> TimedSamples:
    """All labelled images of a release by upload time. features: a name in the release (default: its first), or
    images:SIZE. Raises BadConfig."""
    release = Release.open(path)
    kind, _, size = (features or "").partition(":")
    if kind == "images":
        if not is_count(size) or not 4 <= int(size) <= 8192:
            raise BadConfig(f"The features are {features!r}.", "Expected images:SIZE with SIZE from 4 to 8192.")
        x: Any = release_images(release, int(size))
    else:
        if features is None and not release.facts["features"]:
            raise BadConfig(f"The release {release.name} has no features.", "", "Use --features images:SIZE.")
        x = np.asarray(release.features(features or release.facts["features"][0]), np.float32)
    table = release.table
    return TimedSamples(
        release.name,
        x,
        table["label"].to_numpy().astype(np.int64),
        np.array(table["id"].to_pylist(), np.str_),
        table["uploaded"].to_numpy().astype(np.int64),
        release.classes,
        group=release_groups(release),
    )


def timed_table(path: Path, features: Path | None = None, root: Path | None = None, size: int = 64) -> TimedSamples:
    """A CSV or Parquet table with columns id, time (integer seconds UTC) and label; and group or user, if known: equal
    values share an uploader or are near copies.

    features: .npy file (N, D), rows as in the table; without it, the column path names images, relative to `root`
    (default: the table's folder). size: edge of the images. Raises MissingFile, and BadInput naming file and column.
    """
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a CSV or Parquet table.")
    with readable(path, "Expected CSV or Parquet."):
        table = read_parquet(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
        table.validate(full=True)
    if missing := {"id", "time", "label"} - set(table.column_names):
        raise BadInput(
            f"{path} has no column {', '.join(sorted(missing))}.", f"It has {', '.join(table.column_names)}."
        )
    for column in ("id", "time", "label"):
        if table[column].null_count:
            row = table[column].to_pylist().index(None)
            raise BadInput(f"{path}, row {row}: {column} is empty.", "Expected a value in every row.")
    if not pa.types.is_integer(table["time"].type):
        raise BadInput(f"{path}: time is {table['time'].type}.", "Expected integer seconds UTC.")
    groups = next((table[name].to_pylist() for name in ("group", "user") if name in table.column_names), None)
    names = [str(v) for v in table["label"].to_pylist()]
    classes = sorted(set(names))
    number = {c: i for i, c in enumerate(classes)}
    if features is not None:
        x: Any = open_array(features, "fu", (None, -1), "Check --features.")
        if len(x) != len(table):
            raise BadInput(f"{features} has {len(x)} rows, {path} has {len(table)}.", "Expected the same number.")
    elif "path" in table.column_names:
        x = from_download([(root or path.parent) / str(p) for p in table["path"].to_pylist()], size, path)
    else:
        raise BadInput(f"{path} has no column path.", "Expected one, or --features FILE.npy.")
    return TimedSamples(
        path.stem,
        x,
        np.array([number[n] for n in names], np.int64),
        np.array([str(v) for v in table["id"].to_pylist()], np.str_),
        table["time"].to_numpy().astype(np.int64),
        classes,
        group=None if groups is None else numbered(np.array(["" if v is None else str(v) for v in groups])),
    )


def timed_hdf5(folder: Path, features: Path | None = None, root: Path | None = None, size: int = 64) -> TimedSamples:
    """The published order of CGLM or CLOC: `train_labels.hdf5` and `train_image_paths.hdf5`, the same for test, and for
    pretrain if there are samples of it.

    features: a folder with train.npy and test.npy, rows as in the files; without it, the paths are relative to `root`.
    Raises MissingFile, BadInput, BadConfig.
    """
    parts = {}
    apart = (folder / "pretrain_labels.hdf5").is_file() and (features is None or (features / "pretrain.npy").is_file())
    for part in ("train", "test", "pretrain")[: 3 if apart else 2]:
        labels = _read_hdf5(folder / f"{part}_labels.hdf5")
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or (len(labels) and labels.min() < 0):
            raise BadInput(f"{folder}: labels for {part} are {labels.dtype}.", "Expected integers from 0.")
        labels = labels.astype(np.int64)
        raw = _read_hdf5(folder / f"{part}_image_paths.hdf5")
        paths = [p.decode("utf-8", "replace") if isinstance(p, bytes) else str(p) for p in raw.tolist()]
        if len(paths) != len(labels):
            raise BadInput(
                f"{folder}: {len(paths)} paths and {len(labels)} labels for {part}.", "Expected the same number."
            )
        if features is not None:
            x: Any = open_array(features / f"{part}.npy", "fu", (None, -1), "Check --features.")
            if len(x) != len(labels):
                raise BadInput(
                    f"{features / part}.npy has {len(x)} rows for {len(labels)} labels.", "Expected the same number."
                )
        elif root is not None:
            x = from_download([_inside(root, p) for p in paths], size, folder)
        else:
            raise BadConfig(f"{folder} has an order, but no samples.", "Expected --features or --root.")
        parts[part] = (x, labels, np.array(paths, np.str_))
    n_classes = number_of_classes([labels for _, labels, _ in parts.values()], folder)
    classes = [str(c) for c in range(n_classes)]
    timed = {
        part: TimedSamples(folder.name, x, y, ids, np.arange(len(y)) - (len(y) if part == "pretrain" else 0), classes)
        for part, (x, y, ids) in parts.items()
    }
    return replace(timed["train"], test=timed["test"], pretrain=timed.get("pretrain"))


def _inside(root: Path, name: str) -> Path:
    """A path from a file, kept inside `root`."""
    parts = [p for p in Path(name).parts if p not in ("/", "..", ".")]
    return root.joinpath(*parts)


def _read_hdf5(path: Path) -> Array:
    import h5py

    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected EvalOCL's order files.")
    try:
        with h5py.File(path, "r") as file:
            if KEY not in file:
                raise BadInput(f"{path} contains {sorted(file)}.", f"Expected the data set {KEY}.")
            stored = file[KEY]
            if not isinstance(stored, h5py.Dataset) or stored.size * stored.dtype.itemsize > UNPACKED:
                raise BadInput(f"{KEY} in {path} is no array of at most {UNPACKED:,} bytes.")
            return np.asarray(stored[:])
    except (OSError, ValueError, LookupError, RuntimeError, TypeError, MemoryError) as error:
        raise BadInput(f"{path} cannot be read as HDF5 ({reason(error)}).", "Expected EvalOCL's order files.") from None


def open_timed(path: Path, features: str | None = None, root: Path | None = None, size: int = 64) -> TimedSamples:
    """A table, a folder of order files, or a release, depending on what is at `path`."""
    if path.is_dir() and (path / "train_labels.hdf5").is_file():
        return timed_hdf5(path, None if features is None else Path(features), root, size)
    if path.is_dir():
        return timed_release(path, features)
    return timed_table(path, None if features is None else Path(features), root, size)
