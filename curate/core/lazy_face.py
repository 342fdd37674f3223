"""The public names of a package, imported only when first used (PEP 562): `import driftline` stays fast.

A face declares its names twice: once for type checkers, once for the interpreter. A test compares the two.

    if TYPE_CHECKING:
        from driftline.curate.release.format import Release as Release
    else:
        __getattr__, __dir__, __all__ = lazy_face(__name__, {"Release": "driftline.curate.release.format:Release"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_face(
    module: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of `module`. places: public name → "module:attribute"."""

    def load(name: str) -> Any:
        face = sys.modules[module]
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=face)
        home, _, attribute = places[name].partition(":")
        value = getattr(importlib.import_module(home), attribute)
        setattr(face, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *places})

    return load, names, sorted(places)
