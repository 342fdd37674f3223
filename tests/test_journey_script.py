"""examples/journey.py: the README shows it, and it runs as it is."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from support.console import driftline

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "journey.py"


def test_the_readme_shows_the_script() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- python-journey -->\n```python\n")[2].partition("```")[0]
    assert shown == SCRIPT.read_text(encoding="utf-8")
    assert len(shown.splitlines()) <= 15


@pytest.mark.proof("journey")
def test_it_goes_from_photos_to_a_report(
    journey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a world that is built already: `demo` repeats no finished part."""
    shutil.copytree(journey, tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(SCRIPT))
    printed = capsys.readouterr().out
    assert "publish done" in printed
    assert "nearest-mean" in printed
    assert printed.endswith("report: report/index.html\n")
    assert "nearest-mean" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    of_command(tmp_path)
    frame = found["results"].frame()
    assert {"stream", "protocol", "learner", "score", "seed", "value"} <= set(frame.columns)
    assert len(frame) == 4 * 2 * len(frame["score"].unique())


def of_command(folder: Path) -> None:
    """The README's commands on the same folder give the stream, the rows and the page of the script, byte for byte."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    make = next(line for line in readme.splitlines() if line.startswith("$ driftline stream from-release"))
    view = next(line for line in readme.splitlines() if line.startswith("$ driftline report"))
    learners = "--learners majority,nearest-mean,finetune,er --seeds 0-1 --out runs"
    for words in (
        make.replace("--out stream", "--out of-command/stream"),
        f"$ driftline eval of-command/stream --protocol clear-iid {learners}",
        view.replace("online-runs ", "").replace("--out report", "--out of-command/report"),
    ):
        done = driftline(*words.split()[2:], here=folder)
        assert done.returncode == 0, done.stderr
    for name in ("stream", "report"):
        pages, others = map(files_of, (folder / name, folder / "of-command" / name))
        assert pages == others, [str(key) for key in pages | others if pages.get(key) != others.get(key)]
    assert len(list((folder / "runs").rglob("run.json"))) == 8, "the command ran nothing again"


def files_of(folder: Path) -> dict[Path, bytes]:
    """What is in a folder, without the mark that its hashes were checked."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "verified.json"]
    return {path.relative_to(folder): path.read_bytes() for path in paths}
