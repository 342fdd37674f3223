"""Libraries that take long to load: each is loaded when one of its names is first used.

from driftline.curate.core.late import torch
"""

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

    duckdb, faiss, huggingface_hub, jinja2, open_clip, timm, torch, yaml = map(
        Late, ("duckdb", "faiss", "huggingface_hub", "jinja2", "open_clip", "timm", "torch", "yaml")
    )
    np, pa, pc, pd, pq = map(Late, ("numpy", "pyarrow", "pyarrow.compute", "pandas", "pyarrow.parquet"))
    exceptions = Late("botocore.exceptions")
    sparse, special = Late("scipy.sparse"), Late("scipy.special")
    Image, transforms = Late("PIL.Image"), Late("torchvision.transforms")

__all__ = [
    "Image", "duckdb", "exceptions", "faiss", "huggingface_hub", "jinja2", "np", "open_clip", "pa", "pc", "pd", "pq",
    "sparse", "special", "timm", "torch", "transforms", "yaml",
]  # fmt: skip
