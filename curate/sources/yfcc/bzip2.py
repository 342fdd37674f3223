"""Parallel reading of .bz2, at the speed of the C library.

A bzip2 file is a sequence of independent blocks of up to 900 kB. Each starts with a 48-bit mark, at any *bit*. This
module searches the marks, shifts every block to a byte border and gives it to libbz2 as a stream of one block; threads
decode (libbz2 releases the interpreter's lock). libbz2 verifies the checksum of each block, this module that of each
stream. If the faster program lbzip2 is installed, it is used first; what it cannot read is decoded by this module, so
that a damaged file gives the same bytes with and without it.
"""

import bz2
import itertools
import shutil
import subprocess
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np

BLOCK, END = 0x314159265359, 0x177245385090  # 48-bit marks: start of a block, end of a stream
SEGMENT = 4 << 20  # bytes of the file that are searched at a time
AHEAD = 16  # blocks that wait while the caller works on others: as much as is decoded while it writes one part


class Damaged(Exception):
    """The file is cut off or a checksum does not match; everything before is intact."""


def decompress(path: Path, threads: int = 1) -> Iterator[bytes]:
    """Yield the plain bytes of `path` in order, about a megabyte at a time; then raise Damaged if the rest is."""
    program = shutil.which("lbzip2")
    done = 0
    if program:
        command = [program, "--decompress", "--stdout", f"-n{threads}", str(path.absolute())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
            assert job.stdout is not None  # PIPE
            try:
                while piece := job.stdout.read(1 << 20):
                    done += len(piece)
                    yield piece
            except GeneratorExit:
                job.kill()
                raise
        if job.returncode == 0:
            return
    for piece in blocks(path, threads):
        fresh = piece[min(done, len(piece)) :]
        done -= len(piece) - len(fresh)
        if fresh:
            yield fresh


def blocks(path: Path, threads: int = 1) -> Iterator[bytes]:
    """Yield the plain bytes of `path`, one bzip2 block (up to 900 kB) at a time, in order.

    At most `threads` + AHEAD + 1 blocks are in memory. Raises Damaged after the last intact block.
    """
    with path.open("rb") as file, ThreadPoolExecutor(threads) as pool:
        head = file.read(4)
        if head[:3] != b"BZh" or not b"1" <= head[3:] <= b"9":
            raise Damaged("it does not start like a bzip2 file")
        waiting: deque[tuple[int, int, Future[bytes]] | int] = deque()
        started: int | None = None  # first bit of the current block
        combined = 0
        ended = False
        for bit, kind in _marks(path):
            if started is not None:
                waiting.append((started, bit, pool.submit(_decode, _bits(file, started, bit))))
            started = bit if kind == BLOCK else None
            ended = kind == END
            if ended:
                waiting.append(int.from_bytes(_bits(file, bit + 48, bit + 80)[0], "big"))
            while len(waiting) > threads + AHEAD:
                combined = yield from _next(waiting, file, combined)
        while waiting:
            combined = yield from _next(waiting, file, combined)
        if not ended:
            raise Damaged("it is cut off in the middle of a block")


def _next(
    waiting: deque[tuple[int, int, Future[bytes]] | int], file: IO[bytes], combined: int
) -> Generator[bytes, None, int]:
    """Yield the next block; returns the checksum of the stream so far."""
    item = waiting.popleft()
    if isinstance(item, int):
        if item != combined:
            raise Damaged("the checksum of the whole stream does not match")
        return 0
    start, _, future = item
    try:
        plain = future.result()
    except (OSError, EOFError, ValueError) as error:
        # Once in a few hundred terabytes the data contain a mark by chance: then the block continues after it.
        after = waiting[0] if waiting else None
        if not isinstance(after, tuple):
            raise Damaged(f"a block does not match its checksum ({error})") from None
        try:
            plain = _decode(_bits(file, start, after[1]))
        except (OSError, EOFError, ValueError):
            raise Damaged(f"a block does not match its checksum ({error})") from None
        waiting.popleft()
    yield plain
    checksum = int.from_bytes(_bits(file, start + 48, start + 80)[0], "big")
    return ((combined << 1 | combined >> 31) & 0xFFFFFFFF) ^ checksum


def _marks(path: Path) -> Iterator[tuple[int, int]]:
    """(bit offset, mark) of every mark in the file, in order."""
    # A mark that starts at bit `shift` of a byte covers the next five bytes completely. One of the first four of these
    # is at a multiple of four: there the file is searched, for this byte and the next.
    wanted: dict[int, list[tuple[int, int, int]]] = {}  # two bytes → marks, shifts, bytes of the mark before the two
    for mark, shift in itertools.product((BLOCK, END), range(8)):
        middle = (mark >> shift & 0xFFFFFFFFFF).to_bytes(5, "big")
        for i in range(4):
            wanted.setdefault(int.from_bytes(middle[i : i + 2], "little"), []).append((mark, shift, i + 1))
    is_wanted = np.zeros(1 << 16, bool)
    is_wanted[list(wanted)] = True
    with path.open("rb") as file:
        base, buffer = 0, b""
        while True:
            fresh = file.read(SEGMENT)
            buffer += fresh or bytes(7)  # zeros at the end, so that the last mark has seven bytes, too
            pairs = np.frombuffer(buffer, "<u2", len(buffer) // 2)[::2]
            for n in np.flatnonzero(is_wanted[pairs]).tolist():
                for mark, shift, before in wanted[int(pairs[n])]:
                    start = 4 * n - before
                    window = int.from_bytes(buffer[start : start + 7], "big")
                    if 0 <= start <= len(buffer) - 7 and window >> (8 - shift) & 0xFFFFFFFFFFFF == mark:
                        yield 8 * (base + start) + shift, mark
            if not fresh:
                return
            base, buffer = base + len(buffer) - 6, buffer[-6:]


def _bits(file: IO[bytes], start: int, stop: int) -> tuple[bytes, int]:
    """Bits [start, stop) of the file, moved to a byte border, and their number."""
    file.seek(start // 8)
    raw = np.frombuffer(file.read((stop + 7) // 8 - start // 8) + b"\0", np.uint8)
    shift, count = start % 8, stop - start
    if shift:
        raw = (raw[:-1] << shift | raw[1:] >> (8 - shift)).astype(np.uint8)
    return raw[: (count + 7) // 8].tobytes(), count


def _decode(block: tuple[bytes, int]) -> bytes:
    """One block as a stream of its own: header, block, end mark, checksum."""
    data, count = block
    checksum = int.from_bytes(data[6:10], "big")
    whole, rest = divmod(count, 8)
    tail = (data[whole] >> (8 - rest) if rest else 0) << 80 | END << 32 | checksum
    bits = rest + 80
    tail <<= -bits % 8
    stream = b"BZh9" + data[:whole] + tail.to_bytes((bits + 7) // 8, "big")
    return bz2.decompress(stream)
