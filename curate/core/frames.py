"""Data frames of pandas or another library, rows, and columns by name → Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadInput

if TYPE_CHECKING:  # arrays need none
    import pyarrow as pa


def arrow_of(source: Any) -> pa.Table:
    """A data frame of pandas or another library, rows, or columns by name, in Arrow's form. Raises BadInput."""
    import pyarrow as pa

    try:
        if isinstance(source, pa.Table):
            return source
        if isinstance(source, Mapping):
            return pa.table({str(name): moments_of(column) for name, column in source.items()})
        if isinstance(source, list):
            return pa.Table.from_pylist(source)
        if hasattr(source, "apply"):
            return pa.Table.from_pandas(source.apply(moments_of).rename(columns=str), preserve_index=False)
        return pa.table(source)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        expected = "Expected a file, a data frame, an Arrow table, rows, or columns by name."
        why = "; ".join(map(str, error.args))  # Arrow's has the value, then its column
        raise BadInput(f"{type(source).__name__} is no table ({why}).", expected) from None


def moments_of(column: Any) -> Any:
    """Periods of pandas as their first moment; other columns as they are."""
    return column.dt.to_timestamp() if str(getattr(column, "dtype", "")).startswith("period[") else column
