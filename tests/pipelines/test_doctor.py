"""What the doctor says of this machine."""

from __future__ import annotations

import numpy
import pytest

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
