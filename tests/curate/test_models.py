"""Models come from a hub (here: one on loopback), from a folder or from training; a missing one is said at once."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.console import driftline
from support.helpers import album
from support.stand_ins import Answer, Query, StandIn, serve

from driftline.curate.core.errors import UnknownName
from driftline.curate.encoders.clip import Clip
from driftline.curate.encoders.weights import FILE, KNOWN, download, repository_of, within
from driftline.curate.pretrain.small_clip import held_out
from driftline.pipelines.config.presets import write_run_file
from driftline.pipelines.stages.embed import BUILT_IN, built_in

MODEL = Path(built_in(BUILT_IN))
REPOSITORY = KNOWN["RN50:yfcc15m"].repository


class Hub(StandIn):
    """Serves the demo's small model as the files of one repository."""

    def reply(self, method: str, path: str, query: Query, headers: Any, body: bytes) -> Answer:
        prefix = f"/{REPOSITORY}/resolve/main/"
        file = MODEL / path.removeprefix(prefix)
        if not path.startswith(prefix) or not file.is_file():
            return 404, b"", {"X-Error-Code": "EntryNotFound" if path.startswith(prefix) else "RepoNotFound"}
        data = file.read_bytes()
        return 200, data, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": "a" * 40}


@pytest.fixture
def hub() -> Iterator[str]:
    with serve(Hub()) as running:
        yield running.address


def with_hub(address: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own: the hub's library reads its variables when it is imported."""
    env = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home)}
    command = [sys.executable, "-m", "driftline", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


class TestNoModel:
    def test_it_is_said_before_torch_is_imported(self, tmp_path: Path) -> None:
        code = (
            "import sys\n"
            "from driftline.curate.core.errors import MissingFile\n"
            "from driftline.curate.encoders.weights import check_weights\n"
            "try:\n"
            "    check_weights('ViT-B-32', 'openai')\n"
            "except MissingFile as error:\n"
            "    print(error)\n"
            "assert 'torch' not in sys.modules and 'open_clip' not in sys.modules\n"
        )
        env = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
        assert (
            "The model ViT-B-32 (openai, 605 MB) is not on this machine, and 127.0.0.1 does not answer." in done.stdout
        )

    def test_a_run_ends_with_one_message_that_names_three_ways_out(self, tmp_path: Path) -> None:
        album(tmp_path / "photos")
        write_run_file(tmp_path, "folder")
        done = with_hub("http://127.0.0.1:9", tmp_path / "home", "run", str(tmp_path))
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        for way in ("driftline models get", "driftline models train", "embed.from"):
            assert way in done.stderr
        assert not (tmp_path / "stages").exists()

    def test_a_silent_name_server_costs_seconds(self) -> None:
        started = time.monotonic()
        assert not within(0.05, lambda: bool(time.sleep(30) or True))
        assert time.monotonic() - started < 10

    def test_local_models_have_no_repository(self) -> None:
        assert repository_of(str(MODEL), None) is None
        assert repository_of("hf-hub:org/name@main", None) == "org/name"


class TestGet:
    def test_a_folder_that_can_be_copied_to_another_machine(self, hub: str, tmp_path: Path) -> None:
        done = with_hub(hub, tmp_path / "home", "models", "get", "RN50:yfcc15m", "--out", str(tmp_path / "rn50"))
        assert done.returncode == 0, done.stderr
        assert f"--set embed.model={tmp_path / 'rn50'} --set embed.weights=null" in done.stdout
        assert {p.name for p in (tmp_path / "rn50").iterdir()} == {p.name for p in MODEL.iterdir()} - {FILE}
        assert Clip(str(tmp_path / "rn50")).width == 64

    def test_the_cache_is_known_afterwards(self, hub: str, tmp_path: Path) -> None:
        assert with_hub(hub, tmp_path / "home", "models", "get", "RN50:yfcc15m").returncode == 0
        listed = json.loads(with_hub("http://127.0.0.1:9", tmp_path / "home", "list", "models", "--json").stdout)
        assert [row["name"] for row in listed if row["present"]] == [BUILT_IN, "RN50:yfcc15m"]

    def test_a_repository_that_is_gone_is_one_message(self, hub: str, tmp_path: Path) -> None:
        done = with_hub(hub, tmp_path / "home", "models", "get", "RN50:openai")
        assert done.returncode == 1
        assert "its download failed" in done.stderr
        assert "Traceback" not in done.stderr

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(UnknownName, match="Did you mean 'RN50:yfcc15m'"):
            download("RN50:yfcc15")


COLOURS = {
    "red": (230, 30, 30), "orange": (240, 140, 20), "yellow": (230, 230, 30), "green": (30, 160, 40),
    "cyan": (30, 210, 210), "blue": (30, 40, 220), "violet": (130, 40, 220), "pink": (240, 120, 200),
    "white": (245, 245, 245), "grey": (128, 128, 128), "brown": (120, 70, 30), "black": (15, 15, 15),
}  # fmt: skip
RUN = """
collection: {source: folder, path: photos, dates: [path]}
filter: {upload_after_capture: false}
buckets: {kind: calendar, unlabelled: []}
embed: {model: ViT-B-32, weights: openai}
retrieve: {per_class: 30, depth: 1000, background_share: 0, short: fewer, concepts: [CONCEPTS]}
release: {own: true}
"""


ALIKE = "{name: red, prompts: [red above blue]}, {name: twin, prompts: [Red above blue]}"  # of one vector


def write_run(folder: Path, concepts: str, titled: bool) -> Path:
    """Photos of one colour above another, named so or by numbers."""
    (folder / "photos").mkdir(parents=True)
    (folder / "driftline.yaml").write_text(RUN.replace("CONCEPTS", concepts))
    for i, ((above, one), (below, other)) in enumerate(product(COLOURS.items(), COLOURS.items())):
        for width in (0, 8):
            pixels = np.empty((48, 48, 3), np.uint8)
            pixels[:24], pixels[24:] = one, other
            pixels[:, :width] = 0
            title = f"{above} above {below}{' behind a post' if width else ''}" if titled else f"IMG_{i:04d}_{width}"
            Image.fromarray(pixels).save(folder / "photos" / f"2010-05-01 {title}.png")
    return folder


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub does not answer, and its cache is empty."""
    monkeypatch.setattr("driftline.curate.encoders.weights.hub_answers", lambda: False)
    monkeypatch.setattr("driftline.curate.encoders.weights.is_here", lambda repository: False)


@pytest.mark.usefixtures("offline")
class TestTrain:
    """As a person does: no model, photos named by numbers; then named by what they show; then the run again."""

    def test_names_of_files_are_refused_before_a_model_is_written(self, tmp_path: Path) -> None:
        run = write_run(tmp_path / "run", "red", titled=False)
        assert driftline("run", str(run), "--until", "fetch").returncode == 0
        done = driftline("models", "train", str(run), "--out", str(tmp_path / "clip"))
        assert done.returncode == 1
        assert "has 0 different captions, labels or titles of words. Expected at least 200" in done.stderr
        assert "driftline models get" in done.stderr
        assert not (tmp_path / "clip").exists()

    def test_a_model_of_titles_is_measured_used_and_kept(self, tmp_path: Path) -> None:
        run = write_run(tmp_path / "run", ALIKE + ", dog", titled=True)
        assert "driftline models get ViT-B-32:openai" in driftline("run", str(run)).stderr
        driftline("run", str(run), "--until", "fetch")
        trained = driftline(
            "models", "train", str(run), "--out", str(tmp_path / "clip"), "--size", "32", "--epochs", "8"
        )
        assert trained.returncode == 0, trained.stderr
        found, chance = map(float, re.findall(r"Held out: ([\d.]+)% .* by chance ([\d.]+)%", trained.stdout)[0])
        assert (found > 50, chance) == (True, 4.0)
        again = driftline("models", "train", str(run), "--out", str(tmp_path / "clip"))
        assert (again.returncode, "clip holds a model. Set another --out" in again.stderr) == (2, True)

        use = shlex.split(trained.stdout.split("Use it: ")[1])
        until = ("--until", "retrieve")
        first = driftline("run", str(run), *until, *use)
        assert (first.returncode, "retrieve: no candidates for twin: change" in first.stderr) == (0, True)
        kept = "Kept from the last run: " + " ".join(use)
        once_more = driftline("run", str(run), *until)
        assert (once_more.returncode, kept in once_more.stderr) == (0, True)
        planned = driftline("plan", str(run), *until).stdout
        assert (kept in planned, "candidates no candidates for twin: change" in planned) == (True, True)
        fewer = driftline("run", str(run), *until, "--set", "retrieve.per_class=144")
        assert (fewer.returncode, kept in fewer.stderr) == (0, True)

        edited = (run / "driftline.yaml").read_text().replace("ViT-B-32", "RN50")
        (run / "driftline.yaml").write_text(edited)
        assert "RN50" in driftline("run", str(run), *until).stderr


def test_the_share_that_is_found_is_of_texts_whose_photo_or_one_of_equal_text_is_near() -> None:
    images = np.eye(40, dtype=np.float32)
    texts = images[[1, 0, *range(2, 40)]]
    words = ["a", "a", "b", "b", *map(str, range(36))]
    found = held_out(images, texts, words)
    assert (found.texts, found.first, found.found, found.is_better) == (40, 2, 1.0, True)
    twice = 1 - (38 / 40) * (37 / 39)
    assert found.chance == pytest.approx((36 * 2 / 40 + 4 * twice) / 40)
    assert held_out(images, -images, [*map(str, range(40))]).found == 0
    assert not held_out(images, -images, [*map(str, range(40))]).is_better
