"""The one column contract: names, types, units, missing values.

Every source yields these columns; every stage reads them. Missing is null, never "" or 0.

| column | type | meaning |
|---|---|---|
| id | string | `[A-Za-z0-9_-]{1,90}`: safe as a file name, a CSV field and a WebDataset key |
| row | int64 | position in the source, from 0 (line number, order of the listing) |
| url | string | where the image can be fetched, http or https |
| path | string | a local image file, instead of a URL |
| uploaded | int64 | seconds since the epoch, UTC: the time that buckets are cut by; the first that it may be |
| until | int64 | the last second that the time may be; null: exactly `uploaded` |
| taken | int64 | seconds since the epoch as the camera's local clock showed it, no zone known |
| user, nickname, title, description, camera | string | as in the source, decoded |
| tags | string | comma list, each tag plus-encoded: a comma inside a tag is %2C |
| licence, licence_url, page_url | string | per image, for the attribution list |
| media | string | "photo" or "video" |
| longitude, latitude | float64 | degrees |
| label, caption | string | a label or caption that the source already knows (museum catalogues) |
| extra | string | a JSON object of what else the source knows (folder: where the date is from) |
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.metadata.columns import COLUMNS

TABLE = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])

# Columns with few different values: Parquet keeps each value once.
REPEATED = ("user", "nickname", "camera", "licence", "licence_url", "media", "label")

# The records of a source: the table, and in their place the rows that cannot be read, with their reason.
SOURCE = TABLE.append(pa.field("fault", pa.string())).append(pa.field("raw", pa.string()))

# A record that a stage dropped: its id, the reason, and the detail that a person needs to understand it.
REJECTS = pa.schema([("id", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])

# Years 2 to 9998, in seconds since the epoch, UTC. 0001-01-01 and 9999-12-31 stand for "no date" in databases.
TIMES = (-62_104_060_800, 253_370_764_800)


def batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = SOURCE) -> pa.RecordBatch:
    """Rows (missing keys are null) as one batch of `schema`."""
    return pa.RecordBatch.from_pydict({name: [row.get(name) for row in rows] for name in schema.names}, schema=schema)


def records_with(columns: Mapping[str, Any], faults: Mapping[int, tuple[str, str]], size: int) -> pa.RecordBatch:
    """N = size records of SOURCE by column (missing ones are null); of a row with a fault only its number stays, beside
    fault and raw text."""
    arrays = {}
    good = pa.array([i not in faults for i in range(size)]) if faults else None
    for name, kind in zip(SOURCE.names, SOURCE.types, strict=True):
        values = columns.get(name)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            values = whole(values).cast(kind)
        else:
            values = pa.nulls(size, kind) if values is None else pa.array(values, kind)
        arrays[name] = values if good is None or name == "row" else pc.if_else(good, values, None)
    for place, name in enumerate(("fault", "raw")):
        texts = [faults[i][place] if i in faults else None for i in range(size)] if faults else pa.nulls(size)
        arrays[name] = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=SOURCE)


def judge_times(table: pa.Table) -> pa.Table:
    """A table of SOURCE in which times outside TIMES are faults: placeholders of databases, or other units."""
    for column, fault in (("uploaded", "bad_upload_time"), ("taken", "bad_capture_time")):
        times = table[column]
        outside = pc.or_(pc.less(times, TIMES[0]), pc.greater_equal(times, TIMES[1]))
        bad = pc.and_(pc.is_null(table["fault"]), pc.fill_null(outside, False))
        if not pc.any(bad).as_py():  # as a rule
            continue
        text = pc.binary_join_element_wise(f"{column}:", times.cast(pa.string()), " ")
        for name, value in (("raw", text), ("fault", fault)):
            table = replaced(table, name, pc.if_else(bad, value, table[name]))
    return table


def replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The table with other values in one of its columns."""
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), values)


def rebatch(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same records, `rows` at a time (the last batch may have fewer), so that parts do not depend on the reader.

    If `batches` raises, the records before are yielded first.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    failure: Exception | None = None
    source = iter(batches)
    while True:
        try:
            batch = next(source, None)
        except Exception as error:
            batch, failure = None, error
        if batch is None:
            break
        waiting.append(batch)
        count += len(batch)
        while count >= rows:
            table = pa.Table.from_batches(waiting)
            yield one_batch(table.slice(0, rows))
            waiting = table.slice(rows).to_batches()
            count -= rows
    if count:
        yield one_batch(pa.Table.from_batches(waiting))
    if failure is not None:
        raise failure


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one record batch with its own memory."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def as_mask(values: pa.ChunkedArray | pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Booleans (N,); null counts as false."""
    return whole(pc.fill_null(values, False)).to_numpy(zero_copy_only=False).astype(bool)
