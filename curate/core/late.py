"""Libraries that take long to load: each is loaded when one of its names is first used.

from driftline.curate.core.late import torch
"""

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import faiss
    import jinja2
    import open_clip
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import timm
    import torch
    import yaml
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

    duckdb, faiss, jinja2, open_clip, timm, torch, yaml = map(
        Late, ("duckdb", "faiss", "jinja2", "open_clip", "timm", "torch", "yaml")
    )
    pa, pc, pd, pq = map(Late, ("pyarrow", "pyarrow.compute", "pandas", "pyarrow.parquet"))
    sparse, special = Late("scipy.sparse"), Late("scipy.special")
    Image, transforms = Late("PIL.Image"), Late("torchvision.transforms")

__all__ = [
    "Image", "duckdb", "faiss", "jinja2", "open_clip", "pa", "pc", "pd", "pq", "sparse", "special", "timm", "torch",
    "transforms", "yaml",
]  # fmt: skip
