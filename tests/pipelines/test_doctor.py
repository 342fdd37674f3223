"""What the doctor says of this machine."""

import numpy
import pytest
from support.console import document, inside

from driftline.eval.engine.fused import kind


def test_it_examines_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = document("doctor")
    assert found["packages"]["numpy"] == numpy.__version__
    assert found["kernel"] == kind()
    monkeypatch.setattr("driftline.pipelines.commands.start._version", lambda package: None)
    poor = inside("doctor").stdout
    assert "missing       torch, " in poor
    assert "kernel        None" in poor
