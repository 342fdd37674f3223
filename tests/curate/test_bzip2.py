"""Our reader of .bz2 against the standard library's, on every kind of file that tools write."""

import bz2
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftline.curate.sources.yfcc import bzip2
from driftline.curate.sources.yfcc.bzip2 import AHEAD, BLOCK, END, SEGMENT, Damaged, blocks, decompress


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=3000), st.integers(1, 9)), min_size=1, max_size=4), st.integers(1, 3))
def test_streams_of_any_level_one_after_another(tmp_path: Path, streams: list[tuple[bytes, int]], threads: int) -> None:
    path = tmp_path / "x.bz2"
    path.write_bytes(b"".join(bz2.compress(data, level) for data, level in streams))
    assert b"".join(blocks(path, threads)) == b"".join(data for data, _ in streams)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_blocks_over_more_than_one_segment_of_the_file(tmp_path: Path, threads: int) -> None:
    data = noise(SEGMENT + SEGMENT // 2)  # noise does not shrink, so that marks fall on both sides of the border
    path = tmp_path / "x.bz2"
    path.write_bytes(bz2.compress(data, 3))
    assert b"".join(blocks(path, threads)) == data


@pytest.mark.parametrize("segment", [32, SEGMENT])
def test_marks_are_found_at_every_bit_and_nowhere_else(tmp_path, monkeypatch, segment):
    """Compared with a search through every bit; most of the bits between two marks are those of marks, too."""
    monkeypatch.setattr(bzip2, "SEGMENT", segment)
    near = f"{BLOCK:048b}"[1:] + f"{END:048b}"[:-1]
    gaps = random.Random(0)
    bits = "".join(f"{mark:048b}" + near + "1" * gaps.randrange(64) for _ in range(250) for mark in (BLOCK, END))
    bits += "0" * (-len(bits) % 8)
    path = tmp_path / "x.bz2"
    path.write_bytes(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    windows = ((at, int(bits[at : at + 48], 2)) for at in range(len(bits) - 47))
    expected = [(at, mark) for at, mark in windows if mark in (BLOCK, END)]
    assert len({(at % 32, mark) for at, mark in expected}) == 64
    assert list(bzip2._marks(path)) == expected


def test_threads_decode_ahead_of_a_slow_caller_and_stop_at_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "x.bz2"
    path.write_bytes(bz2.compress(noise(100_000 * 2 * AHEAD), 1))
    begun: list[int] = []
    decode = bzip2._decode
    monkeypatch.setattr(bzip2, "_decode", lambda block: (begun.append(1), decode(block))[1])
    reader = blocks(path, 2)
    next(reader)
    reader.close()  # waits for the threads
    assert AHEAD < len(begun) <= AHEAD + 3


def test_a_file_that_is_cut_off_gives_its_sound_blocks_first(tmp_path: Path) -> None:
    data = noise(500_000)
    path = tmp_path / "x.bz2"
    path.write_bytes(bz2.compress(data, 1)[:300_000])
    for read in (blocks, decompress):
        got: list[bytes] = []
        with pytest.raises(Damaged, match="cut off"):
            got.extend(read(path, 2))
        assert len(b"".join(got)) > 150_000
        assert data.startswith(b"".join(got))


def test_a_changed_byte_is_found_by_the_checksum_of_its_block(tmp_path: Path) -> None:
    data = noise(500_000)
    packed = bytearray(bz2.compress(data, 1))
    packed[250_000] ^= 0x10
    path = tmp_path / "x.bz2"
    path.write_bytes(packed)
    got: list[bytes] = []
    with pytest.raises(Damaged, match="checksum"):
        got.extend(decompress(path, 2))
    assert len(b"".join(got)) > 100_000
    assert data.startswith(b"".join(got))


def test_a_block_that_is_missing_is_found_by_the_checksum_of_the_stream(tmp_path: Path) -> None:
    head, tail = (bz2.compress(noise(n), 1) for n in (50_000, 60_000))
    path = tmp_path / "x.bz2"
    path.write_bytes(head[:-4] + bytes(4) + tail)
    with pytest.raises(Damaged, match="checksum"):
        list(blocks(path))


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.bz2"
    path.write_bytes(b"<html>sign in first</html>")
    with pytest.raises(Damaged, match="does not start like a bzip2 file"):
        list(decompress(path))
