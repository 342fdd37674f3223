"""Packages of somebody else: a module and its metadata in a folder, as an installer leaves them."""

import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

from driftline.curate.core.registry import Registry

MYBENCH = Path(__file__).parents[2] / "examples" / "mybench"  # the package of the guide Extend: one of everything
POINTS: dict[str, dict[str, str]] = {  # group of entry points → name → object
    group.removeprefix("driftline."): names
    for group, names in tomllib.loads((MYBENCH / "pyproject.toml").read_text())["project"]["entry-points"].items()
}


def install(folder: Path, name: str, points: Mapping[str, Mapping[str, str]], code: str = "") -> Path:
    """Put the distribution `name` 1.0 into `folder`; code: of its module, if it is one. Returns the folder."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    text = "".join(
        f"[driftline.{group}]\n" + "".join(f"{key} = {target}\n" for key, target in names.items())
        for group, names in points.items()
    )
    (metadata / "entry_points.txt").write_text(text, encoding="utf-8")
    if code:
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


def install_mybench(folder: Path) -> Path:
    """The package `mybench`, which registers one of everything."""
    shutil.copytree(MYBENCH / "mybench", folder / "mybench", ignore=shutil.ignore_patterns("__pycache__"))
    return install(folder, "mybench", POINTS)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """The packages of a folder are installed in this process, for a while."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    invalidate_caches()
    _forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
        _forget()


def _forget() -> None:
    """All registries look for entry points again."""
    for module in list(sys.modules.values()):
        for thing in list(getattr(module, "__dict__", {}).values()):
            if type(thing) is Registry:
                vars(thing).pop("_found", None)
