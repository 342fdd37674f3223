"""Reading .bz2 on all cores, with the C library's own speed.

A bzip2 file is a chain of blocks of up to 900 kB that share nothing. Each begins at any *bit* with a 48-bit mark; so
the marks are searched, every block is shifted to a byte border and given to libbz2 as a stream of one block, and
threads decode (libbz2 runs without the interpreter's lock). The checksum of each block is verified by libbz2, the
checksum of each stream here. Where the program lbzip2 is installed, which decodes faster still, it is used; what it
cannot read is left to the decoder here, so that a damaged file gives the same bytes with and without it.
"""

from __future__ import annotations

import bz2
import shutil
import subprocess
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np

BLOCK, END = 0x314159265359, 0x177245385090  # 48-bit marks: a block begins; a stream ends
SEGMENT = 4 << 20  # bytes of the file that are searched at a time


class Damaged(Exception):
    """The file is cut off or a checksum does not match; all that came before is sound."""


def decompress(path: Path, threads: int = 1) -> Iterator[bytes]:
    """Yield the plain bytes of `path` in order, about a megabyte at a time. Raises Damaged after the last sound one."""
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

    At most 2 × `threads` + 1 blocks are held. Raises Damaged after the last sound block.
    """
    with path.open("rb") as file, ThreadPoolExecutor(threads) as pool:
        head = file.read(4)
        if head[:3] != b"BZh" or not b"1" <= head[3:] <= b"9":
            raise Damaged("it does not begin as bzip2 files do")
        waiting: deque[tuple[int, int, Future[bytes]] | int] = deque()
        started: int | None = None  # bit at which the block in hand begins
        combined = 0
        ended = False
        for bit, kind in _marks(path):
            if started is not None:
                waiting.append((started, bit, pool.submit(_decode, _bits(file, started, bit))))
            started = bit if kind == BLOCK else None
            ended = kind == END
            if ended:
                waiting.append(int.from_bytes(_bits(file, bit + 48, bit + 80)[0], "big"))
            while len(waiting) > 2 * threads:
                combined = yield from _next(waiting, file, combined)
        while waiting:
            combined = yield from _next(waiting, file, combined)
        if not ended:
            raise Damaged("it is cut off in the middle of a block")


def _next(
    waiting: deque[tuple[int, int, Future[bytes]] | int], file: IO[bytes], combined: int
) -> Generator[bytes, None, int]:
    """Yield the next block; the value returned is the checksum of the stream so far."""
    item = waiting.popleft()
    if isinstance(item, int):
        if item != combined:
            raise Damaged("the checksum of the whole stream does not match")
        return 0
    start, _, future = item
    try:
        plain = future.result()
    except (OSError, EOFError, ValueError) as error:
        # Once in a few hundred terabytes a mark stands in the data by chance: then the block goes on behind it.
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
    # A mark that begins at bit `shift` of a byte covers the next five bytes wholly: those are searched for.
    wanted = [(mark, s, (mark >> s & 0xFFFFFFFFFF).to_bytes(5, "big")) for mark in (BLOCK, END) for s in range(8)]
    with path.open("rb") as file:
        base, held = 0, b""
        while True:
            fresh = file.read(SEGMENT)
            held += fresh or bytes(7)  # zeros at the end, so that the last mark too has seven bytes
            found = []
            for mark, shift, middle in wanted:
                at = held.find(middle, 1, len(held) - 1)
                while at >= 0:
                    window = int.from_bytes(held[at - 1 : at + 6], "big")
                    if window >> (8 - shift) & 0xFFFFFFFFFFFF == mark:
                        found.append((8 * (base + at - 1) + shift, mark))
                    at = held.find(middle, at + 1, len(held) - 1)
            yield from sorted(found)
            if not fresh:
                return
            base, held = base + len(held) - 6, held[-6:]


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
