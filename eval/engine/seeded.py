"""Torch's generator, seeded from a generator of numpy."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """torch's generator with a seed from `rng`; its state is restored afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        yield
