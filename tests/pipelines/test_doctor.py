"""What the doctor says of this machine, and of a run."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from support.console import answer
from support.helpers import album, photo_config

from driftline.eval.engine.fused import kind
from driftline.pipelines.cli.doctor import OPTIONAL, examine, text


def test_it_examines_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examine(seconds=0.05)
    assert found["packages"]["numpy"] == numpy.__version__
    assert found["kernel"] == kind()
    assert found["optional"].keys() == OPTIONAL.keys()
    assert found["models"][0] == "driftline-photo-world"
    assert min(found["speed"].values()) > 1
    assert "updates a second" in text(found)
    monkeypatch.setattr("driftline.pipelines.cli.doctor._version", lambda package: None)
    monkeypatch.setenv("DRIFTLINE_KERNEL", "off")
    poor = examine(seconds=0.05)
    assert poor["kernel"] == "torch"
    assert "not installed: pip install 'driftline[heic]'" in text(poor)


def test_it_says_what_a_run_would_miss(tmp_path: Path) -> None:
    album(tmp_path / "photos")
    (tmp_path / "driftline.yaml").write_text(photo_config("  per_class: 6").replace("path: photos", "path: elsewhere"))
    found = answer("doctor", str(tmp_path), "--json")
    assert "elsewhere" in found["problems"][0]
