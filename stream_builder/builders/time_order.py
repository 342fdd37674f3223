"""Samples with times → a stream in time order, for online evaluation; releases, and the orders of CGLM and CLOC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile, reason
from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.outside.arrays import number_of_classes, open_array
from driftline.curate.core.outside.limits import UNPACKED
from driftline.curate.core.outside.names import is_count
from driftline.curate.core.seeding import rng_for, time_order
from driftline.curate.core.times.calendar_periods import count_of
from driftline.curate.release import Release
from driftline.stream_builder.builders.release import release_groups, release_images
from driftline.stream_builder.importers.dated import calendar_steps
from driftline.stream_builder.lazy_images import from_download
from driftline.stream_builder.splitting import no_test
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
    label_time: npt.NDArray[np.int64] | None = None
    """(N,) seconds UTC when labels come, as in `Split`; None: with their samples"""


def in_time_order(
    data: TimedSamples,
    period: str | int = 10,
    test_share: float = 0.1,
    order: Literal["natural", "balanced"] = "natural",
    seed: int = 0,
    grouping: Literal["grouped", "random"] = "grouped",
) -> Stream:
    """Steps in order of time; `seed` draws the order of equal times.

    period: year, month, week or day, or a number of steps with equally many samples each. The test split of a step, for
    retention, is a random `test_share` of its samples, also in order, or its part of the separate test set. grouping
    "grouped": samples of one uploader, and near copies, are on one side in all steps, if the source names them. order
    "balanced": of each class in a step, keep at most as many samples as the median class has. Raises BadConfig, and
    IncompatibleStream for fewer samples than steps or a step without test samples.
    """
    if not 0 <= test_share < 1:
        raise BadConfig(f"--test-share is {test_share}.", "Expected a share from 0 to below 1.")
    parts = count_of(period)
    if parts is not None and len(data.y) < parts:
        raise IncompatibleStream(
            f"{data.name} has {len(data.y)} samples for {parts} steps.", "Expected at least one a step."
        )
    if parts is None and data.test is not None:
        raise BadConfig(f"{data.name} has an order, but no dates.", "Expected --period N, a number of steps.")
    rows = time_order(data.time, data.ids, seed)
    if parts is None:
        step_of, names = calendar_steps(data.time[rows], str(period))
        cut = [rows[step_of == t] for t in range(len(names))]
    else:
        cut, names = np.array_split(rows, parts), [str(t) for t in range(parts)]
    periods = len(names)
    tests = None if data.test is None else np.array_split(time_order(data.test.time, data.test.ids, seed), periods)
    chosen = []
    for t, of_step in enumerate(cut):
        rng = rng_for(seed, "period", t)
        chosen.append(_balanced(of_step, data.y, rng) if order == "balanced" else of_step)
    grouped = grouping == "grouped" and data.group is not None and tests is None
    lengths = [len(of_step) for of_step in chosen]
    held = [np.zeros(n, bool) for n in lengths]
    if tests is None:
        rows = np.concatenate(chosen)
        group = data.group[rows] if grouped and data.group is not None else np.arange(len(rows))
        side = draw_sides([np.repeat(np.arange(periods), lengths)], group, test_share, rng_for(seed, "held out"))
        held = np.split(side, np.cumsum(lengths)[:-1])
        if grouped and (empty := [t for t, s in enumerate(held) if not s.any() and test_share * len(s) >= 1]):
            raise no_test(f"Step {names[empty[0]]} of {data.name}", test_share, "Use --grouping random.")
    steps = []
    for t, (of_step, is_test) in enumerate(zip(chosen, held, strict=True)):
        splits = {"train": _split(data, of_step[~is_test])}
        if t == 0 and data.pretrain is not None:
            splits["train"] = join([_split(data.pretrain, np.arange(len(data.pretrain.y))), splits["train"]])
        if tests is not None and data.test is not None and len(tests[t]):
            splits["test"] = _split(data.test, tests[t])
        elif is_test.any():
            splits["test"] = _split(data, of_step[is_test])
        steps.append(Step(t, names[t], splits))
    facts = {"from": "order", "source": data.name, "periods": periods, "held_out": test_share}
    facts |= {"order": order, "seed": seed, "split": "published" if tests else "grouped" if grouped else "random"}
    facts |= drawn(seed) | ({} if data.pretrain is None else {"pretrain": len(data.pretrain.y)})
    facts |= {"period": period} if parts is None else {}
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
    group, late = (None if column is None else column[rows] for column in (data.group, data.label_time))
    return Split(pick(data.x, rows), data.y[rows], data.ids[rows], data.time[rows], group, label_time=late)


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
            stored = file[KEY] if isinstance(file.get(KEY, getlink=True), h5py.HardLink) else None
            if not isinstance(stored, h5py.Dataset) or stored.is_virtual or stored.external:
                raise BadInput(f"{KEY} in {path} leads elsewhere, or is no array.", "Expected an array in the file.")
            longest = path.stat().st_size if stored.dtype.hasobject else stored.dtype.itemsize
            if stored.ndim and len(stored) and stored.dtype.hasobject:  # texts: many may be one, which is long
                pieces, at, total = [], 0, 0
                while at < len(stored):
                    pieces.append(stored[at : at + max(1, UNPACKED // 8 // longest)])
                    at, total = at + len(pieces[-1]), total + sum(map(len, pieces[-1].flat))
                    if total > UNPACKED:
                        break
                else:
                    return np.concatenate(pieces)
            if stored.size * longest > UNPACKED:
                raise BadInput(f"{KEY} in {path} is larger than {UNPACKED:,} bytes.", "Expected less.")
            return np.asarray(stored[:])
    except (OSError, ValueError, LookupError, RuntimeError, TypeError, MemoryError) as error:
        raise BadInput(f"{path} cannot be read as HDF5 ({reason(error)}).", "Expected EvalOCL's order files.") from None
