"""Texts whose vectors were computed elsewhere: for machines that have no weights."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.atomic_io import fingerprint, read_json, sha256_file
from curate.core.errors import BadConfig, BadInput, MissingFile
from curate.encoders import Vectors, unit


class TableOfVectors:
    """A table of texts and their vectors, made by a model that is not here.

    model: a folder with `texts.json` (a list of N texts) and `texts.npy` (N, D). Image vectors come from
    `embed.from`; this encoder cannot make any.
    """

    device, precision = "cpu", "float32"

    def __init__(
        self,
        model: str,
        weights: str | None = None,
        device: str = "cpu",
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        folder = Path(model)
        for name in ("texts.json", "texts.npy"):
            if not (folder / name).is_file():
                raise MissingFile(
                    f"There is no file {folder / name}.", "Expected texts.json and texts.npy.", "Set embed.model."
                )
        texts = read_json(folder / "texts.json")
        try:
            vectors = np.load(folder / "texts.npy", allow_pickle=False)
        except ValueError as error:
            raise BadInput(f"{folder / 'texts.npy'} cannot be read ({error}).", "Expected a .npy file.") from None
        if not isinstance(texts, list) or vectors.ndim != 2 or len(texts) != len(vectors):
            raise BadInput(
                f"{folder} holds vectors of shape {vectors.shape} for {len(texts)} texts.",
                "Expected one row for each text.",
            )
        if not np.isfinite(vectors).all():
            raise BadInput(f"{folder / 'texts.npy'} holds values that are not finite.", "Expected text vectors.")
        self._row = {str(text): i for i, text in enumerate(texts)}
        self._vectors = unit(vectors.astype(np.float32))
        self.width = int(vectors.shape[1])
        self.fingerprint = fingerprint([sha256_file(folder / name) for name in ("texts.json", "texts.npy")])

    def prepare(self, image: Any) -> Any:
        """Raises BadConfig: there is no model."""
        raise BadConfig(
            "embed.encoder is table, which holds texts only.",
            "Expected image vectors that were computed elsewhere.",
            "Set embed.from to their folder.",
        )

    images = prepare

    def texts(self, texts: Sequence[str]) -> Vectors:
        """The rows of some texts. Raises BadConfig for one that is not in the table, with the nearest that is."""
        for text in texts:
            if text not in self._row:
                near = difflib.get_close_matches(text, self._row, 3)
                raise BadConfig(
                    f"The table of texts holds no vector of {text!r}.",
                    f"Nearest: {', '.join(map(repr, near)) or 'none'}.",
                    "Use a text of texts.json, or compute its vector where the model is.",
                )
        return self._vectors[[self._row[text] for text in texts]]

    def cut(self, text: str) -> str:
        """Nothing is cut."""
        return ""
