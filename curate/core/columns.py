"""Columns of Arrow tables: schemas as text, and the rows of some columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def schema(columns: str) -> pa.Schema:
    """The schema of `name type, name type, …`; the types are pyarrow's names, `[type]` is a list.

    >>> schema("id string, labels [string]").types
    [DataType(string), ListType(list<item: string>)]
    """
    fields = []
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        item = pa.type_for_alias(kind.strip("[]"))
        fields.append((name, pa.list_(item) if kind.startswith("[") else item))
    return pa.schema(fields)


def rows_of(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """The rows of some columns of a table, as tuples.

    >>> list(rows_of(pa.table({"id": ["7", "8"], "bucket": [0, 1]}), "bucket", "id"))
    [(0, '7'), (1, '8')]
    """
    return zip(*(table[name].to_pylist() for name in names), strict=True)
