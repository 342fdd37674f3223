"""Workflows: they parse, name what exists, and pin what they run."""

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.notebooks import cells

from driftline.curate.release.data_card import UNWRITTEN

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_and_make_targets_exist(path: Path) -> None:
    for step in steps(path):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}")), step
        for target in re.findall(r"\bmake ([a-z]+)", step.get("run", "")):
            assert target in TARGETS, step
        for script in re.findall(r"\bpython ([\w/]+\.py)", step.get("run", "")):
            assert (ROOT / script).is_file(), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_may_only_read_but_for_the_one_that_publishes(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    writers = {name for name, job in workflow["jobs"].items() if "write" in (job.get("permissions") or {}).values()}
    assert writers <= {"publish"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


# ---- the cards in `data_cards/` have no missing sections


CARDS = Path(__file__).resolve().parents[1] / "data_cards"


@pytest.mark.parametrize("card", sorted(CARDS.glob("*.md")), ids=lambda p: p.stem)
def test_no_card_has_a_missing_section(card: Path) -> None:
    assert UNWRITTEN not in card.read_text()


def test_the_template_is_that_of_the_code() -> None:
    template = CARDS.parent / "curate" / "release" / "templates" / "card.md.j2"
    assert (CARDS / "template.md.j2").resolve() == template.resolve()


# ---- the notebooks of examples/: six scripts, and what Colab opens is made of them (test_wheel.py runs them)


FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.py") if path.name != "ipynb.py")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_colab_opens_is_made_of_the_script(path: Path) -> None:
    script = path.read_text(encoding="utf-8")
    made = runpy.run_path(str(FOLDER / "ipynb.py"))["notebook"](script)
    assert path.with_suffix(".ipynb").read_text(encoding="utf-8") == made, "python examples/notebooks/ipynb.py"
    code = ["".join(c["source"]) for c in json.loads(made)["cells"] if c["cell_type"] == "code"]
    assert code == [cell.strip() for cell in cells(script)]
    assert f"/blob/main/examples/notebooks/{path.stem}.ipynb)" in script.partition("\n# %%\n")[0]


def test_every_link_to_colab_names_the_projects_repository() -> None:
    made = runpy.run_path(str(FOLDER / "ipynb.py"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    texts = {
        p: p.read_text(encoding="utf-8") for p in (*FOLDER.glob("*"), *(ROOT / "docs").rglob("*.md")) if p.is_file()
    }
    linking = {path: text for path, text in texts.items() if made["COLAB"].search(text)}
    assert {path.stem for path in linking if path.suffix == ".md"} == {made["TABLE"].stem}
    assert {path.stem for path in linking if path.suffix != ".md"} == {path.stem for path in NOTEBOOKS}
    for path, text in linking.items():
        assert made["with_links"](text, project) == text, f"{path}: python examples/notebooks/ipynb.py"
    moved = project.replace("github.com/driftline/driftline", "github.com/else/where")
    assert "/github/else/where/blob/main/" in made["with_links"](linking[made["TABLE"]], moved)


# ---- examples/journey.py: the guide to Python shows it, and it runs as it is


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
