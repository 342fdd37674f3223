"""Tables whose columns the user names: columns of Arrow → records of the column contract, or a fault in their place."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.foreign import cells, time_cells
from driftline.curate.foreign.cells import NO_LABEL, NOTHING
from driftline.curate.foreign.delimited import Fault
from driftline.curate.foreign.names import RESERVED, in_either_form
from driftline.curate.foreign.time_cells import NO_TIME, UNREADABLE, TimeColumn, Times
from driftline.curate.metadata import columns as contract
from driftline.curate.metadata.columns import DEGREES, FLICKR_LICENCES, ID, TimeUnit, id_of_address, printable, safe_id
from driftline.curate.metadata.schema import as_mask, records_with, whole

SURVEYED = ("uploaded", "until", "taken", "label", "licence", "id", "user", "title")
TIME_FAULTS = {"until": "bad_upload_time", "uploaded": "bad_upload_time", "taken": "bad_capture_time"}
TEXTS = ("label", "licence")  # of which names are counted
WHOLE = ("id", "user", "label")  # of which 1.0 is 1
NUMBERED = ("id", "user")  # of which none was rounded
LONGEST_TEXT = 1 << 16  # bytes of a cell
LONGEST_TITLE = 2000  # characters of a title or caption that are kept
SHOWN = 10  # notes
USUAL = r'^[!"$->A-~]*[/.][!"$->A-~]*$'  # of ASCII, without a query, a fragment, or a user: nothing in it is secret


@dataclass(frozen=True)
class Reading:
    """How the columns of a whole table are read."""

    times: Mapping[str, Times] = field(default_factory=dict)
    """uploaded, until, taken → of all rows"""
    notes: tuple[str, ...] = ()
    """sentences for people"""
    licence_names: str | None = None
    """flickr: licences are numbers of Flickr's"""


def survey(
    tables: Iterable[pa.Table], columns: Mapping[str, str], unit: str, name: str, licence_names: str | None = None,
    time_format: str | None = None,
) -> Reading:  # fmt: skip
    """Look at times, labels and ids over all parts of a table. columns: column of the collection → of the table.
    unit, time_format: of times, as `TableSource` has them. name: of the table, in messages. Raises BadInput for numbers
    that are no plausible times, as `TimeColumn.whole` for times that cannot be read, and for ids and users that
    a spreadsheet rounded."""
    counts, nothing = {role: Counter[str]() for role in TEXTS}, cells.Nothing()
    way_out = f"Set collection.time_format, or time_unit to one of {', '.join(get_args(TimeUnit)[1:])}."
    times = {role: TimeColumn(f"{name}: {role}", unit, way_out, time_format) for role in TIME_FAULTS if role in columns}
    row = 1
    for table in tables:
        for role, column in times.items():
            column.add(_readable(table[columns[role]]))
        for role in (role for role in SURVEYED if role in columns and role not in times):
            column = _readable(table[columns[role]])
            texts = cells.ids(column, f"{name}: {role}", row) if role in NUMBERED else _text(column, role)
            if role in TEXTS:
                counted = pc.value_counts(texts).to_pylist()
                counts[role].update({c["values"]: c["counts"] for c in counted if c["values"] is not None})
            if texts.null_count > column.null_count:
                nothing.add(role, column, texts)
        row += len(table)
    read = {role: column.whole() for role, column in times.items()}
    notes = [note.removeprefix(f"{name}: ") for _, said in read.values() for note in said]
    notes += nothing.said()
    licences = Counter({text: n for text, n in counts["licence"].items() if text.isdecimal()})
    if licences and licence_names is None:
        way_out = "if they are Flickr's, set collection.licence_names: flickr; else write names"
        notes.append(f"licence is a number in {licences.total():,} rows, such as {min(licences)}: {way_out}.")
    notes += cells.alike({label: f"{photos:,} photos" for label, photos in counts["label"].items()})
    return Reading({role: all_rows for role, (all_rows, _) in read.items()}, tuple(notes[:SHOWN]), licence_names)


def records_of(
    table: pa.Table, columns: Mapping[str, str], first: int, root: Path, reading: Reading | None = None,
    faults: Mapping[int, Fault] | None = None, image: Callable[[int], tuple[str, str]] | None = None,
) -> pa.RecordBatch:  # fmt: skip
    """A batch of records, with `fault` and `raw` in place of a row that cannot be read.

    table: N rows of a file. columns: column of the collection → of the table. first: number of the first row. root:
    paths are relative to it and stay below it. reading: of the whole table, by `survey`. faults: row → what is in its
    place, of rows that hold nothing else. image: row → id and path of an image inside the table.

    A year, month or day is one until its last second. The id defaults to path or url. Tags are a list, or text with
    commas. Raises BadInput for columns of records, and of lists of several.
    """
    faults = faults or {}
    size, bad = len(table), {row: fault.reason for row, fault in faults.items()}

    def fault(rows: Any, why: str) -> None:
        """rows: mask (N,), or numbers of rows."""
        if isinstance(rows, pa.ChunkedArray | pa.Array):
            rows = np.flatnonzero(as_mask(rows))
        for row in rows:
            bad.setdefault(int(row), why)

    out: dict[str, Any] = {"row": pa.array(np.arange(first, first + size)), "media": pa.repeat("photo", size)}
    for name, column in columns.items():
        fault(cells.not_utf8(table[column]), "not_utf8")
        values = _readable(table[column])
        if name in TIME_FAULTS:
            out[name] = (
                reading.times[name].slice(first, size) if reading else time_cells.parsed(values, name).dated("s")
            )
        elif name in DEGREES:
            out[name], wrong = cells.numbers(values, name)
            fault(wrong, "bad_coordinate")
            fault(pc.greater(pc.abs(out[name]), DEGREES[name]), "bad_coordinate")
        elif name == "tags":
            out[name] = _tags(values)
        else:
            out[name] = _text(values, name)
            fault(pc.greater(pc.binary_length(out[name]), LONGEST_TEXT), "text_too_long")
    if "licence" in out and reading and reading.licence_names:
        numbered = {str(number): names for number, names in enumerate(FLICKR_LICENCES)}
        pairs = [numbered.get((text or "").removesuffix(".0"), (text, None)) for text in out["licence"].to_pylist()]
        out |= dict(zip(("licence", "licence_url"), map(list, zip(*pairs, strict=True)), strict=True))
    named = out["id"] if "id" in columns else out.get("path")
    if "path" in columns:
        paths = [
            None if path is None else str(in_either_form(root, path).resolve()) for path in out["path"].to_pylist()
        ]
        inside = str(root).rstrip("/") + "/"
        out["path"] = pa.array(paths, pa.string())
        fault(pc.invert(pc.starts_with(out["path"], inside)), "path_outside_root")
    if image is not None:
        images = [image(i) for i in range(size)]
        out["path"] = [path for _, path in images]
        named = named if "id" in columns else pa.array([name for name, _ in images], pa.string())
    _set_times(out, fault)
    out["id"] = _ids(pa.nulls(size, pa.string()) if named is None else whole(named), out.get("url"))
    fault(pc.is_null(out["id"]), "bad_id")
    shown = {row: fault.raw for row, fault in faults.items()}
    for i in bad.keys() - shown.keys():
        shown[i] = str({name: cells.shown(table[name][i]) for name in columns.values()})
    return records_with(out, {i: (why, printable(shown[i])) for i, why in bad.items()}, size)


def _tags(column: pa.ChunkedArray) -> pa.Array:
    """(N,) comma lists, each tag plus-encoded. column: lists, or texts with commas."""
    listed = pa.types.is_list(column.type)
    lists = whole(column.cast(pa.list_(pa.string())) if listed else pc.split_pattern(cells.text(column, "tags"), ","))
    tags, row = pc.utf8_trim_whitespace(pc.list_flatten(lists)), pc.list_parent_indices(lists)
    there = pc.fill_null(pc.not_equal(tags, ""), False)
    tags, row = tags.filter(there), row.filter(there).to_numpy()
    odd = pc.invert(pc.match_substring_regex(tags, r"^[A-Za-z0-9_.~-]*$"))
    coded = tags.filter(odd).dictionary_encode()
    encoded = pa.array(map(quote_plus, coded.dictionary.to_pylist()), pa.string())
    tags = pc.replace_with_mask(tags, odd, encoded.take(coded.indices))
    ends = np.cumsum(np.bincount(row, minlength=len(lists)))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), tags), ",")
    return pc.if_else(lists.is_valid(), joined, None)


def _ids(named: pa.Array, urls: pa.ChunkedArray | None) -> pa.Array:
    """(N,) ids of names, else of addresses; null: there is neither."""
    plain = pc.and_(pc.match_substring_regex(named, f"^({ID.pattern})$"),
                    pc.invert(pc.match_substring_regex(named, f"(?i)^({RESERVED.pattern})$")))  # fmt: skip
    odd = pc.invert(pc.fill_null(plain, False))
    names = named.filter(odd)
    addresses = pa.nulls(len(names), pa.string()) if urls is None else pc.array_filter(whole(urls), odd)
    texts = pc.coalesce(names, addresses)
    slugs = pc.ascii_trim(pc.replace_substring_regex(texts, contract.NOT_IN_IDS, "-"), "-")
    usual, parts = pc.match_substring_regex(texts, USUAL), pc.utf8_slice_codeunits(slugs, 0, contract.SLUG)
    columns = [column.to_pylist() for column in (names, addresses, texts, parts, usual)]
    ids = [
        contract.hashed(part, text) if is_usual  # `safe_id`, whose readable part was made for the whole column
        else safe_id(name) if name else id_of_address(url) if url else None
        for name, url, text, part, is_usual in zip(*columns, strict=True)
    ]  # fmt: skip
    return pc.replace_with_mask(named, odd, pa.array(ids, pa.string()))


def _set_times(out: dict[str, Any], fault: Callable[[Any, str], None]) -> None:
    """Times as columns of seconds; `until` is set where `uploaded` is no moment."""
    uploaded, until = out["uploaded"], out.pop("until", None)
    for name, times in (("until", until), ("uploaded", uploaded), ("taken", out.get("taken"))):
        if times is not None:
            fault(np.flatnonzero(times.form == UNREADABLE), TIME_FAULTS[name])
            out[name] = pa.array(times.value, mask=times.form >= NO_TIME)
    there, last = uploaded.form < NO_TIME, uploaded.last
    ends = there & (last > uploaded.value)
    if until is not None:
        stated = until.form < NO_TIME
        fault(np.flatnonzero(there & stated & (until.last < uploaded.value)), TIME_FAULTS["until"])
        last, ends = np.where(stated, until.last, last), stated | ends
    out["until"] = pa.array(last, mask=~ends)


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without what is not UTF-8."""
    if not (broken := cells.not_utf8(column)):
        return column
    texts = enumerate(column.cast(pa.large_binary()).to_pylist())
    return pa.chunked_array(
        [[None if cell is None or i in broken else cell.decode() for i, cell in texts]], pa.string()
    )


def _text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if name in ("title", "caption") and pa.types.is_list(column.type):  # of several, the first
        column = pc.list_element(pc.if_else(pc.greater(pc.list_value_length(column), 0), column, None), 0)
    words = (*NOTHING, *NO_LABEL) if name == "label" else NOTHING
    column = pc.replace_substring(cells.text(column, name, words), "\x00", "\ufffd")
    if name in ("title", "caption") and (pc.max(pc.binary_length(column)).as_py() or 0) > LONGEST_TITLE:
        return pc.utf8_slice_codeunits(column, 0, LONGEST_TITLE)
    return cells.whole_numbers(column) if name in WHOLE else column
