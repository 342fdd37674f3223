"""A table of dated samples, in a file or in memory → a stream in time order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from driftline.curate.core.errors import BadConfig, BadInput, reason
from driftline.curate.foreign.arrays import open_array
from driftline.stream_builder.builders.time_order import in_time_order, timed_hdf5
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
from driftline.stream_builder.rows import Rows, check_ids, labelled
from driftline.stream_builder.splitting import numbered
from driftline.stream_builder.step import check
from driftline.stream_builder.stream import Split, Stream

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
    order: Literal["natural", "balanced"] = "natural",
    grouping: Literal["grouped", "random"] = "grouped",
    seed: int = 0,
) -> Stream:
    """Put the samples of a dated table in time order.

    Its columns are time, label and path, if no others are named; ids are the column id, else the row numbers; groups
    the column group or user. From Python also a data frame, or columns by name.

    source TABLE: CSV or Parquet; or a folder with the order files of CGLM or CLOC.
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
        return in_time_order(rows, period, test_share, order, seed, grouping, *further)
    rows = timed_table(source, columns, features, root, size)
    return in_time_order(rows, period, test_share, order, seed, grouping)


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
        return f"{what}, row {row}"

    def has(*roles: str) -> bool:
        return any(role in asked or role in table.column_names for role in roles)

    y, classes = labelled(labels_of(table[column("label")], row_of, column("label")))
    times = table[column("time")]
    time = times_of(times, row_of)
    late = label_times(table[column("label_time")], times, time, row_of) if has("label_time") else None
    if len({"x", "path"} & set(asked)) + (features is not None) > 1:
        raise BadConfig("More than one of --x, --features and --path was given.", "Expected one of them.")
    if "x" in asked:
        wanted = asked["x"].split(",") if isinstance(asked["x"], str) else list(asked["x"])
        x: Any = samples_of(table, [column_of(table, of, str(name).strip(), (), "--x") for name in wanted], row_of)
        check(x, y, len(classes), what)
    elif features is not None:
        x = open_array(features, "fu", (None, -1), "Check --features.")
        if len(x) != len(table):
            raise BadInput(f"{features} has {len(x)} rows, {what} has {len(table)}.", "Expected the same number.")
    elif has("path"):
        x = from_files([(root or of.parent) / file for file in texts(column("path"))], size, of)
    else:
        raise BadInput(f"{what} has no column path.", "Expected one, --x COLUMN or --features FILE.npy.")
    name = column("group", "user") if has("group", "user") else None
    group = None if name is None else numbered(groups_of(table[name], name))
    ids = np.array(texts(column("id")) if has("id") else range(len(y)), np.str_)
    if has("id"):
        check_ids(ids, what, row_of)
    samples = Split(x, y, ids, time, group, label_time=late)
    return Rows(of.stem if isinstance(source, str | Path) else "table", samples, classes)


def samples_of(table: pa.Table, columns: Sequence[str], row_of: Any) -> Any:
    """(N,) texts of one column, or (N, D) float32 of columns with numbers or with lists of numbers."""
    if len(columns) == 1 and table[columns[0]].type in (pa.string(), pa.large_string()):
        return np.array(filled(table[columns[0]], row_of, columns[0]).to_pylist(), np.str_)
    parts = []
    for name in columns:
        try:
            plain = pa.types.is_floating(table[name].type)
            part = np.array(table[name].to_numpy() if plain else table[name].to_pylist(), np.float32)
        except (TypeError, ValueError) as error:
            problem = f"The column {name} has no numbers, or lists of several lengths ({reason(error)})."
            raise BadInput(problem, "Expected numbers, or lists of equal length.") from None
        parts.append(part.reshape(len(part), -1))
    return np.concatenate(parts, 1)
