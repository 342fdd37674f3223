"""The table of `make mutants` fits the source; its runner tells a line that tests see from one that they do not."""

from pathlib import Path

import pytest
from mutants.fresh import run
from mutants.table import Mutant, problems, read

SOURCE = "def wanted(n, share):\n    return max(1, round(n * share))\n"
TESTS = "from pieces import wanted\n\n\ndef test_a_tenth_of_twenty():\n    assert wanted(20, 0.1) == 2\n"


def mutant(before: str, after: str) -> Mutant:
    return Mutant(f"{before} → {after}", "pieces.py", before, after, ("test_pieces.py",))


def tree(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "pieces.py").write_text(SOURCE)
    (folder / "test_pieces.py").write_text(TESTS)
    return folder


def test_every_line_of_the_table_is_still_the_only_one_of_its_file() -> None:
    mutants = read()
    assert problems(mutants) == []
    assert len(mutants) >= 250


def test_a_line_that_is_gone_twice_there_or_no_python_is_said(tmp_path: Path) -> None:
    mutants = [mutant(*change) for change in (("floor", "ceil"), ("n", "m"), ("max(", "max"), ("1", "2"))]
    gone, twice, no_python = problems(mutants, tree(tmp_path))
    assert "has 'floor' 0 times" in gone
    assert "has 'n' 5 times" in twice
    assert "max( → max: " in no_python


def test_a_mutant_that_no_test_sees_survives_and_the_tree_stays_as_it_is(tmp_path: Path) -> None:
    seen, unseen = run([mutant("n * share", "n + share"), mutant("max(1", "max(0")], tree(tmp_path))
    assert seen.by == "test_pieces.py::test_a_tenth_of_twenty"
    assert unseen.by == ""
    assert (tmp_path / "pieces.py").read_text() == SOURCE


def test_a_module_of_another_tree_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pieces.py").write_text(SOURCE)
    with pytest.raises(RuntimeError, match=r"(?s)elsewhere.*other/pieces.py"):  # forked processes have it already
        run([mutant("n * share", "n + share")], tree(tmp_path / "tree"), imported=tmp_path / "other")


def test_a_package_of_links_is_copied_as_links(tmp_path: Path) -> None:
    """As driftline/curate is one to curate/: followed, the wrong line would be in one of two files."""
    tree(tmp_path / "rooms")
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "rooms").symlink_to("../rooms")
    (tmp_path / "test_house.py").write_text(TESTS.replace("pieces", "house.rooms.pieces"))
    wrong = Mutant("plus", "rooms/pieces.py", "n * share", "n + share", ("test_house.py",))
    assert [outcome.by for outcome in run([wrong], tmp_path)] == ["test_house.py::test_a_tenth_of_twenty"]
