"""Each recipe of docs/guides/extend.md, pasted inside: one file and one line in a copy of the tree pass lint, types and
the contracts that CONTRIBUTING.md names. A contract that reads what a part reads or writes gets the guide's sample."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from contracts.test_protocols import SMALL, vectors
from support.console import driftline
from support.helpers import drifting
from test_docs import EXTEND, OF_A_TEST, ROOT, blocks, save_modules

import driftline as dl

MODULE = re.compile(r"^```python\n(# mybench/\w+\.py\n.*?)^```$", re.S | re.M)
INSIDE = re.compile(
    r'Inside\s+driftline:\s+`([\w/]+\.py)`,\s+and\s+in\s+`(\w+)`\s+of\s+`([\w/]+\.py)`:\s+`("([\w-]+)": "[^`]+",)`'
)
COPIED = ("curate", "stream_builder", "eval", "pipelines", "driftline", "tests", "docs", "pyproject.toml", "README.md")
RULES = ("tests/test_imports.py", "tests/test_house.py")
CHECKED = ("downhill", "face", "by_its_folder", "siblings", "circle")  # tests of these files


@dataclass(frozen=True)
class Recipe:
    """One recipe, as the guide says where it goes."""

    code: str
    """of the file"""
    file: str
    """where it goes inside"""
    registry: str
    """name of the table"""
    table: str
    """file of the table"""
    line: str
    """of the table"""
    name: str
    """that the line registers"""

    def contracts(self) -> list[str]:
        """The test files that the row of its registry in CONTRIBUTING.md names."""
        text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        place = f"| `{Path(self.file).with_name('NAME.py')}`"
        table = f"| `{self.registry}` in `{self.table}` |"
        (row,) = [row for row in text.splitlines() if place in row and table in row]
        return re.findall(r"`(tests/[\w/]+\.py)`", row)


def recipes() -> list[Recipe]:
    """Each module of the guide, with the sentence after it that begins with "Inside driftline"."""
    text = EXTEND.read_text(encoding="utf-8")
    found = []
    for module in MODULE.finditer(text):
        end = MODULE.search(text, module.end())
        (place,) = INSIDE.findall(text[module.end() : end.start() if end else len(text)])
        found.append(Recipe(module[1].partition("\n")[2], *place))
    return found


def with_line(text: str, registry: str, line: str) -> str:
    """The source of a registry with one more line at its end."""
    head, opening, tail = text.partition(f"\n{registry} = Registry(")
    entries, closing, rest = tail.partition("\n    },\n")
    assert opening
    assert closing
    return f"{head}{opening}{entries}\n        {line}{closing}{rest}"


@pytest.fixture(scope="module")
def pasted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with all recipes in it."""
    tree = tmp_path_factory.mktemp("recipes")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True)
        else:
            shutil.copy2(ROOT / name, tree / name)
    for recipe in recipes():
        (tree / recipe.file).write_text(recipe.code, encoding="utf-8")
        table = tree / recipe.table
        table.write_text(with_line(table.read_text(encoding="utf-8"), recipe.registry, recipe.line), encoding="utf-8")
    for sample in blocks(EXTEND, "python"):
        if sample.startswith(OF_A_TEST):
            first, _, code = sample.partition("\n")
            with (tree / first.removeprefix("# ")).open("a", encoding="utf-8") as test:
                test.write(f"\n\n{code}")
    return tree


def run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A tool, in the copy: nothing of this process's own tests, which use the tree itself, is passed on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'tests'}", "PYTEST_XDIST_WORKER": "shares the journey"}
    return subprocess.run([sys.executable, "-m", *command], cwd=tree, env=environment, capture_output=True, text=True)


def test_every_recipe_says_where_it_goes_inside() -> None:
    assert len({(recipe.registry, recipe.table) for recipe in recipes()}) == len(recipes()) == 13
    for recipe in recipes():
        assert not (ROOT / recipe.file).exists()
        assert recipe.contracts()


def test_recipes_are_short_and_written_against_one_module() -> None:
    for recipe in recipes():
        assert set(re.findall(r"(?:from|import) (driftline[\w.]*)", recipe.code)) <= {"driftline.ext"}, recipe.name
    lines = {r.name: [line for line in r.code.partition("@dataclass")[2].splitlines() if line] for r in recipes()}
    assert len(lines["decayed-mean"]) <= 12
    assert len(lines["first-only"]) <= 25


@pytest.mark.proof("docs")
def test_lint_passes(pasted: Path) -> None:
    for command in (["check"], ["format", "--diff"]):
        linted = run(pasted, "ruff", *command, "--no-cache", ".")
        assert linted.returncode == 0, linted.stdout


@pytest.mark.proof("docs")
def test_types_pass(pasted: Path) -> None:
    files = [f"driftline/{recipe.file}" for recipe in recipes()]
    typed = run(pasted, "mypy", "--cache-dir", os.devnull, "--follow-imports", "silent", *files)
    assert typed.returncode == 0, typed.stdout


@pytest.mark.proof("docs")
def test_contracts_and_rules_of_imports_pass(pasted: Path, journey: Path) -> None:
    """The finished demo, on which exports are tested, is that of this process: it takes as long as all else here."""
    shutil.copytree(journey, pasted / "tmp" / "journey" / "demo")
    files = sorted({file for recipe in recipes() for file in recipe.contracts()} | set(RULES))
    names = [recipe.name for recipe in recipes()]
    chosen = " or ".join([*(f"[{name}] or [{name}- or -{name}]" for name in names), *CHECKED])
    tested = run(pasted, "pytest", "-vv", "--basetemp", str(pasted / "tmp" / "worker"), *files, "-k", chosen)
    assert tested.returncode == 0, tested.stdout[-5000:]
    for recipe in recipes():
        results = re.findall(rf"\[(?:\S+-)?{recipe.name}(?:-\S+)?\] ([A-Z]+)", tested.stdout)
        assert "PASSED" in results, f"no contract tests {recipe.name}: {recipe.contracts()}"


@pytest.mark.proof("docs")
def test_the_protocol_of_the_guide_is_submitted_run_again_and_ranked(tmp_path: Path) -> None:
    save_modules(EXTEND, tmp_path)
    drifting(steps=3, drift=0.1).save(tmp_path / "S")
    ours = ["--plugin", "mybench.protocol:FirstOnly"]

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        return driftline(*words, here=tmp_path)

    words = ["--protocol", ours[1], "--learners", "nearest-mean,majority", "--seeds", "0-2", "--out", "runs"]
    assert done("eval", "S", *words).returncode == 0
    refused = done("submit", "runs", "--name", "Ours", "--out", "ours.zip")
    assert (refused.returncode, "--plugin" in refused.stderr) == (1, True)
    submitted = done("submit", "runs", "--name", "Ours", "--out", "ours.zip", *ours)
    assert submitted.returncode == 0, submitted.stderr

    checked = done("verify", "ours.zip", "--stream", "S", "--again", "1", "--json", *ours)
    assert checked.returncode == 0, checked.stderr
    (again,) = json.loads(checked.stdout)["again"]
    assert (again["protocol"], again["differs"]) == (ours[1], "")
    ranked = done("leaderboard", "ours.zip", "--stream", "S", "--again", "0", "--out", "board.md", *ours)
    assert ranked.returncode == 0, ranked.stderr
    board = (tmp_path / "board.md").read_text(encoding="utf-8")
    assert f"## {ours[1]} on drifting" in board
    assert re.search(r"\| learner \| last_step \| errors_added \|.*\| nearest-mean \| \*\*", board, re.S)


def module_of_the_guide() -> Any:
    """The learner that the page on Python wraps around a torch module."""
    (example,) = [block for block in blocks(ROOT / "docs" / "guides" / "python.md", "python") if "Torch(" in block]
    names: dict[str, Any] = {"dl": dl}
    exec("\n".join(line for line in example.splitlines() if not line.startswith("dl.")), names)
    return names["network"]


def test_the_module_of_the_guide_takes_the_updates_that_a_stream_pays_for() -> None:
    settings = {"batch": 8, "shift": 8, "updates": 2, "fc-only.lr": 0.1}
    own, ours = dl.evaluate(vectors(), "near-future", [module_of_the_guide(), "fc-only"], settings=settings)["results"]
    assert own["budget"] == ours["budget"]
    assert own["budget"]["updates_taken"] >= 0.95 * own["budget"]["updates_paid"] > 0


def test_the_module_of_the_guide_stands_apart_where_all_others_train_one_network() -> None:
    results = dl.evaluate(vectors(), "seq-to-final", [module_of_the_guide(), "ft"], settings=SMALL["seq-to-final"])
    own, ours = results["results"]
    assert (bool(own.get("rules")), bool(ours.get("rules"))) == (True, False)
