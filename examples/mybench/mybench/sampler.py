import numpy as np

from driftline.ext import Past, Positions, Sampler


class Recent(Sampler):
    """Uniformly from the last 1,000 samples."""

    def draw(self, past: Past, n: int) -> Positions:
        positions = np.arange(max(0, past.seen - 1000), past.seen)
        return self.rng.choice(positions, min(n, len(positions)), replace=False)
