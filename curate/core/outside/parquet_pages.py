"""What the columns of a Parquet file become in memory, by the headers of their pages [parquet-format, parquet.thrift].

The sizes in the footer may be wrong: Arrow does not compare them with the pages. It does what a page's header says.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Read = Callable[[int, int], bytes]
FIRST = 512  # bytes of a page that are read for its header at first
LARGEST = 16 << 20  # bytes of a header, and of a dictionary whose lengths are looked for all at once
ITEMS = 1_000_000  # of a list in a header, as in Arrow
DEPTH = 32  # of structures in each other
CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
DICTIONARY = {2, 8}  # PLAIN_DICTIONARY, RLE_DICTIONARY
AS_THEY_ARE = {0, 6}  # PLAIN, DELTA_LENGTH_BYTE_ARRAY: a value is in the page as it is
INT = rb"\x15[\x80-\xff]{0,4}[\0-\x7f]"  # the next field of a structure
READ = rb"\x15([\x80-\xff]{0,4}[\0-\x7f])"
USUAL = re.compile(rb"\x15\0%b%b(?:\x2c|%b\x1c)%b%b%b%b" % (READ, READ, INT, READ, READ, INT, INT))
"""a data page of version 1, with or without a checksum, up to its statistics"""
BOOLEANS = {*range(0x11, 256, 16), *range(0x12, 256, 16)}  # first bytes of fields
LONGS = {*range(0x16, 256, 16)}
BYTES = {*range(0x18, 256, 16)}


def _structure(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A structure of Thrift's compact protocol as {number of the field: value}, and where it ends."""
    if depth > DEPTH:
        raise ValueError("structures in structures in a header")
    fields: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _integer(data, at)
        kind = head & 15
        if kind in (1, 2):
            fields[field] = kind == 1
        elif kind in (4, 5, 6) and data[at] < 128:  # most of all fields, without a call
            fields[field] = (data[at] >> 1) ^ -(data[at] & 1)
            at += 1
        else:
            fields[field], at = _value(data, at, kind, depth)
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while (byte := data[at]) > 127:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return number | byte << shift, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


@lru_cache(1000)
def _number(varint: bytes) -> int:
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 127
    return (number >> 1) ^ -(number & 1)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind in (1, 2, 3):
        return data[at], at + 1
    if kind in (7, 8):
        length, at = (8, at) if kind == 7 else _varint(data, at)
        if at + length > len(data):
            raise IndexError("a text beyond the end of a header")
        return data[at : at + length], at + length
    if kind in (9, 10):
        head, at = data[at], at + 1
        length, at = _varint(data, at) if head >> 4 == 15 else (head >> 4, at)
        if length > ITEMS:
            raise ValueError(f"a list of {length:,} in a header")
        items = []
        for _ in range(length):
            item, at = _value(data, at, head & 15, depth)
            items.append(item)
        return items, at
    if kind == 12:
        return _structure(data, at, depth + 1)
    raise ValueError(f"the type {kind} in a header")


class Page(NamedTuple):
    """One page's header."""

    values: int
    encoding: int
    size: int
    """bytes, uncompressed"""
    longest: int
    """bytes of the longest value, for a page of texts"""


class Chunk(NamedTuple):
    """Where a column of a row group is."""

    start: int
    size: int
    codec: int


def chunks(read: Read, size: int) -> list[list[Chunk]]:
    """The columns of each row group. read: (offset, bytes) → bytes. size: of the file. Raises ValueError."""
    length = int.from_bytes(read(size - 8, 4), "little")
    if not 0 <= length <= size - 8:
        raise ValueError("a footer larger than the file")
    footer, _ = _structure(read(size - 8 - length, length), 0)
    return [[_chunk(column[3]) for column in group[1]] for group in footer.get(4, [])]


def _chunk(column: dict[int, Any]) -> Chunk:
    data, dictionary = column[9], column.get(11, 0)
    is_first = dictionary > 0 and (dictionary < data or data == 0)  # 0: no data page, because there are no rows
    return Chunk(dictionary if is_first else data, column[7], column.get(4, 0))


def pages(read: Read, chunk: Chunk, texts: bool, most: int) -> Iterator[Page]:
    """The data pages of a column. texts: whether the lengths of its values are looked at. most: bytes; a dictionary
    that is larger is a page, the last one. Raises ValueError."""
    at, end = chunk.start, chunk.start + chunk.size
    longest = 0
    while at < end:
        header, length = _header(read, at)
        size, packed = header[2], header[3]
        if size < 0 or packed < 0:
            raise ValueError("a page of a negative size")
        if header[1] == 2 and size > most:
            yield Page(0, 0, size, size)
            return
        if header[1] == 2:
            longest = max(longest, _longest(read(at + length, packed), size, header[7][1], chunk.codec) if texts else 0)
        elif header[1] in (0, 3):
            data = header[5 if header[1] == 0 else 8]
            encoding = data[2] if header[1] == 0 else data[4]
            if data[1] < 0:
                raise ValueError("a page of a negative number of values")
            yield Page(data[1], encoding, size, longest if encoding in DICTIONARY else size)
        at += length + packed


def _header(read: Read, at: int) -> tuple[dict[int, Any], int]:
    length = FIRST
    while True:
        data = read(at, length)
        try:
            return _usual_header(data) or _structure(data, 0)
        except IndexError:
            if len(data) < length or length >= LARGEST:
                raise ValueError("a page without a whole header") from None
            length *= 8


def _usual_header(data: bytes) -> tuple[dict[int, Any], int] | None:
    """What `_structure` makes of most headers, without the statistics and in half the time. None for others."""
    usual = USUAL.match(data)
    if usual is None:
        return None
    at = usual.end()
    if data[at] == 0x1C:  # statistics
        at += 1
        while head := data[at]:
            at += 1
            if head in BYTES and data[at] < 128:
                at += 1 + data[at]
            elif head in LONGS:
                while data[at] > 127:
                    at += 1
                at += 1
            elif head not in BOOLEANS:
                return None
        at += 1
    if data[at] or data[at + 1]:
        return None
    size, packed, values, encoding = map(_number, usual.groups())
    return {1: 0, 2: size, 3: packed, 5: {1: values, 2: encoding}}, at + 2


def _longest(data: bytes, size: int, count: int, codec: int) -> int:
    """Bytes of the longest text of a dictionary; at least that if it is damaged: then Arrow refuses it."""
    if codec and codec not in CODECS:
        return size
    plain = pa.Codec(CODECS[codec]).decompress(data, size, asbytes=True) if codec else data
    if count <= 0 or len(plain) < 4:
        return 0
    (first,) = struct.unpack_from("<I", plain)
    if count * (first + 4) == len(plain):  # all have one length, as ids and digests do
        lengths = np.ndarray(count, "<u4", plain, 0, (first + 4,))
        if (lengths == first).all():
            return int(first)
    if len(plain) <= LARGEST and (short := _longest_of_short(np.frombuffer(plain, np.uint8), count)) is not None:
        return short
    longest = at = 0
    length_at = struct.Struct("<I").unpack_from
    for _ in range(count):
        if at + 4 > len(plain):
            break
        (length,) = length_at(plain, at)
        if length > longest:
            longest = length
        at += 4 + length
    return min(longest, size)


def _longest_of_short(data: np.ndarray, count: int) -> int | None:
    """The same for texts below 256 bytes without zeros: three zeros are a part of a length. None for others."""
    pairs = data[: (len(data) - 1) & ~1].view("<u2")
    at = 2 * np.flatnonzero(pairs == 0)  # two of the three
    at -= 2 - (data[at + 2] == 0)
    at = at[np.diff(at, append=len(data)) > 3][:count]  # an empty text has four zeros
    lengths = data[at]
    if len(at) < count or at[0] or data[at + 1].any() or (at[1:] != at[:-1] + lengths[:-1] + 4).any():
        return None
    return int(lengths.max())
