"""A stream from elsewhere: damage is one sentence that names the file, and nothing outside its folder is read."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import driftline
from support.helpers import drifting, grouped
from support.mutations import damaged

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import BadInput, DriftlineError, IntegrityError
from driftline.curate.core.outside.names import inside
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.stream import Stream


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    grouped(drifting(steps=2, n=12)).save(tmp_path / "plain")
    return tmp_path / "plain"


def read_all(folder: Path) -> list[Any]:
    """Open and verify everything; returns all that a user sees, as plain data."""
    stream = Stream.load(folder)
    stream.verify(folder)
    seen: list[Any] = [stream.name, list(stream.classes), dict(stream.facts), stream.sha256]
    for step in stream.steps:
        for name, split in step.splits.items():
            columns = {"x": split.x[:], "y": split.y, "ids": split.ids} | split.columns()
            seen.append([step.name, name, {key: np.asarray(column).tolist() for key, column in columns.items()}])
    return seen


@pytest.mark.parametrize("kind", ["plain", "images"])
def test_no_mutation_gives_a_traceback_or_passes_for_the_original(kind: str, plain: Path, request: Any) -> None:
    folder = plain
    if kind == "images":
        folder = plain.parent / "images"
        pictures = from_release(request.getfixturevalue("journey"), "images:8")
        few = [
            replace(s, unlabelled=None, splits={n: p.part(0, 3) for n, p in s.splits.items()}) for s in pictures.steps
        ]
        replace(pictures, steps=few[:2], prior=None).save(folder)
    original, tried, messages = read_all(folder), 0, []
    for path, _, _ in damaged(folder, (".json", ".npy")):
        tried += 1
        try:
            assert read_all(folder) == original, f"{path.name} was changed, and nobody noticed"
        except DriftlineError as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert len(messages) > 0.8 * tried, "the others changed padding or white space"
    assert not [text for text in messages if "\n" in text or len(text) > 1500]


def test_its_own_digest_covers_what_the_content_hash_leaves_out(plain: Path) -> None:
    path = plain / "stream.json"
    head = json.loads(path.read_text())
    for key, value in (("name", "another"), ("facts", {"published": "clear10/moco-yfcc-b0"}), ("sha256", "0" * 64)):
        path.write_text(json.dumps(head | {key: value}))
        with pytest.raises(IntegrityError, match=r"stream\.json was changed after it was written"):
            Stream.load(plain)


def test_a_stream_of_an_older_driftline_has_no_digest_and_opens(plain: Path) -> None:
    path = plain / "stream.json"
    head = json.loads(path.read_text())
    del head["digest"]
    path.write_text(json.dumps(head))
    Stream.load(plain).verify(plain)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": "no"}, "steps is 'no'"),
        ({"classes": []}, "classes is"),
        ({"steps": [{"index": -1, "name": "0", "splits": {}}]}, r"steps\.0\.index is -1"),
        ({"steps": [{"index": 0, "name": "0", "splits": {"../x": {}}}]}, "splits"),
        ({"format": 99}, "has the format 99; this driftline reads 1.*upgrade"),
        ({"format": "x"}, "has the format 'x'"),
    ],
)
def test_a_bad_field_is_named(plain: Path, change: dict[str, Any], words: str) -> None:
    path = plain / "stream.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BadInput, match=words):
        Stream.load(plain)


@pytest.mark.parametrize("code", [0xDF2D, 0x110000, 0xFFFFFFFF])
def test_ids_that_are_no_text_are_damage(plain: Path, code: int) -> None:
    path = plain / "step_00000" / "train_ids.npy"
    ids = np.load(path)
    ids.view(np.uint32)[0] = code
    np.lib.format.write_array(path.open("wb"), ids)
    with pytest.raises(IntegrityError, match="split train, of .* was changed"):
        Stream.load(plain).verify(plain)


def test_a_header_of_four_petabytes_is_refused_at_once(plain: Path) -> None:
    path = plain / "step_00000" / "train_x.npy"
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (12, 10**14)}
        np.lib.format.write_array_header_1_0(file, header)
    begun = time.process_time()
    with pytest.raises(IntegrityError, match=r"train_x\.npy"):
        Stream.load(plain)
    assert time.process_time() - begun < 1


def test_arrays_of_objects_are_never_unpickled(plain: Path) -> None:
    np.save(plain / "step_00000" / "train_ids.npy", np.array([{"a": 1}] * 12, dtype=object))
    with pytest.raises(IntegrityError, match=r"train_ids\.npy cannot be read as an array"):
        Stream.load(plain)


@pytest.mark.parametrize(
    "name", ["../../secret.tar", "/etc/passwd", "C:secret.tar", "a\\..\\b", "NUL", "nul.tar", "", "."]
)
def test_images_lie_inside(journey: Path, tmp_path: Path, name: str) -> None:
    from_release(journey, "images:16").save(tmp_path / "s")
    (tmp_path / "secret.tar").write_bytes(b"x")
    record = tmp_path / "s" / "step_00000" / "train_x.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "files": [name]}))
    with pytest.raises(BadInput, match="plain name of a file"):
        Stream.load(tmp_path / "s")


def test_links_that_leave_the_stream_are_refused(journey: Path, tmp_path: Path) -> None:
    from_release(journey, "images:16").save(tmp_path / "s")
    first = next((tmp_path / "s" / "files").iterdir())
    first.rename(tmp_path / "outside.tar")
    first.symlink_to(tmp_path / "outside.tar")
    with pytest.raises(IntegrityError, match="a link that leaves the folder"):
        Stream.load(tmp_path / "s")


@pytest.mark.parametrize(
    "name",
    ["../a", "a/../../b", "/a", "a//b", "C:/a", "c:a", "a\\b", "con", "LPT1.txt", "a/nul", "a\nb", "x" * 256, ""],
)
def test_one_function_joins_names_from_outside(tmp_path: Path, name: str) -> None:
    assert inside(tmp_path, "shards/bucket_00-00000.tar", tmp_path) == tmp_path / "shards" / "bucket_00-00000.tar"
    with pytest.raises(IntegrityError, match="names the file"):
        inside(tmp_path, name, tmp_path / "SHA256SUMS")


class TestEval:
    def test_a_changed_array_is_noticed_before_anything_is_evaluated(self, plain: Path, tmp_path: Path) -> None:
        path = plain / "step_00000" / "train_y.npy"
        np.save(path, 2 - np.load(path))
        done = self.evaluate(plain, tmp_path)
        assert done.returncode == 1
        assert "split train" in done.stderr
        assert "was changed" in done.stderr
        assert not list((tmp_path / "runs").rglob("run.json"))

    def evaluate(self, plain: Path, tmp_path: Path) -> Any:
        options = ("--protocol", "clear-iid", "--learners", "majority", "--out", str(tmp_path / "runs"))
        return driftline("eval", str(plain), *options)

    def test_content_is_hashed_once(self, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []
        monkeypatch.setattr(Stream, "verify", lambda self, folder: calls.append(folder))
        for _ in range(3):
            Stream.load(plain).verify_once(plain)
        assert len(calls) == 1
        path = plain / "step_00000" / "train_x.npy"
        path.write_bytes(path.read_bytes())  # the same size, another time
        Stream.load(plain).verify_once(plain)
        assert len(calls) == 2

    def test_a_forged_memory_does_not_help(self, plain: Path) -> None:
        Stream.load(plain).verify_once(plain)
        path = plain / "step_00000" / "train_y.npy"
        np.save(path, 2 - np.load(path))
        (plain / "verified.json").write_text('{"format": 1, "files": "' + fingerprint({}) + '"}')
        with pytest.raises(IntegrityError, match="was changed"):
            Stream.load(plain).verify_once(plain)


def test_an_npz_with_a_header_of_petabytes_is_one_sentence(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        for name, shape in (("x", (10**9, 10**6)), ("y", (10**9,))):
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with pytest.raises(BadInput, match=r"a\.npz cannot be read"):
        from_arrays(tmp_path / "a.npz")
