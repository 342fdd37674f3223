"""Public faces: what they offer to type checkers is what they offer at run time, and nothing is imported early."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FACES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (*ROOT.glob("driftline/*.py"), *ROOT.glob("driftline/*/__init__.py"))
    if "lazy_face(" in path.read_text(encoding="utf-8")
)


def declared(face: str) -> dict[str, tuple[str, str]]:
    """Public name → (module, attribute), as the face's TYPE_CHECKING block imports it."""
    source = Path(str(importlib.import_module(face).__file__)).read_text(encoding="utf-8")
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    return {a.asname or a.name: (str(line.module), a.name) for line in imports for a in line.names}


@pytest.mark.parametrize("face", FACES)
def test_a_face_offers_what_type_checkers_see(face: str) -> None:
    module = importlib.import_module(face)
    offered = {name: getattr(module, name) for name in module.__all__ if name != "__version__"}
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


def test_the_public_face_is_imported_in_a_tenth_of_a_second() -> None:
    """In a process that has started: its own start is not ours."""
    code = "import time; clock = time.process_time(); import driftline; print(time.process_time() - clock)"
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(seconds) < 0.1
