from pathlib import Path

import numpy as np

from driftline.ext import Dataset, Options, Samples


def stripes(path: Path, options: Options) -> Dataset:
    """Horizontal and vertical stripes, in random colours."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    colours = rng.integers(60, 255, (400, 1, 1, 3))
    rows = (np.arange(16) // 2 % 2)[:, None]
    masks = np.where(y[:, None, None] == 0, rows, rows.T)[..., None]
    x = (masks * colours).astype(np.uint8)
    train, test = (Samples(x[part], y[part], np.arange(400)[part]) for part in (slice(0, 300), slice(300, 400)))
    return Dataset("stripes", train, test, ["horizontal", "vertical"])
