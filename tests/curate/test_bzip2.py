"""Our reader of .bz2 against the standard library's, on every kind of file that tools write."""

from __future__ import annotations

import bz2
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.sources.yfcc.bzip2 import SEGMENT, Damaged, blocks, decompress


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
