"""examples/journey.py: the guide to Python shows it, and it runs as it is."""

import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "journey.py"


def test_the_guide_shows_the_script() -> None:
    text = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- python-journey -->\n```python\n")[2].partition("```")[0]
    assert shown == SCRIPT.read_text(encoding="utf-8")
    assert len(shown.splitlines()) <= 15


@pytest.mark.proof("journey")
def test_it_goes_from_photos_to_a_report(journey, tmp_path, monkeypatch, capsys):
    """On a world that is built already: `demo` repeats no finished part."""
    shutil.copytree(journey, tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(SCRIPT))
    printed = capsys.readouterr().out
    assert "publish done" in printed
    assert "nearest-mean" in printed
    assert printed.endswith("report: report/index.html\n")
    assert "nearest-mean" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    frame = found["results"].frame()
    assert {"stream", "protocol", "learner", "score", "seed", "value"} <= set(frame.columns)
    assert len(frame) == 4 * 2 * len(frame["score"].unique())
