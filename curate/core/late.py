"""Libraries that take long to load: each is loaded when one of its names is first used.

from driftline.curate.core.late import torch
"""

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import timm
    import torch
    from scipy import special
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

    pa, pd, special, timm, torch = map(Late, ("pyarrow", "pandas", "scipy.special", "timm", "torch"))

__all__ = ["pa", "pd", "special", "timm", "torch"]
