"""Imports run downhill: pipelines → eval → stream_builder → curate, through two doors, and siblings never meet."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import typer.main
from support.small_runs import unpacked

import driftline
from driftline.pipelines.cli import app

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("curate", "stream_builder", "eval", "pipelines")
FILES = sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))
SIBLINGS = (
    "driftline.curate.sources",
    "driftline.curate.export",
    "driftline.stream_builder.shifts",
    "driftline.eval.protocols",
)

STREAM = (  # what eval may read
    "driftline.stream_builder.stream",
    "driftline.stream_builder.step",
    "driftline.stream_builder.class_texts",
    "driftline.stream_builder.measures",
)


def module_of(path: Path) -> str:
    return ".".join(("driftline", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def room_of(name: str) -> str:
    """The second part of a module's name: `driftline.eval.run` is in `eval`; "" outside driftline."""
    return name.split(".")[1] if name.startswith("driftline.") else ""


@cache
def every_import(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(("driftline", *path.relative_to(ROOT).parts[: -node.level])) if node.level else ""
            module = ".".join(part for part in (above, node.module) if part)
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


EXTENSIONS = "driftline.ext"
PLACES = {  # public name → the module behind it
    f"{EXTENSIONS}.{alias.name}": str(node.module)
    for node in ast.walk(ast.parse((ROOT / "driftline" / "ext.py").read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.name != "lazy_face"
}


def imported(path: Path) -> set[str]:
    """Those of the project; a name of `driftline.ext` counts as its own module, so that a part may be written alike
    inside and outside."""
    names = {PLACES.get(name, name) for name in every_import(path)}
    return {name for name in names if room_of(name) in ROOMS}


def imports() -> Iterator[tuple[str, str]]:
    """(importer, module of the project) of all files."""
    for path in FILES:
        for name in sorted(imported(path)):
            yield module_of(path), name


def may(importer: str, target: str) -> bool:
    """The table of the package map."""
    room, goal = room_of(importer), room_of(target)
    if room == "pipelines" or room == goal:
        return True
    if target == "driftline.curate" or target.startswith(("driftline.curate.core", "driftline.curate.foreign")):
        return True
    if room == "stream_builder":
        return target in ("driftline.curate.release", "driftline.curate.release.Release")
    if room == "eval":
        networks = "driftline.curate.encoders."  # weights are read in one place
        return target == "driftline.stream_builder" or target.startswith((*STREAM, networks))
    return False


def test_imports_run_downhill() -> None:
    wrong = [f"{importer} imports {target}" for importer, target in imports() if not may(importer, target)]
    assert not wrong


DOWNHILL = {  # package → its rooms, the lowest first: a room imports only those before it
    "curate": "core foreign metadata images sources store fetch encoders embedding retrieval bucketing validation "
    "release pretrain export publishing",
    "stream_builder": "lazy_images class_texts step splitting storage stream rows shifts importers "
    "datasets builders measures export interop",
    "eval": "timeline engine history learner checkpoint rows predictions visits memory nets training "
    "finetuning integrations learners settings protocol experiment protocols scoring plotting logs reporting "
    "results run control leaderboard",
    "pipelines": "kinds web config stages annotation browse run reporting forecast demo reproduce actions commands cli",
}


def test_inside_a_package_imports_run_downhill() -> None:
    wrong = []
    for importer, target in imports():
        (package, room, *_), (at, goal, *_) = (f"{name}...".split(".")[1:] for name in (importer, target))
        order = DOWNHILL[package].split()
        assert not room or room in order, f"{importer} is in no room of DOWNHILL"
        if room and package == at and goal in order and order.index(goal) > order.index(room):
            wrong.append(f"{importer} imports {target}")
    assert not wrong


def test_nobody_imports_the_face_for_notebooks() -> None:
    wrong = [
        (path, name)
        for path in FILES
        for name in every_import(path)
        if name.split(".")[0] == "driftline" and room_of(name) not in ROOMS and not name.startswith(EXTENSIONS)
    ]
    assert not wrong


def test_nobody_imports_a_package_by_its_folder() -> None:
    """`import eval` finds a folder of the user's, or nothing: installed, the package is `driftline.eval`."""
    places = [
        *FILES,
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
        *ROOT.glob("benchmarks/*.py"),
        *(ROOT / "studies").rglob("*.py"),
    ]
    wrong = [(path, name) for path in places for name in every_import(path) if name.split(".")[0] in ROOMS]
    assert not wrong


def test_siblings_do_not_import_siblings() -> None:
    wrong = []
    for importer, target in imports():
        for family in SIBLINGS:
            if importer.startswith(family + "."):
                own = sibling_of(importer, family)
                if sibling_of(target, family) not in (None, own, "base"):
                    wrong.append(f"{importer} imports its sibling {target}")
    assert not wrong


def sibling_of(module: str, family: str) -> str | None:
    """The member of a family that a module belongs to; None for the family's own names and for other modules."""
    member = module.removeprefix(family + ".").split(".")[0]
    folder = ROOT / Path(*family.split(".")[1:])
    is_member = module.startswith(family + ".") and ((folder / f"{member}.py").exists() or (folder / member).is_dir())
    return member if is_member else None


HEAVY = ("torch", "open_clip", "faiss", "pandas", "pyarrow", "numpy", "matplotlib", "scipy", "duckdb", "rich")
LEARNING = ("torch", "open_clip", "faiss", "pandas", "matplotlib", "scipy")
CALL = """
import sys
from driftline.pipelines.cli import called
for words in {commands}:
    try:
        called(words)(words)
    except SystemExit as end:
        assert end.code in (None, 0), words
print([name for name in {names} if name in sys.modules])
"""


def loaded(commands: list[list[str]], names: tuple[str, ...]) -> str:
    """Those of `names` that a process has imported after these commands."""
    code = CALL.format(commands=commands, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_no_commands_help_loads_a_heavy_library() -> None:
    groups = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    words = [[name, *more] for name in groups for more in ([], *([k] for k in getattr(groups[name], "commands", {})))]
    words = [w for w in words if not w[-1].startswith("from-")]  # made from the importers, when one is asked for
    assert ["stream", "compose"] in words
    assert loaded([[*w, "--help"] for w in ([], *words)], HEAVY) == "[]"


def test_help_reads_no_settings_and_no_values() -> None:
    """pydantic and YAML take longer than the rest of it: half of the quarter of a second that it may take."""
    helped = [["--help"], ["eval", "--help"], ["stream", "compose", "--help"], ["stream", "--help"]]
    assert loaded(helped, ("pydantic", "yaml", "jinja2", "multiprocessing")) == "[]"


def test_what_needs_no_library_loads_none() -> None:
    assert loaded([["--version"], ["list"], ["list", "recipes"]], HEAVY) == "[]"


COMPLETED = ("learners", "shifts", "exports", "stream-exports", "distances", "platforms", "stages")


def test_names_are_completed_without_a_heavy_library() -> None:
    code = f"import sys; from driftline.pipelines.actions.listing import completion; names = {COMPLETED}\n"
    code += f"assert all(completion(name)('') for name in names)\nprint([n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_about_a_run_load_no_library_that_learns(tmp_path: Path) -> None:
    run = str(unpacked("waiting", tmp_path))
    (photo,) = pq.read_table(next((tmp_path / "waiting").glob("stages/*_ingest/table/*.parquet")))["id"].to_pylist()[:1]
    commands = [["init", str(tmp_path / "a"), "--preset", "mini"], ["status", run], ["plan", run]]
    assert loaded([*commands, ["trace", run, photo], ["list", "presets"], ["list", "stages"]], LEARNING) == "[]"


WORK = tuple(
    f"driftline.curate.{name}"
    for name in (
        "release.compose", "embedding.embed", "retrieval.retrieve", "bucketing.assign", "metadata.filtering",
        "validation.judges",
    )
)  # fmt: skip


def test_the_state_of_a_run_is_told_without_a_heavy_library_and_without_the_work_of_its_stages(tmp_path: Path) -> None:
    commands = [["init", str(tmp_path / "yfcc"), "--preset", "yfcc"], ["status", str(tmp_path / "yfcc")]]
    assert loaded([["status", str(unpacked("waiting", tmp_path))], *commands], (*HEAVY, *WORK)) == "[]"


WITHOUT_ARRAYS = (
    "DriftlineError", "Run", "__version__", "age", "audit", "batch", "compare", "demo", "export", "grow",
    "heal", "init", "leaderboard", "list_registered", "open", "plan", "run", "status", "trace",
    "train",
)  # fmt: skip
WITH_TABLES = ("Release", *(f"from_{name}" for name in ("folder_by_time", "hub", "table", "tic", "wild_time", "wilds")))


def test_a_public_name_loads_no_library_that_it_can_do_without() -> None:
    """Half a second each is the limit; what takes longer is one of these libraries."""
    others = [name for name in driftline.__all__ if name not in (*WITHOUT_ARRAYS, *WITH_TABLES)]
    code = f"""
import sys
import driftline
for names in {WITHOUT_ARRAYS}, {others}, {WITH_TABLES}:
    for name in names:
        getattr(driftline, name)
    print(*(name for name in {HEAVY} if name in sys.modules), sep=",")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["", "numpy", "pyarrow,numpy", ""]
