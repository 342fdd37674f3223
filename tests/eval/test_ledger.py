"""The ledger: any changed byte is found, nothing acknowledged is lost, erasure keeps the chain."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import drifting

from curate.core.errors import BadInput, Busy, IntegrityError, MissingFile
from curate.core.seeding import rng_for
from eval.memory.correction_ledger import HEAD, Ledger, entries_of, erase, included, lines, merkle, proof, sha, verify
from eval.run import evaluate


def written(path: Path, n: int = 6) -> Path:
    with Ledger(path, sync=False) as ledger:
        for i in range(n):
            assert ledger.append({"id": f"p{i}", "label": "ca\0r"}, np.arange(4, dtype=np.float32) + i) == i
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return written(tmp_path / "b.ledger")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.data())
def test_any_changed_byte_is_found(book: Path, data: st.DataObject) -> None:
    original = book.read_bytes()
    erased = data.draw(st.booleans())
    try:
        if erased:
            erase(book, 2)
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


def test_the_entry_that_was_changed_is_named(book: Path) -> None:
    entries = entries_of(book)
    whole = bytearray(book.read_bytes())
    whole[entries[3].at + 80] ^= 1
    book.write_bytes(whole)
    with pytest.raises(IntegrityError, match="Entry 3 .* was changed"):
        verify(book)


def test_swapped_and_dropped_entries_are_found(book: Path) -> None:
    data, at = book.read_bytes(), [e.at for e in entries_of(book)]
    for forged in (
        data[: at[1]] + data[at[2] : at[3]] + data[at[1] : at[2]] + data[at[3] :],
        data[: at[1]] + data[at[2] :],
    ):
        book.write_bytes(forged)
        with pytest.raises(IntegrityError, match="Entry 1"):
            verify(book)


def test_the_same_corrections_have_the_same_head(tmp_path: Path) -> None:
    a, b, c = (verify(written(tmp_path / name, n)) for name, n in (("a", 6), ("b", 6), ("c", 5)))
    assert a == b
    assert a.head != c.head


def test_what_was_written_is_read(book: Path) -> None:
    entry = entries_of(book)[4]
    assert entry.facts == {"id": "p4", "label": "ca\0r"}
    assert entry.vector is not None
    assert entry.vector.tolist() == [4, 5, 6, 7]
    told = [json.loads(line) for line in lines(book)]
    assert [t["number"] for t in told] == list(range(6))
    assert told[4]["vector"] == [4, 5, 6, 7]


class TestErasure:
    def test_the_chain_holds_and_the_content_is_gone(self, tmp_path: Path) -> None:
        path = tmp_path / "b"
        with Ledger(path) as ledger:
            for secret in ("first-secret", "second-secret"):
                ledger.append({"id": secret, "label": "x"}, np.zeros(2, np.float32))
        before = [e.chain for e in entries_of(path)]
        verdict = erase(path, 0)
        assert verdict.erased == (0,)
        assert verdict.entries == 3
        assert [e.chain for e in entries_of(path)][:2] == before
        assert b"first-secret" not in path.read_bytes()
        assert verify(path, before[1].hex()).entries == 3, "heads from before the erasure still hold"

    def test_more_can_be_appended_afterwards(self, book: Path) -> None:
        erase(book, 1)
        with Ledger(book) as ledger:
            assert ledger.append({"id": "later", "label": "x"}) == 7
        assert verify(book).entries == 8

    def test_an_empty_entry_without_a_tombstone_is_tampering(self, book: Path) -> None:
        original = book.read_bytes()
        erase(book, 1)
        end = entries_of(book)[-1].at
        book.write_bytes(book.read_bytes()[:end])
        with pytest.raises(IntegrityError, match="Entry 1 .* no tombstone"):
            verify(book)
        book.write_bytes(original)

    @pytest.mark.parametrize("number", [-1, 6, 99])
    def test_a_missing_entry_cannot_be_erased(self, book: Path, number: int) -> None:
        with pytest.raises(BadInput, match=f"Entry {number}"):
            erase(book, number)

    def test_nothing_is_erased_twice(self, book: Path) -> None:
        erase(book, 0)
        for number in (0, 6):
            with pytest.raises(BadInput):
                erase(book, number)


def test_a_cut_entry_is_set_aside_and_writing_goes_on(book: Path) -> None:
    data, last = book.read_bytes(), entries_of(book)[-1].at
    book.write_bytes(data[:-5])
    with pytest.raises(IntegrityError, match="Entry 5 .* cut off"):
        verify(book)
    with Ledger(book) as ledger:
        assert ledger.append({"id": "again", "label": "x"}) == 5
    assert verify(book).entries == 6
    assert book.with_name("b.ledger.cut").read_bytes() == data[last:-5]


def test_two_writers_at_once_are_refused(book: Path) -> None:
    with Ledger(book), pytest.raises(Busy, match="Another process writes"):
        Ledger(book)
    Ledger(book).close()


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        verify(tmp_path / "none")
    (tmp_path / "text").write_text("a text that is long enough to be something")
    for call in (verify, Ledger):
        with pytest.raises(IntegrityError, match="does not start like a ledger"):
            call(tmp_path / "text")
    with pytest.raises(BadInput, match="Expected at most"), Ledger(tmp_path / "l") as ledger:
        ledger.append({"label": "x" * (65 * 2**20)})
    assert verify(tmp_path / "l").entries == 0
    assert verify(tmp_path / "l").head == sha(HEAD).hex()


@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=17), st.data())
def test_a_proof_leads_to_the_root_and_no_other(leaves: list[bytes], data: st.DataObject) -> None:
    digests = [sha(leaf) for leaf in leaves]
    number = data.draw(st.integers(0, len(leaves) - 1))
    way = proof(digests, number)
    assert len(way) <= 5
    assert included(digests[number], way, merkle(digests))
    assert not included(sha(b"another", digests[number]), way, merkle(digests))


WRITER = """
import sys, numpy as np
from pathlib import Path
from eval.memory.correction_ledger import Ledger
with Ledger(Path(sys.argv[1])) as ledger:
    print("begun", flush=True)
    while True:
        number = ledger.append({"id": "p", "label": "x" * (ledger.n % 50)}, np.zeros(64, np.float32))
        print(number, flush=True)
"""


def test_no_acknowledged_entry_is_lost_to_a_kill(tmp_path: Path) -> None:
    """Twelve kills; benchmarks/ledger.py does a thousand."""
    path, rng = tmp_path / "l", rng_for(0)
    for _ in range(12):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(int(rng.integers(1, 30))):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        acknowledged = int(rest[-1]) if rest and rest[-1].isdigit() else acknowledged
        Ledger(path).close()
        assert verify(path).entries >= acknowledged + 1


def test_every_correction_of_a_run_is_in_its_ledger(tmp_path: Path) -> None:
    stream = drifting(steps=1, classes=8, n=400, noise=0.7)
    settings = {"held_out": 2, "ledger": str(tmp_path), "policy": "random_50+wrong:0.1"}
    result = evaluate(stream, "ocrr", ["substrate"], seeds=[0, 1], settings=settings)["results"][0]
    verdicts = [verify(p) for p in sorted(tmp_path.glob("substrate-seed*.ledger"))]
    assert [v.entries for v in verdicts] == result["measures"]["corrections"]["values"]
    again = evaluate(stream, "ocrr", ["substrate"], seeds=[0, 1], settings=settings)["results"][0]
    assert again["scores"] == result["scores"]
    assert [verify(p) for p in sorted(tmp_path.glob("substrate-seed*.ledger"))] == verdicts
