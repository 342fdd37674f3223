"""What is loaded when one of its names is first used: libraries that take long to load
(`from driftline.curate.core.late import torch`), and the public names of a package (PEP 562)."""

import re
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import multiprocessing

    import duckdb
    import faiss
    import huggingface_hub
    import jinja2
    import numpy as np
    import open_clip
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import timm
    import torch
    import yaml
    from botocore import exceptions
    from PIL import Image
    from scipy import sparse, special
    from torchvision import transforms
else:

    class Late:
        """A module that looks as if it were loaded."""

        def __init__(self, name: str) -> None:
            self.name = name

        @cached_property
        def module(self) -> Any:
            return import_module(self.name)

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self.module, attribute)

    duckdb, faiss, huggingface_hub, jinja2, multiprocessing, open_clip, timm, torch, yaml = map(
        Late, ("duckdb", "faiss", "huggingface_hub", "jinja2", "multiprocessing", "open_clip", "timm", "torch", "yaml")
    )
    np, pa, pc, pd, pq = map(Late, ("numpy", "pyarrow", "pyarrow.compute", "pandas", "pyarrow.parquet"))
    exceptions = Late("botocore.exceptions")
    sparse, special = Late("scipy.sparse"), Late("scipy.special")
    Image, transforms = Late("PIL.Image"), Late("torchvision.transforms")

DECLARED = re.compile(r"^    from ([\w.]+) import (\w+) as (\w+)(?:  # noqa.*)?$", re.MULTILINE)


def lazy_face(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of `module`, whose file imports each name as itself under TYPE_CHECKING:
    the interpreter reads this only declaration, too."""
    face = sys.modules[module]
    source = Path(str(face.__file__)).read_text(encoding="utf-8")
    places = {name: (home, attribute) for home, attribute, name in DECLARED.findall(source)}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=face)
        home, attribute = places[name]
        value = getattr(import_module(home), attribute)
        setattr(face, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(face), *places})

    return load, names, sorted(places)


__all__ = [
    "Image", "duckdb", "exceptions", "faiss", "huggingface_hub", "jinja2", "lazy_face", "multiprocessing", "np",
    "open_clip", "pa", "pc", "pd", "pq", "sparse", "special", "timm", "torch", "transforms", "yaml",
]  # fmt: skip
