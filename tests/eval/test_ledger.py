"""The ledger: any changed byte and any moved entry is found, nothing acknowledged is lost."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import drifting

from driftline.curate.core.errors import BadInput, IntegrityError, MissingFile, NotWritten
from driftline.eval.memory.correction_ledger import (
    HEAD,
    LARGEST,
    LEAF,
    RECORD,
    Entry,
    Ledger,
    Tree,
    entries,
    packed,
    sha,
    verify,
)
from driftline.eval.run import evaluate


def written(path: Path, n: int = 6, label: str = "ca\0r") -> Path:
    with Ledger(path, sync=False) as ledger:
        for i in range(n):
            assert ledger.append({"id": f"p{i}", "label": label}, np.arange(4, dtype=np.float32) + i) == i
    return path


def whole_of(path: Path) -> Iterator[Entry]:
    """The entries before the first that a crash has torn."""
    with suppress(IntegrityError):
        yield from entries(path)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return written(tmp_path / "b.ledger")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.data())
def test_any_changed_byte_is_found(book: Path, data: st.DataObject) -> None:
    original = book.read_bytes()
    try:
        whole = bytearray(book.read_bytes())
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
        book.write_bytes(whole)
        with pytest.raises(IntegrityError):
            verify(book)
    finally:
        book.write_bytes(original)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.integers(1, 700))
def test_a_file_that_is_cut_anywhere_is_found_or_has_another_head(book: Path, cut: int) -> None:
    original, head = book.read_bytes(), verify(book).head
    try:
        book.write_bytes(original[: max(len(original) - cut, 1)])
        with pytest.raises(IntegrityError):
            verify(book, head)
    finally:
        book.write_bytes(original)


Bytes = list[bytes]  # the head line, then one record each


def parts_of(path: Path) -> Bytes:
    return [HEAD, *(entry.leaf + entry.chain + entry.payload for entry in entries(path))]


def rehashed(own: Bytes, first: int, payload: bytes) -> Bytes:
    """The records with another payload for one of them, and their chain computed again from it on."""
    chain, forged = own[first - 1][LEAF.size : RECORD.size], own[:first]
    for i, record in enumerate(own[first:]):
        content = record[RECORD.size :] if i else payload
        leaf = LEAF.pack(len(content), sha(content))
        chain = sha(chain, leaf)
        forged.append(leaf + chain + content)
    return forged


CHANGED = "its payload does not match its digest"
MOVED = "was changed or moved, or an entry before it was removed"
HEADLESS = "never had the head"  # consistent in itself: only the head that was noted elsewhere shows it
ATTACKS: dict[str, tuple[Callable[[Bytes, Bytes], Bytes], str]] = {  # on own records, with those of another ledger
    "a payload edited": (lambda own, _: [*own[:3], own[3][:-1] + b"x", *own[4:]], f"Entry 2 of .* {CHANGED}"),
    "two entries exchanged": (lambda own, _: [*own[:2], own[3], own[2], *own[4:]], f"Entry 1 of .* {MOVED}"),
    "an entry removed": (lambda own, _: [*own[:4], *own[5:]], f"Entry 3 of .* {MOVED}"),
    "an entry replayed": (lambda own, _: [*own, own[3]], f"Entry 6 of .* {MOVED}"),
    "an entry of another": (lambda own, other: [*own[:3], other[3], *own[4:]], f"Entry 2 of .* {MOVED}"),
    "an edit with its digest": (
        lambda own, _: [*own[:4], rehashed(own, 4, own[5][RECORD.size :])[4], *own[5:]], f"Entry 4 of .* {MOVED}"
    ),
    "zeros appended": (lambda own, _: [*own, bytes(500)], f"Entry 6 of .* {MOVED}"),
    "cut off behind an entry": (lambda own, _: own[:3], HEADLESS),
    "cut off behind the head line": (lambda own, _: own[:1], HEADLESS),
    "an edit with all hashes": (lambda own, _: rehashed(own, 4, own[5][RECORD.size :]), HEADLESS),
    "another ledger": (lambda _, other: other, HEADLESS),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_named(book: Path, tmp_path: Path, name: str) -> None:
    (attack, message), head = ATTACKS[name], verify(book).head
    book.write_bytes(b"".join(attack(parts_of(book), parts_of(written(tmp_path / "other", label="bus")))))
    if message == HEADLESS:
        verify(book)
    with pytest.raises(IntegrityError, match=message) as found:
        verify(book, head)
    assert str(book) in str(found.value)


def test_what_was_written_is_read(book: Path) -> None:
    facts, vector = list(entries(book))[4].content
    assert facts == {"id": "p4", "label": "ca\0r"}
    assert vector.tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("left", [5, 70, 90])
def test_a_last_record_that_a_crash_tore_is_named_and_all_before_it_are_whole(book: Path, left: int) -> None:
    data, last = book.read_bytes(), list(entries(book))[-1]
    book.write_bytes(data[: len(data) - RECORD.size - len(last.payload) + left])
    with pytest.raises(IntegrityError, match="Entry 5 .* cut off"):
        verify(book)
    assert len(list(whole_of(book))) == 5


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        verify(tmp_path / "none")
    (tmp_path / "text").write_text("a text that is long enough to be something")
    with pytest.raises(IntegrityError, match="does not start like a ledger"):
        verify(tmp_path / "text")
    Ledger(tmp_path / "l").close()
    assert verify(tmp_path / "l").entries == 0
    assert verify(tmp_path / "l").head == sha(HEAD).hex()


@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=17))
def test_the_root_is_that_of_rfc_6962(leaves: list[bytes]) -> None:
    tree = Tree()
    for leaf in leaves:
        tree.add(leaf)
    assert tree.root() == recursive(leaves)


def recursive(leaves: list[bytes]) -> bytes:
    """The root as RFC 6962 writes it."""
    if len(leaves) == 1:
        return sha(b"\0", leaves[0])
    cut = max(1 << i for i in range(6) if 1 << i < len(leaves))
    return sha(b"\1", recursive(leaves[:cut]), recursive(leaves[cut:]))


FULL = """
import os, resource, sys, numpy as np
from pathlib import Path
from driftline.curate.core.errors import NotWritten
from driftline.eval.memory.correction_ledger import Ledger
with Ledger(Path(sys.argv[1])) as ledger:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        while True:
            print(ledger.append({"id": "p", "label": "x"}, np.zeros(64, np.float32)), flush=True)
    except NotWritten as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # room comes back
    try:
        ledger.append({"id": "later", "label": "x"})
    except NotWritten:
        print("refused")
"""


class TestFullDisk:
    @pytest.mark.parametrize("room", [1000, 4096, 5000])
    def test_no_acknowledged_entry_is_lost(self, tmp_path: Path, room: int) -> None:
        done = subprocess.run(
            [sys.executable, "-c", FULL, str(tmp_path / "l"), str(room)], capture_output=True, text=True, check=True
        )
        *acknowledged, told, refused = done.stdout.splitlines()
        assert [int(line) for line in acknowledged] == list(range(len(acknowledged)))
        assert len(acknowledged) >= 2
        assert f"entry {len(acknowledged)} was not recorded (File too large)" in told
        assert refused == "refused"
        assert verify(tmp_path / "l").entries == len(acknowledged)

    def test_short_writes_are_completed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = os.write
        monkeypatch.setattr(os, "write", lambda file, data: whole(file, bytes(data)[:7]))
        assert verify(written(tmp_path / "l")).entries == 6

    @pytest.mark.parametrize("sync", [True, False])
    def test_nothing_is_acknowledged_after_a_failed_write(self, tmp_path, monkeypatch, sync):
        ledger, whole = Ledger(tmp_path / "l", sync), os.write
        vector = np.zeros(64 if sync else 2**18, np.float32)  # one fills the buffer
        ledger.append({"id": "p", "label": "x"}, vector)
        monkeypatch.setattr(os, "write", lambda file, data: 0)
        with pytest.raises(NotWritten, match="entry 1 was not recorded"):
            ledger.append({"id": "p", "label": "x"}, vector)
        monkeypatch.setattr(os, "write", whole)
        with pytest.raises(NotWritten):
            ledger.append({"id": "p", "label": "x"})
        ledger.close()
        assert verify(tmp_path / "l").entries == 1

    def test_an_entry_that_cannot_be_synced_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Ledger(tmp_path / "l") as ledger:
            ledger.append({"id": "p", "label": "x"})

            def failing(file: int) -> None:
                raise OSError(errno.EIO, "Input/output error")

            monkeypatch.setattr(os, "fsync", failing)
            for _ in range(2):
                with pytest.raises(NotWritten, match="entry 1 was not recorded"):
                    ledger.append({"id": "p", "label": "x"})
        monkeypatch.undo()
        assert verify(tmp_path / "l").entries == 1

    def test_a_buffered_ledger_says_on_closing_that_it_was_not_written(self, tmp_path, monkeypatch):
        ledger = Ledger(tmp_path / "l", sync=False)
        ledger.append({"id": "p", "label": "x"})
        monkeypatch.setattr(os, "write", lambda file, data: 0)
        with pytest.raises(NotWritten, match="entry 0"):
            ledger.close()


def test_memory_does_not_grow_with_the_ledger(tmp_path: Path) -> None:
    def peak(n: int) -> int:
        path = written(tmp_path / str(n), n)
        tracemalloc.start()
        verify(path)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(4000) < peak(100) + 20_000


class TestUnderOcrr:
    STREAM = drifting(steps=1, classes=8, n=400, noise=0.7)

    def settings(self, folder: Path) -> dict[str, Any]:
        return {"held_out": 2, "ledger": str(folder), "policy": "random_50+wrong:0.1"}

    def test_every_correction_of_a_run_is_in_its_ledger(self, tmp_path: Path) -> None:
        found = evaluate(self.STREAM, "ocrr", ["substrate"], seeds=[0, 1], settings=self.settings(tmp_path))
        names = [f"substrate-drifting-random_50-wrong-0-1-seed{seed}.ledger" for seed in (0, 1)]
        entries = [verify(tmp_path / name).entries for name in names]
        assert entries == found["results"][0]["measures"]["corrections"]["values"]

    def test_no_ledger_is_replaced(self, tmp_path: Path) -> None:
        evaluate(self.STREAM, "ocrr", ["substrate"], settings=self.settings(tmp_path))
        (path,) = tmp_path.glob("*.ledger")
        before = path.read_bytes()
        found = evaluate(self.STREAM, "ocrr", ["substrate"], settings=self.settings(tmp_path))
        assert found["skipped"][0]["because"].startswith(f"The ledger {path} exists")
        assert path.read_bytes() == before

    def test_other_streams_policies_seeds_and_settings_have_their_own(self, tmp_path: Path) -> None:
        plain = self.settings(tmp_path)
        other = dataclasses.replace(self.STREAM, name="other")
        evaluate(self.STREAM, "ocrr", ["substrate"], seeds=[0, 1], settings=plain)
        evaluate(other, "ocrr", ["substrate"], settings=plain)
        evaluate(self.STREAM, "ocrr", ["substrate"], settings=plain | {"policy": "oracle"})
        evaluate(self.STREAM, "ocrr", ["substrate"], settings=plain | {"substrate.k": 3})
        assert len(list(tmp_path.glob("*.ledger"))) == 5

    def test_the_runs_record_has_the_head(self, tmp_path: Path) -> None:
        evaluate(self.STREAM, "ocrr", ["substrate"], settings=self.settings(tmp_path / "l"), out=tmp_path / "rows")
        (record,) = (tmp_path / "rows").rglob("run.json")
        (path,) = (tmp_path / "l").glob("*.ledger")
        verdict = verify(path)
        assert json.loads(record.read_text())["ledger"] == {
            "file": path.name, "entries": verdict.entries, "head": verdict.head, "root": verdict.root,
        }  # fmt: skip


def test_a_correction_that_is_too_large_is_told_its_size() -> None:
    vector = np.zeros(LARGEST, np.uint8)
    with pytest.raises(BadInput, match=r"A correction of 67,108,\d{3} bytes\. Expected at most 67,108,864"):
        packed({"id": "a"}, vector)
