"""A data frame of photos → the collection of a new run: a table beside its settings, for the source `parquet`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadInput
from driftline.curate.core.settings import resolve_path
from driftline.curate.metadata.column_mapping import records_of, survey
from driftline.curate.metadata.columns import COLUMNS, NOT_FROM_TABLE, check_names
from driftline.pipelines.config import presets
from driftline.pipelines.config.loader import check
from driftline.stream_builder.importers.dated import table_of

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "photos.parquet"
WHAT = "the table of photos"
EXPECTED = {
    "bad_id": "Expected a path or an address.",
    "bad_upload_time": "Expected a date.",
    "path_outside_root": "Expected a path below collection.root.",
}


def collection_of(folder: Path, photos: Any, preset: str, changes: Sequence[str]) -> tuple[dict[str, Any], pa.Table]:
    """The settings of a collection that is a data frame, by dotted key, and its table, which belongs into folder/NAME.

    folder: of the run. changes: `KEY=VALUE` of the user. Columns of the frame that are called as those of the
    collection have its meaning; without `uploaded`, `taken` is it, too. Without `collection.root`, paths start from the
    working directory; if one leads out of it, all become absolute.

    Raises BadConfig for a setting; BadInput for columns, and for the first row without a date, a file or an address.
    """
    if not hasattr(photos, "assign"):
        way_out = "Of a file or folder: settings={'collection.path': …}."
        raise BadInput(f"photos is {type(photos).__name__}.", "Expected a data frame.", way_out)
    columns = {name: name for name in map(str, photos.columns) if name in COLUMNS and name not in NOT_FROM_TABLE}
    if "uploaded" not in columns and "taken" in columns:
        columns["uploaded"] = "taken"
    changes = [f"collection.columns={json.dumps(columns)}", *changes, "collection.source=parquet"]
    whole = check(presets.values(preset), f"preset {preset}", [*changes, f"collection.path={NAME}"], folder=folder)
    source: Any = whole.collection
    check_names(WHAT, list(map(str, photos.columns)), source.columns)
    if not len(photos):
        raise BadInput(f"{WHAT} has no rows.", "Expected one a photo.")
    frame = photos.rename(columns=str)[sorted(set(source.columns.values()))]
    root = source.root
    if (path := source.columns.get("path")) is not None:
        cells: Sequence[Any] = [str(cell) if isinstance(cell, os.PathLike) else cell for cell in frame[path]]
        cells, root = (cells, root) if root else _placed(cells, folder)
        frame = frame.assign(**{path: cells})
    table = table_of(frame)
    _check_rows(table, source, root or "", folder)
    own = {"source": "parquet", "path": NAME, "columns": dict(source.columns), "root": root}
    return {f"collection.{key}": value for key, value in own.items()}, table


def _placed(cells: Sequence[Any], folder: Path) -> tuple[Sequence[Any], str]:
    """Paths as a run in `folder` reads them, and the root that they start from."""
    here = os.getcwd()
    folders = {os.path.dirname(os.path.abspath(cell)) for cell in cells if isinstance(cell, str)}
    if os.path.commonpath([here, *folders]) == here:
        return cells, os.path.relpath(here, folder.resolve())
    return [os.path.abspath(cell) if isinstance(cell, str) else cell for cell in cells], os.path.commonpath(folders)


def _check_rows(table: pa.Table, source: Any, root: str, folder: Path) -> None:
    """Raise BadInput for the first row of which a run could not read the date, the file or the address."""
    plain = {name: column for name, column in source.columns.items() if name != "image"}
    below = (folder / os.path.expanduser(root)).resolve()  # the folder of the run need not exist yet
    below = below if below.is_dir() else resolve_path(root, folder).resolve()
    reading = survey([table], plain, source.time_unit, WHAT, source.licence_names, source.time_format)
    image = (lambda row: (str(row), "")) if "image" in source.columns else None  # their ids are numbers of rows
    for record in records_of(table, plain, 0, below, reading, image=image).to_pylist():
        where = f"{WHAT}, row {record['row']}"
        if record["fault"] is not None:
            raise BadInput(f"{where}: {record['fault']}: {record['raw']}.", EXPECTED.get(record["fault"], ""))
        if record["uploaded"] is None:
            way_out = f"Leave such rows out: photos.dropna(subset=[{plain['uploaded']!r}])."
            raise BadInput(f"{where} has no date.", "Expected one in each row.", way_out)
        if record["path"] and not Path(record["path"]).is_file():
            raise BadInput(f"{where}: there is no file {record['path']}.", f"Expected paths from {below}.")
