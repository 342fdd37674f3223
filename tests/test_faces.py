"""Public faces: what they offer to type checkers is what they offer at run time, and nothing is imported early."""

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.console import command_tree

import driftline
from driftline.curate.core.errors import BadConfig

COMMANDS = command_tree()
ROOT = Path(__file__).resolve().parents[1]
FACES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (*ROOT.glob("driftline/*.py"), *ROOT.glob("driftline/*/__init__.py"))
    if "lazy_face(" in path.read_text(encoding="utf-8")
)


TREE = """demo doctor init list models_get models_train plan run status trace browse annotate batch grow heal withdraw
forget export audit compare stream_from-release stream_from-arrays stream_from-table stream_from-clear stream_from-hub
stream_from-folder-by-time stream_from-tic stream_from-wilds stream_from-wild-time stream_from-dataset
stream_from-baseline stream_compose stream_show stream_measure stream_encode eval report reproduce age submit verify
leaderboard"""


def test_the_command_tree() -> None:
    assert set(COMMANDS) == {words.replace("_", " ") for words in TREE.split()}


def declared(face: str) -> dict[str, tuple[str, str]]:
    """Public name → (module, attribute), as the face's TYPE_CHECKING block imports it."""
    source = Path(str(importlib.import_module(face).__file__)).read_text(encoding="utf-8")
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    return {a.asname or a.name: (str(line.module), a.name) for line in imports for a in line.names}


@pytest.mark.parametrize("face", FACES)
def test_a_face_offers_what_type_checkers_see(face: str) -> None:
    module = importlib.import_module(face)
    offered = {name: getattr(module, name) for name in module.__all__}
    wanted = {name: getattr(importlib.import_module(home), what) for name, (home, what) in declared(face).items()}
    assert offered == wanted
    assert set(offered) <= set(dir(module))


@pytest.mark.parametrize("face", FACES)
def test_a_face_says_that_it_has_no_such_name(face: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{face}' has no attribute 'nonsense'"):
        _ = importlib.import_module(face).nonsense


@pytest.mark.parametrize("face", FACES)
def test_importing_a_face_imports_no_library(face: str) -> None:
    heavy = {"torch", "numpy", "pyarrow", "pandas", "scipy", "faiss", "matplotlib", "pydantic", "PIL"}
    code = f"import sys, {face}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_public_face_says_its_version() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert importlib.import_module("driftline").__version__ == project["project"]["version"]


def test_a_stream_in_memory_where_a_folder_is_read_gets_one_sentence() -> None:
    stream = driftline.Stream("clear-like", ["a"], [])
    with pytest.raises(BadConfig, match=r"A Stream in memory was given\. Expected its folder\."):
        driftline.encode(stream, encoder="pixels", out="vectors")


NAMES = {"evaluate": "eval", "list_registered": "list"}  # in Python → on the command line
# A stream is returned: what saves it, and what is recorded then, are options of the command. `columns` names the
# columns of a table at once, `seeds` of compose makes a stream for each; `work` holds files while a stream is made.
OF_COMMANDS = {"out", "paper", "trained_until", "columns", "seeds"}
OF_PYTHON = {"work"}
IN_MEMORY = {"evaluate": {"out"}}  # what Python may leave out, to have results in memory


def actions() -> dict[str, tuple[str, Any]]:
    """Name of each function that is a command → the command's words, and the command."""
    words = {name: NAMES.get(name, name.replace("_", "-")) for name in driftline.__all__}
    paths = {
        name: next((p for p in (w, f"stream {w}", f"models {w}") if p in COMMANDS), "") for name, w in words.items()
    }
    return {name: (path, COMMANDS[path]) for name, path in paths.items() if path}


def test_every_command_but_pages_and_gathered_ones_is_a_function() -> None:
    only = set(COMMANDS) - {path for path, _ in actions().values()}
    assert only == {"doctor", "browse", "annotate", "models get", "submit", "verify", "stream show",
                    "stream from-baseline"}  # fmt: skip


@pytest.mark.parametrize("name", actions())
def test_a_command_and_its_function_have_the_same_parameters_and_defaults(name: str) -> None:
    """And the help of both has the same words for each."""
    path, command = actions()[name]
    function = getattr(driftline, name)
    parameters = {p.name: p for p in inspect.signature(function).parameters.values()}
    options = {p.name: p for p in command.params if p.name not in ("json_", "quiet_", "verbose_", "help")}
    assert set(parameters) - set(options) <= OF_PYTHON
    assert set(options) - set(parameters) <= (OF_COMMANDS if path.startswith("stream ") else set())
    shared = set(options) & set(parameters)
    told = inspect.getdoc(function) or ""
    for key in shared:
        default, option = parameters[key].default, options[key]
        is_needed = default is inspect.Parameter.empty
        assert option.required == (is_needed or key in IN_MEMORY.get(name, ())), key
        assert is_needed or option.default in (default, None), key  # None: the function's own, as of a list
        assert path.startswith("stream from-") or f"{key}: {option.help}" in told, key
