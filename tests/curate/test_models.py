"""Models come from a hub (here: one on loopback), from a folder or from training; a missing one is said at once."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.console import answer, driftline
from support.helpers import album, photo_config
from support.small_runs import unpacked

from driftline.curate.core.errors import BadInput, UnknownName
from driftline.curate.encoders.clip import Clip
from driftline.curate.encoders.weights import KNOWN, download, repository_of, within
from driftline.curate.pretrain.captions import captioned
from driftline.curate.release import Release
from driftline.pipelines.config.presets import write_run_file
from driftline.pipelines.stages.embed import BUILT_IN, built_in

MODEL = Path(built_in(BUILT_IN))
REPOSITORY = KNOWN["RN50:yfcc15m"].repository


class Hub(BaseHTTPRequestHandler):
    """Serves the demo's small model as the files of one repository."""

    def _answer(self, with_body: bool) -> None:
        prefix = f"/{REPOSITORY}/resolve/main/"
        file = MODEL / self.path.removeprefix(prefix)
        if not self.path.startswith(prefix) or not file.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if self.path.startswith(prefix) else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def with_hub(address: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own: the hub's library reads its variables when it is imported."""
    env = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home)}
    command = [sys.executable, "-m", "driftline.pipelines.cli", *words]
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
        assert {p.name for p in (tmp_path / "rn50").iterdir()} == {p.name for p in MODEL.iterdir()}
        assert Clip(str(tmp_path / "rn50")).width == 64

    def test_the_cache_is_known_afterwards(self, hub: str, tmp_path: Path) -> None:
        assert with_hub(hub, tmp_path / "home", "models", "get", "RN50:yfcc15m").returncode == 0
        listed = json.loads(with_hub("http://127.0.0.1:9", tmp_path / "home", "models", "list", "--json").stdout)
        assert [row["name"] for row in listed if row["present"]] == [BUILT_IN, "RN50:yfcc15m"]

    def test_a_repository_that_is_gone_is_one_message(self, hub: str, tmp_path: Path) -> None:
        done = with_hub(hub, tmp_path / "home", "models", "get", "RN50:openai")
        assert done.returncode == 1
        assert "its download failed" in done.stderr
        assert "Traceback" not in done.stderr

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(UnknownName, match="Did you mean 'RN50:yfcc15m'"):
            download("RN50:yfcc15")


class TestTrain:
    @pytest.fixture
    def fetched(self, tmp_path: Path) -> Path:
        """A run on photos in folders by class, up to fetch."""
        album(tmp_path / "run" / "photos")
        (tmp_path / "run" / "driftline.yaml").write_text(photo_config("  per_class: 6"))
        answer("run", str(tmp_path / "run"), "--until", "fetch", "--json")
        return tmp_path / "run"

    def test_a_model_of_class_names_is_used_by_a_run(self, fetched: Path, tmp_path: Path) -> None:
        out = tmp_path / "clip"
        result = answer("models", "train", str(fetched), "--out", str(out), "--epochs", "2", "--size", "32", "--json")
        assert (result["images"], result["texts"], len(result["loss"])) == (60, 2, 2)
        done = driftline("run", str(fetched), "--until", "embed", "--set", f"embed.model={out}", "--json")
        assert json.loads(done.stdout)["stages"][4]["counts"]["kept"] == 60
        weights = (out / "open_clip_model.safetensors").read_bytes()
        again = driftline("models", "train", str(fetched), "--out", str(out), "--epochs", "1", "--size", "32")
        assert (again.returncode, "clip holds a model. Set another --out" in again.stderr) == (2, True)
        assert (out / "open_clip_model.safetensors").read_bytes() == weights

    def test_photos_without_words_are_refused(self, fetched: Path, tmp_path: Path) -> None:
        answer("run", str(fetched), "--until", "fetch", "--set", "collection.label=none", "--json")
        with pytest.raises(BadInput, match=r"0 images with a caption.*collection\.label"):
            captioned(fetched, 32)

    def test_a_release_gives_its_classes_without_test_images(self, tmp_path: Path) -> None:
        release = Release.open(unpacked("finished", tmp_path))
        made = captioned(release.path, 32)
        trained = [row for row in release.table.to_pylist() if row["split_0"] != "test"]
        assert sorted(made.texts) == sorted(row["class"] for row in trained)
        assert len(made.images) == len(trained) < len(release.table)
