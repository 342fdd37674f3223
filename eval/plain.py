"""Results as JSON has them."""

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def plain(value: Any, without: frozenset[str] = frozenset(), digits: int | None = None) -> Any:
    """Dataclasses as objects, arrays and tuples as lists, NaN and infinity as None. without: names of fields that are
    left out, at any depth. digits: decimals of numbers; None: all.

    >>> plain({"a": np.array([1.5, np.nan]), "b": (np.int64(2), float("inf"))})
    {'a': [1.5, None], 'b': [2, None]}
    """
    if isinstance(value, float):
        number = float(value) if digits is None else round(float(value), digits)
        return number if math.isfinite(number) else None
    if isinstance(value, np.ndarray):
        listed = value.tolist()
        return plain(listed, without, digits) if value.dtype.kind == "f" else listed
    if is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in fields(value) if field.name not in without)
        return {name: plain(getattr(value, name), without, digits) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(one, without, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, without, digits) for one in value]
    return value.item() if isinstance(value, np.generic) else value
