"""Changes of a file: of its bytes, or of what they mean (a value in JSON, a member of a zip, a column of a table)."""

import ast
import io
import json
import random
import re
import sqlite3
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NASTY = (
    b"\xff", b"\x00", b"{", b"[" * 3000, b"../", b"-1", b"null", b"1e999", b"9" * 40, b'"', b"NaN", b"\xed\xa0\x80",
    b"\r\n", b"\xef\xbb\xbf", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\xff\xff\xff\xff\x7f",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, 10**30, 0.5, 1e308, float("nan"), float("-inf"), "", "x" * 5000, "\ud800",
    "\x00", "../../x", "²", "1e9", "9999-12-31", "[" * 50, [], {}, [[]], [None], {"": None}, {"a": {"b": []}}, ["a", 1],
)  # fmt: skip
CELLS: tuple[Any, ...] = (
    -1, 2**31, 2**62, b"", b"x", b"\xff" * 32, "../x", "../../x", "a/../../x", "/", "0" * 64, f"{'0' * 64}.tar",
    "[" * 3000, '{"a": 1}', '{"items": {"i1": 7}, "batch": "b1", "concepts": []}', "[7]", "{}", "a\x00b",
)  # fmt: skip
COLUMNS = (
    pa.int8(), pa.int64(), pa.float16(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.bool_(),
    pa.list_(pa.string()), pa.struct([("bytes", pa.binary())]), pa.timestamp("ns", "Nowhere/City"), pa.date32(),
    pa.decimal128(38, 2), pa.null(), pa.dictionary(pa.int8(), pa.string()), pa.time64("ns"), pa.duration("s"),
)  # fmt: skip


def mutate(data: bytes, name: str, rng: random.Random) -> bytes:
    """One to three changes. name: of the file; its ending says what is in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        meaning = _meaning(data, name)
        if meaning is not None and rng.random() < 0.5:
            try:
                data = meaning(data, rng)
                continue
            except Exception:  # it is damaged already, or the change cannot be written
                pass
        data = _bytes(data, rng)
    return data


def _meaning(data: bytes, name: str) -> Callable[[bytes, random.Random], bytes] | None:
    if data[:4] == b"PK\x03\x04":
        return _member
    if data[:15] == b"SQLite format 3":
        return _database
    if data[:6] == b"\x93NUMPY":
        return _array
    if data[:4] == b"PAR1":
        return _column
    if name.endswith((".json", ".jsonl", ".ndjson")):
        return _json
    return _cell if name.endswith((".csv", ".tsv")) else _text


def _bytes(data: bytes, rng: random.Random) -> bytes:
    """A byte, a cut, a piece doubled, removed or moved, something nasty inside, a number replaced."""
    kind, at, length = rng.randrange(8), rng.randrange(len(data) or 1), rng.randrange(1, 40)
    if kind == 0:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at : at + length] + data[at:]
    if kind == 3:
        return data[:at] + data[at + length :]
    if kind == 4:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if data else b"\n"
    nasty = rng.choice(NASTY)
    if kind == 5:
        return data[:at] + nasty + data[at:]
    if kind == 6:
        return data[:at] + nasty + data[at + len(nasty) :]
    digits = [i for i in range(min(len(data), 5000)) if 48 <= data[i] < 58]
    place = rng.choice(digits) if digits else at
    return data[:place] + nasty + data[place + 1 :]


def _json(data: bytes, rng: random.Random) -> bytes:
    """Another value, another key, or none; of JSON lines, in one line."""
    lines = data.split(b"\n") if data.count(b"\n{") else [data]
    number = rng.randrange(len(lines))
    document = [json.loads(lines[number])]
    place: Any = document
    key: Any = 0
    while isinstance(place[key], dict | list) and place[key] and (place is document or rng.random() < 0.8):
        place = place[key]
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
    kind = rng.randrange(4)
    if kind == 0 and place is not document:
        del place[key]
    elif kind == 1 and isinstance(place, dict):
        place[str(rng.choice(VALUES))] = place.pop(key)
    elif kind == 2 and isinstance(place, list) and place is not document:
        place.append(place[key])
    else:
        place[key] = rng.choice(VALUES)
    lines[number] = json.dumps(document[0], indent=2 if len(lines) == 1 else None).encode() if document else b""
    return b"\n".join(lines)


def _member(data: bytes, rng: random.Random) -> bytes:
    """A zip in which one member is changed, missing or renamed, with the right checksum."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = [(info.filename, file.read(info)) for info in file.infolist()]
    place, sink = rng.randrange(len(members)), io.BytesIO()
    warnings.filterwarnings("ignore", "Duplicate name")
    name, content = members[place]
    kind = rng.randrange(6)
    if kind == 0:
        del members[place]
    elif kind == 1:
        members[place] = (rng.choice(("../x", "x.npy", "", "y.npy", name * 2)), content)
    else:
        members[place] = (name, mutate(content, name, rng))
    with zipfile.ZipFile(sink, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for name, content in members:
            file.writestr(name, content)
    return sink.getvalue()


def _database(data: bytes, rng: random.Random) -> bytes:
    """A SQLite file with another value, another table, a trigger or a view; its format stays."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        path = Path(place, "a.sqlite")
        path.write_bytes(data)
        with closing(sqlite3.connect(path, isolation_level=None)) as base:
            tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            filled = [name for name in tables if base.execute(f"SELECT 1 FROM {name}").fetchone()]
            table, kind = rng.choice(filled), rng.randrange(8)
            column = rng.choice([row[1] for row in base.execute(f"PRAGMA table_info({table})")])
            if kind == 0:
                base.execute(f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {rng.choice(filled)}; END")
            elif kind == 1:
                base.execute(f"ALTER TABLE {table} RENAME TO other")
                base.execute(f"CREATE VIEW {table} AS SELECT * FROM other")
            elif kind == 2:
                base.execute(f"ALTER TABLE {table} ADD COLUMN more")
            elif kind == 3:
                base.execute("PRAGMA writable_schema = ON")
                sql = "replace(replace(sql, ' NOT NULL', ''), ' UNIQUE', '')"
                base.execute(f"UPDATE sqlite_master SET sql = {sql} WHERE name = ?", (table,))
            else:
                base.execute("PRAGMA ignore_check_constraints = ON")
                value = rng.choice([*CELLS, *(v for v in VALUES if isinstance(v, str | float | None))])
                base.execute(f"UPDATE OR REPLACE {table} SET {column} = ?", (value,))
            base.execute("PRAGMA journal_mode = WAL" if rng.random() < 0.5 else "PRAGMA journal_mode = DELETE")
        return path.read_bytes()


def _array(data: bytes, rng: random.Random) -> bytes:
    """A .npy file whose header says something else of its data."""
    start = 10 if data[6] == 1 else 12
    (length,) = struct.unpack_from("<H" if data[6] == 1 else "<I", data, 8)
    head = ast.literal_eval(data[start : start + length].decode("latin-1"))
    if rng.random() < 0.5:
        head["shape"] = rng.choice(((), (10**15,), (0,), (-1,), (2**62, 4), (1,) * 40, head["shape"][::-1],
                                    (*head["shape"], 1), ("a",), (1.5,), (True,)))  # fmt: skip
    elif rng.random() < 0.8:
        head["descr"] = rng.choice(("<f8", ">f4", "|O", "<i8", "<u8", "|b1", "<U3", "|S7", "<c16", "<M8[ns]", "|V8",
                                    "<f2", "x", [("a", "<f4"), ("b", "|O")], 7, "<U2000000000"))  # fmt: skip
    else:
        head["fortran_order"] = rng.choice((True, 1, "a"))
    text = repr(head).encode("latin-1", "replace")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data[start + length :]


def _column(data: bytes, rng: random.Random) -> bytes:
    """A Parquet file in which a column has another type, other values or another name, or is missing."""
    table = pq.read_table(io.BytesIO(data))
    place, sink = rng.randrange(table.num_columns), io.BytesIO()
    name, kind = table.column_names[place], rng.randrange(6)
    if kind == 0:
        table = table.drop_columns([name])
    elif kind == 1:
        table = table.rename_columns([rng.choice(("x", "", name * 2)) if n == name else n for n in table.column_names])
    elif kind == 2:
        table = table.append_column(name, table[name])
    elif kind == 3:
        table = table.slice(rng.randrange(len(table) + 1), rng.choice((0, 1, len(table))))
    elif kind == 4:
        values = table[name].to_pylist()
        if values:
            values[rng.randrange(len(values))] = rng.choice(
                [None, *values, *(v for v in VALUES if type(v) in (int, str))]
            )
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    else:
        wanted = rng.choice(COLUMNS)
        try:
            column = table[name].cast(wanted)
        except (pa.ArrowException, ValueError):
            column = pa.nulls(len(table), wanted)
        table = table.set_column(place, name, column)
    pq.write_table(table, sink)
    return sink.getvalue()


def _cell(data: bytes, rng: random.Random) -> bytes:
    """A table of text with another cell."""
    parts = re.split(rb"([,\t\n])", data)
    place = rng.randrange(0, len(parts), 2)
    parts[place] = str(rng.choice(VALUES)).encode("utf-8", "surrogatepass")
    return b"".join(parts)


def _text(data: bytes, rng: random.Random) -> bytes:
    """Text with a line doubled, missing or with another value after its colon or tab."""
    lines = data.decode().split("\n")
    place, kind = rng.randrange(len(lines)), rng.randrange(4)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, lines[place])
    else:
        head, mark, _ = lines[place].rpartition(rng.choice((": ", "\t", " ", "=")))
        lines[place] = f"{head}{mark}{rng.choice(VALUES)}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")
