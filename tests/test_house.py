"""The house keeps its shape: no circle of imports, no loose file at the top of curate, files and folders of a size."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from test_imports import FILES, ROOMS, ROOT, imported, module_of

MOST_LINES, MEDIAN, MOST_ENTRIES, MOST_ROOMS = 400, 100, 14, 15
# One file a method: the folder listing is the list of methods.
CATALOGUES = {"eval/learners", "stream_builder/shifts"}


def graph() -> dict[str, set[str]]:
    """Module → the project's modules that it imports, at its top or later."""
    modules = {module_of(path) for path in FILES}
    found = {}
    for path in FILES:
        names = imported(path) & modules - {module_of(path)}
        found[module_of(path)] = {n for n in names if not any(m.startswith(f"{n}.") for m in names)}  # import of a part
    return found


def circles(arrows: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Every circle that a walk in depth comes upon."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> Iterator[list[str]]:
        if module in path:
            yield [*path[path.index(module) :], module]
        elif module not in done:
            for target in sorted(arrows.get(module, ())):
                yield from walk(target, [*path, module])
            done.add(module)

    for module in sorted(arrows):
        yield from walk(module, [])


def test_no_circle_of_imports() -> None:
    assert list(circles(graph())) == []


def test_a_circle_would_be_seen() -> None:
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == [["a", "b", "c", "a"]]


def test_no_file_is_longer_than_400_lines_and_half_have_less_than_100() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = sorted(str(path.relative_to(ROOT)) for path, n in lines.items() if n > MOST_LINES)
    assert not long
    assert statistics.median(lines.values()) <= MEDIAN


FOLDERS = sorted({path.parent for path in FILES})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_no_folder_holds_more_than_one_sees_at_once(folder: Path) -> None:
    if str(folder.relative_to(ROOT)) in CATALOGUES:
        return
    files = [p.name for p in folder.glob("*.py") if p.name != "__init__.py"]
    rooms = [p.name for p in folder.iterdir() if (p / "__init__.py").is_file()]
    assert len(files) <= MOST_ENTRIES
    assert len(rooms) <= MOST_ROOMS


def test_curate_has_no_loose_file() -> None:
    assert [p.name for p in (ROOT / "curate").glob("*.py")] == ["__init__.py"]
    assert {room for room in ROOMS if not (ROOT / room / "__init__.py").is_file()} == set()
