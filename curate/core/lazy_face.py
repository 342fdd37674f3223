"""The public names of a package, imported only when first used (PEP 562): `import driftline` stays fast.

    if TYPE_CHECKING:
        from driftline.curate.release.format import Release as Release
    else:
        __getattr__, __dir__, __all__ = lazy_face(__name__)

The imports for type checkers are the only declaration: the interpreter reads them, too.
"""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DECLARED = re.compile(r"^    from ([\w.]+) import (\w+) as (\w+)(?:  # noqa.*)?$", re.MULTILINE)


def lazy_face(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of `module`, whose file imports each name as itself."""
    face = sys.modules[module]
    source = Path(str(face.__file__)).read_text(encoding="utf-8")
    places = {name: (home, attribute) for home, attribute, name in DECLARED.findall(source)}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=face)
        home, attribute = places[name]
        value = getattr(importlib.import_module(home), attribute)
        setattr(face, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(face), *places})

    return load, names, sorted(places)
