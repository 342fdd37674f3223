"""The house keeps its shape: no circle of imports, no loose file at the top of curate, files, functions and folders of
a size, no test that any draw passes, a small twin for each test that needs shared data, and a test for each option."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
from test_imports import FILES, ROOMS, ROOT, imported, module_of

from driftline.pipelines.cli.app import app

MOST_LINES, MEDIAN, MOST_ENTRIES, MOST_ROOMS = 400, 100, 14, 15
# One file a method or a group of commands: the folder listing is the list of them.
CATALOGUES = {"eval/learners", "stream_builder/shifts", "pipelines/cli"}


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


LONGEST = 80


def test_no_function_is_longer_than_80_lines() -> None:
    """How many ways lead through it, `make lint` holds: at most 20."""
    long = {
        f"{path.relative_to(ROOT)} {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= LONGEST
    }
    assert not long


MARKS = {"done.json", "begun.json", "record.json"}


def test_one_module_alone_reads_and_writes_the_marks_of_a_run() -> None:
    named = {
        str(path.relative_to(ROOT))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in MARKS
    }
    assert named == {"pipelines/run/state.py", "curate/core/files/digests.py"}, "digests leaves them out of a listing"


OPENER = {"curate/core/outside/images.py"}


def preparations(path: Path) -> list[str]:
    """Calls that turn a picture or change its mode to RGB, which only the opener does."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    to_rgb = [n for n in calls if n.func.attr == "convert" and any(ast.unparse(a) == "'RGB'" for a in n.args)]
    turning = [n for n in calls if n.func.attr == "exif_transpose"]
    return [f"{path.relative_to(ROOT)}:{node.lineno}" for node in (*to_rgb, *turning)]


UNBOUNDED = {"pq.read_table", "pq.ParquetFile", "pd.read_parquet", "pd.read_csv", "pd.read_pickle", "json.load",
             "pickle.load", "pickle.loads", "torch.load", "np.load", "h5py.File", "sqlite3.connect"}  # fmt: skip
BOUNDED = {  # file or folder → why it may: its own limits, or only files that the same run wrote
    "curate/core/outside": "the limits themselves",
    "stream_builder/importers/pickles.py": "weights only; sizes are checked after",
    "curate/encoders/backbone.py": "weights only; members are checked before",
    "stream_builder/builders/time_order.py": "one data set inside the file, with its size",
    "curate/sources/yfcc/reading.py": "read only, text by text",
    "pipelines/web/thumbnails.py": "the cache of this user",
    **dict.fromkeys(
        ("curate/embedding", "curate/fetch", "curate/metadata/filtering.py",
         "curate/metadata/released_ids.py", "curate/pretrain", "curate/release/composing",
         "curate/release/compose.py", "curate/release/packing.py", "curate/retrieval", "curate/sources/inaturalist.py",
         "pipelines/annotation",
         "pipelines/browse/vectors.py", "pipelines/forecast", "pipelines/prompt_explorer", "pipelines/reporting",
         "pipelines/run", "pipelines/stages"),
        "output of stages of the run",
    ),
}  # fmt: skip


def test_files_from_outside_are_read_within_limits() -> None:
    """`read_parquet`, `BoundedParquet`, `read_json`, `read_arrays`, `read_pickle`, `connect` have limits."""
    calls = {
        path.relative_to(ROOT).as_posix(): {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call)
        }
        for path in FILES
    }
    unbounded = {name for name, called in calls.items() if called & UNBOUNDED}
    excused = {name: place for name in unbounded for place in BOUNDED if name == place or name.startswith(f"{place}/")}
    assert sorted(unbounded - excused.keys()) == []
    assert sorted(BOUNDED.keys() - set(excused.values())) == [], "is excused, and does no such thing"


def test_one_module_alone_prepares_pictures() -> None:
    """`as_rgb`: upright, over white, scaled to 8 bits. Another convert("RGB") shows models another picture."""
    places = [place for path in FILES for place in preparations(path)]
    assert {place.partition(":")[0] for place in places} == OPENER


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


TESTS = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "tests").rglob("test_*.py"))}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def claims(test: ast.FunctionDef) -> list[ast.expr | None]:
    """What a test asserts; None: that something is raised, or that a function of `numpy.testing` or its own agrees."""
    found: list[ast.expr | None] = []
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            found += node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].startswith(("raises", "assert_")):
            found.append(None)
    return found


def proves_little(claim: ast.expr | None) -> bool:
    """a != b, len({…}) > 1 or f(x) == f(x): true of nearly every draw, and of a function that always gives the same."""
    if isinstance(claim, ast.UnaryOp) and isinstance(claim.operand, ast.Call):
        return ast.unparse(claim.operand.func) in ("np.array_equal", "np.allclose", "torch.equal")
    if isinstance(claim, ast.Call) and isinstance(claim.func, ast.Attribute) and claim.func.attr in ("any", "all"):
        claim = claim.func.value
    if not isinstance(claim, ast.Compare) or len(claim.ops) != 1:
        return False
    left, right = claim.left, claim.comparators[0]
    if isinstance(claim.ops[0], ast.NotEq):
        return not isinstance(right, ast.Constant)
    if isinstance(claim.ops[0], ast.Gt):
        return ast.unparse(left).startswith(("len(set(", "len({")) and ast.unparse(right) == "1"
    same = ast.dump(left) == ast.dump(right) and any(isinstance(node, ast.Call) for node in ast.walk(left))
    return isinstance(claim.ops[0], ast.Eq) and same


def passes_for_any_draw(test: ast.FunctionDef) -> bool:
    found = claims(test)
    return bool(found) and all(map(proves_little, found))


def test_no_test_passes_for_any_draw() -> None:
    """Two seeds that differ may share nearly everything: `support.worlds.across_seeds` says what draws must show."""
    weak = [
        f"{path.relative_to(ROOT)}:{test.lineno} {test.name}"
        for path, tree in TESTS.items()
        for test in functions(tree)
        if test.name.startswith("test") and passes_for_any_draw(test)
    ]
    assert not weak


@pytest.mark.parametrize(
    ("text", "weak"),
    [
        ("assert draw(0) != draw(1)", True),
        ("assert draw(0) == draw(0)", True),
        ("assert not np.array_equal(a, b)", True),
        ("assert len({draw(k) for k in range(3)}) > 1", True),
        ("assert draw(0) != draw(1)\n  assert draw(0) == [3, 1]", False),
        ("assert shuffled(x) == sorted(x)", False),
        ("assert done.returncode != 0", False),
    ],
)
def test_a_test_that_passes_for_any_draw_would_be_seen(text: str, weak: bool) -> None:
    assert passes_for_any_draw(next(functions(ast.parse(f"def test():\n  {text}")))) == weak


def twins(node: ast.FunctionDef | ast.Module) -> list[str]:
    """The twins that the marks of a test, or the `pytestmark` of its file, name."""
    of_file = [] if isinstance(node, ast.FunctionDef) else [n for n in node.body if isinstance(n, ast.Assign)]
    marks: list[ast.AST] = [*(node.decorator_list if isinstance(node, ast.FunctionDef) else of_file)]
    calls = [call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call)]
    return [
        ast.literal_eval(word.value)
        for call in calls if ast.unparse(call.func) == "pytest.mark.shared"
        for word in call.keywords if word.arg == "twin"
    ]  # fmt: skip


def test_what_needs_shared_data_has_a_small_twin() -> None:
    """`shared(twin="tests/….py::name")`, on the test or on its file: the same idea on made data, which always runs."""
    names = {f"{path.relative_to(ROOT)}::{test.name}" for path, tree in TESTS.items() for test in functions(tree)}
    lacking, unknown = [], []
    for path, tree in TESTS.items():
        if '/ "shared"' in path.read_text(encoding="utf-8") and path.name != "test_house.py":
            lacking += [] if "shared(" in path.read_text(encoding="utf-8") else [str(path.relative_to(ROOT))]
        needs = {"shared"}
        for _ in range(3):  # fixtures of fixtures
            needs |= {f.name for f in functions(tree) if needs & {a.arg for a in f.args.args}} - {"test"}
        for test in functions(tree):
            if not test.name.startswith("test"):
                continue
            marked = any("shared" in ast.unparse(mark) for mark in test.decorator_list)
            if marked or needs & {a.arg for a in test.args.args}:
                of_test = twins(test) or twins(tree)
                lacking += [] if of_test else [f"{path.relative_to(ROOT)}::{test.name}"]
                unknown += [twin for twin in of_test if twin not in names]
    assert not lacking
    assert not unknown


OF_EVERY_COMMAND = {"--json", "--quiet", "--verbose", "--help"}  # tests/pipelines/test_cli.py


def options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """(words of a command, spellings of an option of it), of all commands."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*path, name))
    for option in () if hasattr(command, "commands") else command.params:
        spellings = [word for word in (*option.opts, *option.secondary_opts) if word.startswith("--")]
        if spellings and not OF_EVERY_COMMAND & {*spellings}:
            yield path, spellings


def untested(of_commands: Iterable[tuple[tuple[str, ...], list[str]]], tests: Iterable[ast.AST]) -> list[str]:
    """Options that are in no file of tests that has the words of their command, too."""
    texts = [
        [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)] for tree in tests
    ]
    words = [{word.partition("=")[0] for text in of_file for word in text.split()} for of_file in texts]
    return [
        " ".join((*path, spellings[0]))
        for path, spellings in of_commands
        if not any({*path} <= found and {*spellings} & found for found in words)
    ]


def test_every_option_is_in_a_test_of_its_command() -> None:
    """Which says what it is for, not only that it is accepted."""
    assert not untested(options(typer.main.get_command(app)), TESTS.values())


def test_an_option_without_a_test_would_be_seen() -> None:
    tests = [ast.parse(text) for text in ("run('stream', 'show', '--out=x')", "run('show', '--all')", "'stream'")]
    both = [(("stream", "show"), ["--out"]), (("stream", "show"), ["--all", "--none"])]
    assert untested(both, tests) == ["stream show --all"]
