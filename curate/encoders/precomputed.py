"""Text vectors that were computed elsewhere, for machines without the weights."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import fingerprint, read_json, sha256_file
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.outside.arrays import open_array
from driftline.curate.core.vectors import unit
from driftline.curate.encoders import Encoder, Vectors


def _no_images(image: Any) -> Any:
    raise BadConfig(
        "embed.encoder is table, which holds texts only.",
        "Expected image vectors that were computed elsewhere.",
        "Set embed.from to their folder.",
    )


class TableOfVectors(Encoder):
    """A table of texts and their vectors; texts only.

    model: a folder with `texts.json` (a list of N texts) and `texts.npy` (N, D). The image vectors of the same model
    come from `embed.from`.
    """

    prepare = staticmethod(_no_images)

    def __init__(self, model: str, *_: Any) -> None:
        folder = Path(model)
        for name in ("texts.json", "texts.npy"):
            if not (folder / name).is_file():
                raise MissingFile(
                    f"There is no file {folder / name}.", "Expected texts.json and texts.npy.", "Set embed.model."
                )
        texts = read_json(folder / "texts.json")
        vectors = np.asarray(open_array(folder / "texts.npy", "f", (None, None), "Compute the vectors again."))
        if not isinstance(texts, list) or len(texts) != len(vectors):
            n = len(texts) if isinstance(texts, list) else "no"
            raise BadInput(
                f"{folder} holds vectors of shape {vectors.shape} for {n} texts.", "Expected one row per text."
            )
        if not np.isfinite(vectors).all():
            raise BadInput(f"{folder / 'texts.npy'} holds values that are not finite.", "Expected text vectors.")
        self._row = {str(text): i for i, text in enumerate(texts)}
        self._vectors = unit(vectors.astype(np.float32))
        self.width = int(vectors.shape[1])
        self.fingerprint = fingerprint([sha256_file(folder / name) for name in ("texts.json", "texts.npy")])

    def texts(self, texts: Sequence[str]) -> Vectors:
        """The rows of some texts (N, D). Raises BadConfig for a text that is not in the table, with the nearest
        ones."""
        for text in texts:
            if text not in self._row:
                near = difflib.get_close_matches(text, self._row, 3)
                raise BadConfig(
                    f"The table of texts holds no vector of {text!r}.",
                    f"Nearest: {', '.join(map(repr, near)) or 'none'}.",
                    "Use a text of texts.json, or compute its vector on a machine that has the model.",
                )
        return self._vectors[[self._row[text] for text in texts]]
