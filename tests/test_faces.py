"""Public faces: what they offer to type checkers is what they offer at run time, and nothing is imported early."""

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

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


ACTIONS = [
    name for name, (home, _) in declared("driftline").items() if "pipelines.commands" in home and name != "evaluate"
]


@pytest.mark.parametrize("name", ACTIONS)
def test_a_command_and_its_function_have_the_same_parameters(name: str) -> None:
    """And the help of both has the same words for each."""
    word = name.replace("_", "-")
    command = next(COMMANDS[path] for path in (word, f"stream {word}", f"models {word}") if path in COMMANDS)
    function = getattr(driftline, name)
    parameters = {p.name for p in inspect.signature(function).parameters.values() if p.annotation != "Any"}
    options = {p.name: p.help for p in command.params if p.name not in ("json_", "quiet_", "verbose_", "help")}
    assert parameters <= set(options)
    assert set(options) - parameters <= {"out", "seeds", "paper", "trained_until"}  # of a stream: `save` has them
    shown = inspect.getdoc(function)
    assert all(f"{key}: {options[key]}" in str(shown) for key in parameters)
