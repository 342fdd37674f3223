"""A stream from elsewhere: damage is one sentence that names the file, and nothing outside its folder is read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import driftline
from support.helpers import drifting, grouped

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import IntegrityError
from driftline.curate.foreign.names import inside
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.stream import Stream


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    grouped(drifting(steps=2, n=12)).save(tmp_path / "plain")
    return tmp_path / "plain"


def test_its_own_digest_covers_what_the_content_hash_leaves_out(plain: Path) -> None:
    path = plain / "stream.json"
    head = json.loads(path.read_text())
    for key, value in (("name", "another"), ("facts", {"published": "clear10/moco-yfcc-b0"}), ("sha256", "0" * 64)):
        path.write_text(json.dumps(head | {key: value}))
        with pytest.raises(IntegrityError, match=r"stream\.json was changed after it was written"):
            Stream.load(plain)


@pytest.mark.parametrize("code", [0xDF2D, 0x110000, 0xFFFFFFFF])
def test_ids_that_are_no_text_are_damage(plain: Path, code: int) -> None:
    path = plain / "step_00000" / "train_ids.npy"
    ids = np.load(path)
    ids.view(np.uint32)[0] = code
    np.lib.format.write_array(path.open("wb"), ids)
    with pytest.raises(IntegrityError, match="split train, of .* was changed"):
        Stream.load(plain).verify(plain)


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
