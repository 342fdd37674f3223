"""Atomic files, seeding, errors, registries, the run log."""

import io
import resource
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import driftline
from driftline.curate.core import files
from driftline.curate.core.atomic_io import fingerprint, read_json, sha256_bytes, sweep, write_bytes, writing
from driftline.curate.core.errors import BadInput, DriftlineError, UnknownName, explained
from driftline.curate.core.files import content_digest, full_digests, listing
from driftline.curate.core.registry import Registry
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.images.shards import write_tar
from driftline.curate.metadata.column_mapping import _ids
from driftline.curate.metadata.columns import ID, id_of_address, safe_id


def full_digest(path: Path, memory: Path) -> str:
    return full_digests([path], memory)[0]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_bytes(path, b"old")

    def fail() -> None:
        with writing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_sweep_removes_the_files_of_a_killed_process(tmp_path: Path) -> None:
    (tmp_path / ".partial-99-a.txt").write_text("half")
    (tmp_path / ".partial-fetch-x").mkdir()
    (tmp_path / "a.txt").write_text("whole")
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_sweep_leaves_what_a_live_process_writes(tmp_path: Path) -> None:
    """Two processes that end one run at the same time removed each other's unfinished files."""
    with writing(tmp_path / "a.txt") as file:
        sweep(tmp_path)
        file.write(b"whole")
    assert (tmp_path / "a.txt").read_bytes() == b"whole"


def test_the_same_seed_and_names_give_the_same_numbers_in_another_process() -> None:
    code = "from driftline.curate.core.seeding import rng_for; print(rng_for(5, 'tint', 3).integers(10**9))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(other) == int(rng_for(5, "tint", 3).integers(10**9))


def test_each_name_has_its_own_random_numbers() -> None:
    names: list[tuple[str | int, ...]] = [(), ("a",), ("a", "b"), ("b", "a"), ("ab",), ("a", 1), ("a", "1"), ("a", 2)]
    assert len({int(rng_for(seed, *of).integers(2**62)) for seed in range(2) for of in names}) == 2 * len(names)


def test_a_fingerprint_refuses_objects_that_json_cannot_hold() -> None:
    with pytest.raises(TypeError):
        fingerprint([object()])


def test_content_digest_sees_names_and_bytes(tmp_path: Path) -> None:
    digests_of = []
    for name, data in (("a", b"1"), ("a", b"2"), ("b", b"1"), ("a", b"1")):
        for path in tmp_path.iterdir():
            path.unlink()
        write_bytes(tmp_path / name, data)
        digests_of.append(content_digest(listing(tmp_path)))
    assert [digests_of.index(value) for value in digests_of] == [0, 1, 2, 0]


def test_a_full_digest_sees_every_byte_of_a_file_and_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "photos" / "big"
    write_bytes(path, b"x" * (3 << 20))
    before = [full_digest(place, tmp_path / "cache") for place in (path, path.parent)]
    with path.open("r+b") as file:
        file.seek(1_500_000)
        file.write(b"y")
    after = [full_digest(place, tmp_path / "cache") for place in (path, path.parent)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, False]


def test_a_file_that_did_not_change_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "photo"
    write_bytes(path, b"1")
    monkeypatch.setattr(files, "UNSETTLED", -60.0)  # as if it had been written long ago
    first = full_digest(path, tmp_path / "cache")
    monkeypatch.setattr(files, "sha256_file", lambda path: pytest.fail("it was read again"))
    assert full_digest(path, tmp_path / "cache") == first


@pytest.mark.parametrize("cache", ["a folder", "no database"])
def test_a_cache_that_cannot_be_used_costs_time_only(cache: str, tmp_path: Path) -> None:
    write_bytes(tmp_path / "photo", b"1")
    place = tmp_path / "cache"
    place.mkdir() if cache == "a folder" else place.write_bytes(b"no database" * 1000)
    assert full_digest(tmp_path / "photo", place) == sha256_bytes(b"1")


def test_a_cache_that_a_full_disk_cannot_hold_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UNSETTLED", -60.0)
    cache = tmp_path / "cache"
    for i in range(100):
        write_bytes(tmp_path / "photos" / f"{'a long name ' * 15}{i}", b"1")
    full_digest(next((tmp_path / "photos").iterdir()), cache)  # the table is there, and the cache must grow
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (cache.stat().st_size, before[1]))
    try:
        found = full_digest(tmp_path / "photos", cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found == full_digest(tmp_path / "photos", tmp_path / "other")


def test_a_full_disk_names_file_and_bytes(tmp_path: Path) -> None:
    def fill() -> None:
        with writing(tmp_path / "table.parquet") as file:
            file.write(b"x" * 1000)
            file.flush()
            raise OSError(28, "No space left on device")

    with pytest.raises(DriftlineError, match=r"table\.parquet needs more than 1,000 bytes; [0-9,]+ are free"):
        fill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (21, "is a folder. Expected a file."),
        (20, "Expected a folder."),
        (30, "read-only disk"),
        (13, "You may not open"),
    ],
)
def test_an_error_of_the_system_is_a_sentence_with_the_whole_path(number: int, words: str, tmp_path: Path) -> None:
    text = str(explained(OSError(number, "?", str(tmp_path / "a"))))
    assert words in text
    assert str(tmp_path / "a") in text


def test_broken_json_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "done.json").write_text("{")
    with pytest.raises(BadInput, match=r"done\.json is not valid JSON"):
        read_json(tmp_path / "done.json")


def test_an_unknown_name_gives_a_suggestion_and_the_available_names() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'nap'\? Available: finetune, nap"):
        Registry("learner", "x", {"nap": ":y", "finetune": ":y"})["napp"]


@given(st.text(min_size=1, max_size=200) | st.from_regex(r"https?://[a-zA-Z0-9:@./?#=_-]{0,150}", fullmatch=True))
@example(f"https://h/{'a' * 99}.jpg")
def test_a_safe_id_is_safe_for_any_text_and_columns_give_the_same(text: str) -> None:
    assert ID.fullmatch(safe_id(text))
    none, column = pa.array([None], pa.string()), pa.chunked_array([[text]])
    assert _ids(column.chunk(0), None)[0].as_py() == safe_id(text)
    assert _ids(none, column)[0].as_py() == id_of_address(text)


@given(st.text(max_size=40), st.text(max_size=40))
def test_different_names_get_different_ids(a: str, b: str) -> None:
    assert a == b or safe_id(a) != safe_id(b)


@pytest.mark.parametrize(
    ("total", "expected"), [(4000, "fetch: 1,000 of 4,000 rows, about"), (None, "fetch: 1,000 rows")]
)
def test_slow_work_prints_its_progress(total, expected, capsys, monkeypatch):
    clock = iter(range(0, 1000, 11))
    monkeypatch.setattr("driftline.curate.core.run_log.time.monotonic", lambda: next(clock))
    with RunLog().progress("fetch", total, "rows") as tick:
        tick(1000)
    assert capsys.readouterr().err.startswith(expected)


def test_progress_is_plain_lines_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_log = RunLog(tmp_path / "log.jsonl")
    with run_log.progress("fetch", 3) as tick:
        tick(3)
    assert "\x1b" not in capsys.readouterr().err
    events = [line for line in (tmp_path / "log.jsonl").read_text().splitlines() if '"end"' in line]
    assert '"done": 3' in events[0]


@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=120),
                          st.binary(max_size=1500)), max_size=5))  # fmt: skip
def test_tars_are_byte_for_byte_those_of_the_standard_library(members: list[tuple[str, bytes]]) -> None:
    try:
        with io.BytesIO() as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                for name, content in members:
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = len(content), 0o644
                    tar.addfile(info, io.BytesIO(content))
            expected = file.getvalue()
    except (ValueError, UnicodeEncodeError):
        return  # a name that the format cannot hold
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar"
        assert write_tar(path, members) == sha256_bytes(expected)
        assert path.read_bytes() == expected


def test_the_code_is_named_by_every_source_of_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def code() -> str:
        return files.code_of.__wrapped__()

    place = Path(files.__file__).relative_to(Path(driftline.__file__).parent)
    monkeypatch.setattr(files, "__file__", str(tmp_path / place))
    (tmp_path / "eval" / "engine").mkdir(parents=True)
    (tmp_path / "eval" / "__init__.py").touch()
    (tmp_path / "eval" / "engine" / "kernel.c").write_text("int a;")
    before = code()
    (tmp_path / "eval" / "notes.txt").write_text("no source")
    assert code() == before
    (tmp_path / "eval" / "engine" / "kernel.c").write_text("int b;")
    other = code()
    (tmp_path / "eval" / "engine" / "tiles.h").write_text("int c;")
    assert len({before, other, code()}) == 3
    assert before.startswith(f"driftline {version('driftline')} (")
