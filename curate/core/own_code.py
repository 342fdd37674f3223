"""The code of a class or function of one's own, as a digest that changes with every file that can change what it does.

The files are the module of a class and the modules beside it that it imports; of an installed package, the version.
What cannot be read as text or data, as a class or function of a notebook's cell, has no digest (`Untold`): it runs
again.
"""

import ast
import functools
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from driftline.curate.core.atomic_io import fingerprint, sha256_file
from driftline.curate.core.errors import BadPlugin
from driftline.curate.core.files import installed_version

HOME = "driftline"
_distributions = cache(packages_distributions)
PLAIN = (str, bytes, bool, int, float, complex, type(None))


class Untold(Exception):
    """Code or a value of which nothing can be said that would change with it. The text is its name."""


def codes_of(kinds: Iterable[type]) -> dict[str, str]:
    """Name → code of those classes that are not driftline's own. Raises BadPlugin for one that has no digest."""
    codes = {}
    for kind in kinds:
        try:
            code = code_of(kind)
        except Untold as error:
            problem = f"The code of {error} cannot be read: so driftline cannot check whether it changed."
            raise BadPlugin(problem, "Expected a class of a Python file or of an installed package.") from None
        if code != HOME:
            codes[kind.__qualname__] = code
    return codes


def code_of(thing: type | Callable[..., Any]) -> str:
    """Of a class or function: "driftline" for ours, distribution and version for an installed one, else a digest of its
    module and of the modules beside it that it imports. Raises Untold."""
    module = sys.modules.get(str(getattr(thing, "__module__", "")))
    name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing)}"
    if module is None:
        raise Untold(name)
    if getattr(module, "__file__", None) is None and module.__name__ not in sys.builtin_module_names:
        raise Untold(name)  # of a notebook's cell, or typed in
    return _module(module)


def _module(module: ModuleType) -> str:
    if module.__name__.partition(".")[0] == HOME:
        return HOME
    if distribution := _distribution(module):
        return distribution
    if not str(module.__file__).endswith(".py"):
        raise Untold(module.__name__)
    return fingerprint([(path.name, sha256_of(path)) for path in sorted(_sources(module))])[:16]  # names may repeat


def _distribution(module: ModuleType) -> str:
    """Name and version of the installed package that a module is of; "" for files of one's own, as of a package that is
    installed to be edited. The standard library is Python's version."""
    file = getattr(module, "__file__", None)
    if file is None or (Path(file).is_relative_to(sysconfig.get_paths()["stdlib"]) and not _installed(file)):
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    if not _installed(file):
        return ""
    names = _distributions().get(module.__name__.partition(".")[0], [])
    return ", ".join(f"{name} {installed_version(name)}" for name in sorted(set(names)))


def _installed(file: str) -> bool:
    return bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _sources(module: ModuleType) -> set[Path]:
    """The file of a module of one's own, and those of the modules of one's own that it imports, and so on."""
    files: set[Path] = set()
    waiting = [module]
    while waiting:
        module = waiting.pop()
        path = Path(str(module.__file__))
        if path not in files:
            files.add(path)
            names = _names_in(path, path.stat().st_mtime_ns, module.__package__ or "")
            waiting += [other for name in names if (other := _own_module(name)) is not None]
    return files


def _own_module(name: str) -> ModuleType | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None or file is None or not file.endswith(".py") or name.partition(".")[0] == HOME:
        return None
    return None if _distribution(module) else module


@functools.lru_cache(maxsize=256)
def _names_in(path: Path, _: int, package: str) -> Sequence[str]:
    """Names of modules that a file imports anywhere, as they stand in `sys.modules`; relative ones by its package."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError):
        raise Untold(path.name) from None
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            home = ".".join(part for part in (base, node.module or "") if part)
            names += (home, *(f"{home}.{alias.name}" for alias in node.names))
    return list(dict.fromkeys(names))


def sha256_of(path: Path) -> str:
    """Of a file, read again when its time changes. Raises Untold."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError:
        raise Untold(path.name) from None


@functools.lru_cache(maxsize=4096)
def _read(path: Path, _: int) -> str:
    return sha256_file(path)


def value_of(value: Any) -> Any:
    """Plain data that changes with a value. Raises Untold."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, list | tuple | set | frozenset):
        parts = [value_of(part) for part in value]
        return [type(value).__name__, *(sorted(parts, key=str) if isinstance(value, set | frozenset) else parts)]
    if isinstance(value, Mapping):
        return {str(key): value_of(part) for key, part in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, functools.partial):
        return ["partial", value_of(value.func), value_of(value.args), value_of(value.keywords)]
    if isinstance(value, type):
        return [value.__qualname__, code_of(value)]
    if isinstance(value, ModuleType):
        return [value.__name__, _module(value)]
    if isinstance(value, FunctionType):
        return _function(value)
    if hasattr(value, "get_params"):  # an estimator of scikit-learn
        return [type(value).__qualname__, code_of(type(value)), value_of(value.get_params(deep=False))]
    raise Untold(f"{type(value).__module__}.{type(value).__qualname__}")


def _function(function: FunctionType) -> list[Any]:
    """Its module's files, its own instructions, its defaults, and what it encloses."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    enclosed = {name: cell.cell_contents for name, cell in cells}
    values = [function.__defaults__ or (), function.__kwdefaults__ or {}, enclosed]
    return [function.__qualname__, code_of(function), _instructions(function.__code__), *map(value_of, values)]


def _instructions(code: CodeType) -> list[Any]:
    consts = [_instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), consts]
