"""The notebooks of examples/: six scripts, and what Colab opens is made of them (test_wheel.py runs them)."""

import json
import runpy
from pathlib import Path

import pytest
from support.notebooks import cells

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.py") if path.name != "ipynb.py")


def test_there_is_one_for_each_topic() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "photos_to_report", "prompts", "reading_results", "shifts", "your_learner", "your_log",
    ]  # fmt: skip
    listed = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    assert all(f"examples/notebooks/{path.stem}.py" in listed for path in NOTEBOOKS)


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
