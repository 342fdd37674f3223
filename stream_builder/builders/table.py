"""Samples with times → a stream in time order, for online evaluation: tables of dated samples, in a file or in memory;
releases; the orders of CGLM and CLOC.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile, reason
from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.seeding import rng_for, time_order
from driftline.curate.core.times import count_of
from driftline.curate.foreign import cells
from driftline.curate.foreign.arrays import number_of_classes, open_array
from driftline.curate.foreign.limits import UNPACKED
from driftline.curate.release import Release
from driftline.stream_builder.builders.release import release_samples
from driftline.stream_builder.importers.dated import (
    column_of,
    filled,
    groups_of,
    label_times,
    labels_of,
    table_of,
    texts_of,
    times_of,
)
from driftline.stream_builder.lazy_images import from_files
from driftline.stream_builder.rows import Rows, calendar_steps, check_ids, check_share, splits_of, with_labels
from driftline.stream_builder.splitting import drawn, no_test, numbered
from driftline.stream_builder.step import check
from driftline.stream_builder.stream import Array, Split, Stream, join

KEY = "store_list"  # the dataset in each of EvalOCL's HDF5 files


def in_time_order(
    rows: Rows,
    period: str | int = 10,
    test_share: float = 0.1,
    seed: int = 0,
    grouping: Literal["grouped", "random"] = "grouped",
    test: Split | None = None,
    pretrain: Split | None = None,
    *,
    what: Callable[[int], str] = "sample {}".format,
) -> Stream:
    """Steps in order of time; `seed` draws the order of equal times.

    period: year, month, week or day, or a number of steps with equally many samples each. The test split of a step, for
    retention, is a random `test_share` of its samples, also in order, or its part of a separate test set over the same
    time. grouping "grouped": samples of one uploader, and near-duplicates, are on one side in all steps, if the source
    names them. pretrain: samples from before the others, set apart for the choice of settings. what: as of `cut`.
    Raises BadConfig, and IncompatibleStream for fewer samples than steps or a step without test samples.
    """
    check_share(test_share)
    rows, left_out = with_labels(rows, {}, what)
    samples, parts = rows.samples, count_of(period)
    assert samples.time is not None
    if parts is not None and len(samples) < parts:
        problem = f"{rows.name} has {len(samples)} samples for {parts} steps."
        raise IncompatibleStream(problem, "Expected at least one a step.")
    if parts is None and test is not None:
        raise BadConfig(f"{rows.name} has an order, but no dates.", "Expected --period N, a number of steps.")
    place = time_order(samples.time, samples.ids, seed)
    if parts is None:
        step, names = calendar_steps(samples.time[place], str(period))
    else:
        names = [str(t) for t in range(parts)]
        step = np.repeat(np.arange(parts), list(map(len, np.array_split(place, parts))))
    tested, grouped = np.zeros(len(place), bool), False
    if test is None:
        grouped = grouping == "grouped" and samples.group is not None
        group = samples.group[place] if grouped and samples.group is not None else np.arange(len(place))
        tested = draw_sides([step], group, test_share, rng_for(seed, "held out"))
        sizes, tests = np.bincount(step), np.bincount(step, tested)
        if grouped and (empty := np.flatnonzero((tests == 0) & (test_share * sizes >= 1))).size:
            raise no_test(f"Step {names[empty[0]]} of {rows.name}", test_share, "Use --grouping random.")
    steps = splits_of(samples, place, step, names, np.where(tested, "test", "train"))
    if test is not None and test.time is not None:
        for t, chosen in enumerate(np.array_split(time_order(test.time, test.ids, seed), len(names))):
            if len(chosen):
                steps[t] = replace(steps[t], splits={**steps[t].splits, "test": test.take(chosen)})
    if pretrain is not None:
        steps[0] = replace(steps[0], splits={**steps[0].splits, "train": join([pretrain, steps[0]["train"]])})
    facts = {"from": "order", "source": rows.name, "periods": len(names), "held_out": test_share}
    facts |= {"order": "natural", "seed": seed, "split": "published" if test else "grouped" if grouped else "random"}
    facts |= drawn(seed) | ({} if pretrain is None else {"pretrain": len(pretrain)})
    facts |= ({"period": period} if parts is None else {}) | left_out
    return Stream(f"{rows.name}-in-order", steps, list(rows.classes), facts=facts)


def timed_release(path: Path, features: str | None = None) -> Rows:
    """All labelled images of a release by upload time; features: as of `from_release`. Raises BadConfig."""
    release = Release.open(path)
    return Rows(release.name, release_samples(release, features), release.classes)


def timed_hdf5(
    folder: Path, features: Path | None = None, root: Path | None = None, size: int = 64
) -> tuple[Rows, Split, Split | None]:
    """The published order of CGLM or CLOC: `train_labels.hdf5` and `train_image_paths.hdf5`, the same for test, and for
    pretrain if there are samples of it: positions are their times.

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
            inside = ([part for part in Path(p).parts if part not in ("/", "..", ".")] for p in paths)
            x = from_files([root.joinpath(*parts_of) for parts_of in inside], size, folder)
        else:
            raise BadConfig(f"{folder} has an order, but no samples.", "Expected --features or --root.")
        time = np.arange(len(labels)) - (len(labels) if part == "pretrain" else 0)
        parts[part] = Split(x, labels, np.array(paths, np.str_), time)
    n_classes = number_of_classes([split.y for split in parts.values()], folder)
    rows = Rows(folder.name, parts["train"], [str(c) for c in range(n_classes)])
    return rows, parts["test"], parts.get("pretrain")


def _read_hdf5(path: Path) -> Array:
    import h5py

    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected EvalOCL's order files.")
    try:
        with h5py.File(path, "r") as file:
            if KEY not in file:
                raise BadInput(f"{path} contains {sorted(file)}.", f"Expected the dataset {KEY}.")
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


TEXTS = ("label", "id", "path", "group", "user")  # columns whose cells stay as they are written


def from_table(
    source: Any,
    *,
    time: str | None = None,
    label: str | None = None,
    x: str | Sequence[str] | None = None,
    id: str | None = None,
    path: str | None = None,
    group: str | None = None,
    label_time: str | None = None,
    features: str | Path | None = None,
    root: str | Path | None = None,
    size: int = 64,
    period: str | int = 10,
    test_share: float = 0.1,
    grouping: Literal["grouped", "random"] = "grouped",
    seed: int = 0,
) -> Stream:
    """Put the samples of a dated table in time order.

    Its columns are time, label and path, if no others are named; ids are the column id, else the row numbers; groups
    the column group or user. From Python also a data frame, or columns by name.

    source TABLE: CSV, JSON lines or Parquet; or a folder with the order files of CGLM or CLOC.
    features FILE: Vectors as samples: an .npy file (N, D); CGLM, CLOC: a folder with train.npy and test.npy.

    Raises MissingFile, and BadInput naming file, column and row.
    """
    columns: dict[str, Any] = {"time": time, "label": label, "x": x, "id": id, "path": path, "group": group}
    columns |= {"label_time": label_time}
    features, root = (None if place is None else Path(place) for place in (features, root))
    if isinstance(source, str | Path) and Path(source).is_dir():
        if named := [name.replace("_", "-") for name, column in columns.items() if column is not None]:
            raise BadConfig(f"--{named[0]} was given for the folder {source}.", "Expected it for tables only.")
        if not (Path(source) / "train_labels.hdf5").is_file():
            way_out = "Of a release: driftline stream from-release --period N."
            raise BadInput(f"{source} has no train_labels.hdf5.", "Expected a table, or order files.", way_out)
        rows, *further = timed_hdf5(Path(source), features, root, size)
        return in_time_order(rows, period, test_share, seed, grouping, *further)
    rows = timed_table(source, columns, features, root, size)
    name = str(source) if isinstance(source, str | Path) else "the table"
    return in_time_order(rows, period, test_share, seed, grouping, what=lambda row: f"{name}, row {row + 1}")


def timed_table(
    source: Any,
    columns: Mapping[str, Any] | None = None,
    features: Path | None = None,
    root: Path | None = None,
    size: int = 64,
) -> Rows:
    """The samples of a table, as `from_table` has them. columns: role → column, or columns of x."""
    what = str(source) if isinstance(source, str | Path) else "the table"
    asked = {role: column for role, column in (columns or {}).items() if column is not None}
    table = table_of(source, [asked.get(role, role) for role in TEXTS])
    if not len(table):
        raise BadInput(f"{what} has no rows.", "Expected one a sample.")
    of = Path(what)

    def column(role: str, *usual: str) -> str:
        own = str(asked[role]) if role in asked else None
        return column_of(table, of, own, (role, *usual), f"--{role.replace('_', '-')}")

    def texts(name: str) -> list[str]:
        return texts_of(table[name], row_of, name)

    def row_of(row: int) -> str:
        return f"{what}, row {row + 1}"

    def has(*roles: str) -> bool:
        return any(role in asked or role in table.column_names for role in roles)

    y, classes = labels_of(table[column("label")], column("label"))
    times = table[column("time")]
    time = times_of(times, row_of)
    late = label_times(table[column("label_time")], times, time, row_of) if has("label_time") else None
    if len({"x", "path"} & set(asked)) + (features is not None) > 1:
        raise BadConfig("More than one of --x, --features and --path was given.", "Expected one of them.")
    if "x" in asked:
        wanted = asked["x"].split(",") if isinstance(asked["x"], str) else list(asked["x"])
        x: Any = samples_of(table, [column_of(table, of, str(name).strip(), (), "--x") for name in wanted], row_of)
        check(x, np.maximum(y, 0), max(1, len(classes)), what)
    elif features is not None:
        x = open_array(features, "fu", (None, -1), "Check --features.")
        if len(x) != len(table):
            raise BadInput(f"{features} has {len(x)} rows, {what} has {len(table)}.", "Expected the same number.")
    elif has("path"):
        x = from_files([(root or of.parent) / file for file in texts(column("path"))], size, of)
    else:
        raise BadInput(f"{what} has no column path.", "Expected one, --x COLUMN or --features FILE.npy.")
    name = column("group", "user") if has("group", "user") else None
    names, said = (None, "") if name is None else groups_of(table[name], name)
    group = None if names is None else numbered(names)
    ids = np.array(texts(column("id")) if has("id") else range(len(y)), np.str_)
    if has("id"):
        check_ids(ids, what, row_of)
    samples = Split(x, y, ids, time, group, label_time=late)
    return Rows(of.stem if isinstance(source, str | Path) else "table", samples, classes, check=said)


def samples_of(table: pa.Table, columns: Sequence[str], row_of: Any) -> Any:
    """(N,) texts of one column, or (N, D) float32 of columns with numbers or with lists of numbers."""
    if len(columns) == 1 and table[columns[0]].type in (pa.string(), pa.large_string()):
        return np.array(filled(table[columns[0]], row_of, columns[0]).to_pylist(), np.str_)
    parts = []
    for name in columns:
        column = table[name]
        if column.type in cells.TEXTS:
            if (row := pc.index(pc.match_substring(column, ","), True).as_py()) >= 0:
                problem = f"{row_of(row)}: {name} is {column[row].as_py()!r}."
                raise BadInput(problem, "Expected a number with a point, or none.")
            column = cells.number(column, name)
        try:
            part = np.array(column.to_numpy() if pa.types.is_floating(column.type) else column.to_pylist(), np.float32)
        except (TypeError, ValueError) as error:
            problem = f"The column {name} has no numbers, or lists of several lengths ({reason(error)})."
            raise BadInput(problem, "Expected numbers, or lists of equal length.") from None
        parts.append(part.reshape(len(part), -1))
    return np.concatenate(parts, 1)
