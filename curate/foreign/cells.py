"""Cells of strangers' tables, whole columns of Arrow at a time: what is nothing, a text, a number, a truth."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.names import one_form

Ints = npt.NDArray[np.int64]
NOTHING = ("", "nan", "null", "none", "na", "n/a", "#n/a", "\\n", "nil", "<na>", "nat", "-")  # in lower case
NO_LABEL = ("-1", "-100")  # numbers of classes that are no label [WILDS; ignore_index of torch]
TRUE, FALSE = ("true", "yes", "1", "1.0", "t", "y", "on"), ("false", "no", "0", "0.0", "f", "n", "off")
NUMBER = r"^[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?$"
TEXTS = (pa.string(), pa.large_string())
ROUNDED = r"^[+-]?\d([.,]\d+)?[Ee]\+\d{2,3}$"  # as spreadsheets write large numbers


def is_nothing(column: pa.ChunkedArray, words: Collection[str] = NOTHING) -> pa.ChunkedArray:
    """(N,) true for null, NaN, and texts of `words` in any case with blanks around them."""
    if pa.types.is_floating(column.type):
        return pc.fill_null(pc.is_nan(column.cast(pa.float64())), True)
    if column.type not in TEXTS:
        return column.is_null()
    return pa.chunked_array([pa.array(_is_word(pc.utf8_trim_whitespace(column), words))])


def _is_word(plain: pa.ChunkedArray, words: Collection[str]) -> npt.NDArray[np.bool_]:
    """(N,) true for null and the words. plain: texts without blanks around them; long ones are not looked at."""
    found = np.array(plain.is_null())
    short = np.flatnonzero(pc.fill_null(pc.less_equal(pc.binary_length(plain), max(map(len, words))), False))
    if len(short):
        found[short] = pc.is_in(pc.utf8_lower(plain.take(pa.array(short))), pa.array(list(words), plain.type))
    return found


def text(column: pa.ChunkedArray, name: str, words: Collection[str] = NOTHING, row: int = 1) -> pa.ChunkedArray:
    """(N,) texts as they are written, without blanks around them; whole floats without `.0`; nothing is null.

    name: of the column, in messages. words: texts that are nothing. row: number of the first row. Raises BadInput for
    records, lists of several, bytes that are not UTF-8, and floats too large to have all their digits.
    """
    column = flat(column, name, row)
    if pa.types.is_floating(column.type):
        _refuse_rounded(pc.and_(pc.greater_equal(pc.abs(column), 2.0**53), pc.is_finite(column)), column, name, row)
        whole = pc.and_(pc.equal(pc.floor(column), column), pc.is_finite(column))
        number = pc.if_else(whole, column, 0).cast(pa.int64()).cast(pa.string())
        column = pc.if_else(whole, number, pc.if_else(pc.is_nan(column), None, column).cast(pa.string()))
    elif column.type != pa.string():
        kind = column.type  # the zone of a time may be unknown here
        try:
            column = (column.cast(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) else column).cast(pa.string())
        except pa.ArrowNotImplementedError:
            raise BadInput(f"{name} holds values of the type {kind}.", "Expected text.") from None
        if pa.types.is_decimal(kind):
            column = pc.replace_substring_regex(column, r"\.0+$", "")
    return stated(column, words)


def stated(texts: Any, words: Collection[str] = NOTHING) -> Any:
    """(N,) texts without blanks around them; nothing is null."""
    texts = pc.utf8_trim_whitespace(texts)
    nothing = _is_word(texts, words)
    return pc.if_else(pa.array(nothing), None, texts) if nothing.sum() > texts.null_count else texts


class Nothing:
    """Cells of columns that state nothing by a word, a number or NaN: how many, and the first one."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, name: str, column: pa.ChunkedArray, texts: pa.ChunkedArray, times: Any = 1) -> None:
        """column, texts (N,): cells, and what they mean. times: how often each is there, () or (N,)."""
        column = flat(column, name)
        empty = is_nothing(column, ("",)) if column.type in TEXTS else column.is_null()
        stated = np.asarray(pc.and_(texts.is_null(), pc.invert(empty))) * times
        if n := int(stated.sum()):
            before, first = self._found.get(name, (0, str(shown(column[int((stated > 0).argmax())]))[:60]))
            self._found[name] = before + n, first

    def said(self) -> list[str]:
        """A sentence for each column that has some."""
        return [f"{name} is nothing in {n:,} rows, such as {w!r}." for name, (n, w) in self._found.items()]


def whole_numbers(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """(N,) texts of ids or classes: `1.0`, as tables with empty cells write it, is 1."""
    some = pc.any(pc.ends_with(cells, ".0")).as_py()
    return pc.replace_substring_regex(cells, r"^([+-]?\d+)\.0$", r"\1") if some else cells


def ids(column: pa.ChunkedArray, name: str, row: int = 1) -> pa.ChunkedArray:
    """(N,) ids as `text` and `whole_numbers`. Raises as `text`, and BadInput for those that a spreadsheet rounded."""
    cells = text(column, name, row=row)
    if pc.any(pc.match_substring(cells, "+")).as_py():
        _refuse_rounded(pc.match_substring_regex(cells, ROUNDED), cells, name, row)
    return whole_numbers(cells)


def _refuse_rounded(rounded: pa.ChunkedArray, column: pa.ChunkedArray, name: str, row: int) -> None:
    if (place := pc.index(pc.fill_null(rounded, False), True).as_py()) >= 0:
        raise BadInput(
            f"{name} is {column[place]} in row {row + place:,}: a spreadsheet or float column rounded it.",
            "Expected all digits, since several values may have been rounded to the same one.",
            "Export the table again with this column as text, or choose another column.",
        )


def number(column: pa.ChunkedArray, name: str, row: int = 1) -> pa.ChunkedArray:
    """(N,) floats, with a point or a comma; nothing is null. Raises BadInput naming the first row with another text."""
    values, bad = numbers(column, name, row)
    for place in bad.tolist():
        raise BadInput(f"{name} is {shown(column[place])!r} in row {row + place:,}.", "Expected a number.")
    return values


def numbers(column: pa.ChunkedArray, name: str, row: int = 1) -> tuple[pa.ChunkedArray, Ints]:
    """As `number`, and the places of texts that are no numbers, which are null."""
    column, bad = flat(column, name, row), np.zeros(0, np.int64)
    if column.type == pa.string():
        column = text(column, name, row=row)
        good = pc.match_substring_regex(column, NUMBER)
        bad = np.flatnonzero(np.asarray(pc.invert(pc.fill_null(good, True))))
        column = pc.replace_substring(pc.if_else(good, column, None), ",", ".")
    elif not (pa.types.is_boolean(column.type) or is_number(column.type)):
        column, bad = pa.chunked_array([pa.nulls(len(column))]), np.flatnonzero(np.asarray(column.is_valid()))
    column = column.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_nan(column), None, column), bad


def truth(text: str) -> bool:
    """Of one cell; nothing is false. Raises ValueError for another word."""
    word = text.strip().casefold()
    if word not in (*TRUE, *FALSE, *NOTHING):
        raise ValueError(f"{text!r} is neither yes nor no")
    return word in TRUE


def alike(counts: Mapping[str, str]) -> list[str]:
    """A sentence for each group of names of classes that differ in form only: case, blanks, zeros before or `.0` behind
    a number, true for 1. counts: name → how often it is there, in words."""
    groups: dict[str, list[str]] = {}
    for name in sorted(counts):
        digits = re.fullmatch(r"0*(\d+)(?:\.0*)?", name)
        key = digits[1] if digits else " ".join(one_form(name).casefold().split())
        groups.setdefault({"true": "1", "false": "0"}.get(key, key), []).append(f"`{name}` ({counts[name]})")
    return [f"{', '.join(group)} are different classes." for group in groups.values() if len(group) > 1]


def shown(cell: pa.Scalar) -> Any:
    """A cell for a message; its bytes that are not UTF-8 are surrogate escapes."""
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        return cell.as_buffer().to_pybytes().decode("utf-8", "surrogateescape")
    except Exception:  # Arrow raises many kinds for values that Python has not, pytz another
        return f"unreadable {cell.type}"


def is_number(kind: pa.DataType) -> bool:
    """Whether a type holds numbers; true and false are none."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def flat(column: pa.ChunkedArray, name: str, row: int = 1) -> pa.ChunkedArray:
    """The column without dictionaries and lists of one, and bytes as text. Raises as `text`."""
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([c.dictionary_decode() for c in column.chunks], column.type.value_type)
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return pa.chunked_array([[cell and str(cell) for cell in column.to_pylist()]], pa.string())
        column, kind = column.cast(kind.storage_type), kind.storage_type
    if pa.types.is_fixed_size_binary(kind):
        column, kind = column.cast(pa.binary()), pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if (most := pc.max(sizes := pc.list_value_length(column)).as_py() or 0) > 1:
            first = row + pc.index(pc.fill_null(pc.greater(sizes, 1), False), True).as_py()
            problem = f"{name} holds lists, of up to {most}, the first in row {first:,}."
            raise BadInput(problem, "Expected one value a row.")
        filled = pc.if_else(pc.equal(pc.list_value_length(column), 1), column, None)
        return flat(pc.list_element(pc.fill_null(filled, pa.scalar([None], kind)), 0), name, row)
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_nested(kind):
        raise BadInput(f"{name} holds records ({kind}).", "Expected one value a row.")
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if not (kind in TEXTS or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return column
    if bad := not_utf8(column):
        raise BadInput(f"{name} is not UTF-8 in row {row + bad[0]:,}.", "Expected text.")
    return column.cast(pa.string())


def not_utf8(column: pa.ChunkedArray) -> list[int]:
    """Places of texts or bytes that are not UTF-8; of other columns none."""
    if not (column.type in TEXTS or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return []
    try:
        (column if column.type in TEXTS else column.cast(pa.large_string())).validate(full=True)
    except pa.ArrowInvalid:
        cells = enumerate(column.cast(pa.large_binary()).to_pylist())
        return [i for i, cell in cells if cell and cell.decode("utf-8", "replace").encode() != cell]
    return []
