from collections.abc import Sequence

import numpy as np

from driftline.ext import Encoder, Vectors, unit


class Vowels(Encoder):
    """Texts as counts of their vowels."""

    width = 6

    def __init__(self, model: str, *settings: object) -> None:
        self.fingerprint = f"vowels-{model}"

    def texts(self, texts: Sequence[str]) -> Vectors:
        counts = [[text.count(vowel) for vowel in "aeiou"] + [1] for text in texts]
        return unit(np.array(counts, np.float32))
