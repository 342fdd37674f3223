"""Texts through any sentence-transformers model, by hub tag or local folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.atomic_io import content_digest, fingerprint
from curate.core.errors import BadConfig, MissingFile
from curate.encoders import Vectors, unit
from curate.encoders.network import place


class Sentence:
    """A model of sentence-transformers; texts only (needs the extra `text`).

    model: "all-MiniLM-L6-v2", "org/name", or a folder. weights: nothing.
    """

    precision = "float32"

    def __init__(
        self,
        model: str,
        weights: str | None = None,
        device: str = "auto",
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise BadConfig(
                "sentence-transformers is not installed.",
                "",
                "Install driftline's extra: pip install 'driftline[text]'.",
            ) from None
        self.device = place(device)
        try:
            self._model = SentenceTransformer(model, device=self.device)
        except (OSError, ValueError) as error:
            raise MissingFile(
                f"The model {model} cannot be reached ({str(error).splitlines()[0]}).",
                "",
                "Without internet: download it elsewhere and name its folder.",
            ) from None
        self.width = len(self._model.encode("a", show_progress_bar=False))
        self.fingerprint = content_digest(Path(model)) if Path(model).is_dir() else fingerprint(model)

    def prepare(self, image: Any) -> Any:
        """Raises BadConfig: it knows no images."""
        raise BadConfig("A sentence encoder has no images.", "Expected texts.", "Choose encoder clip for images.")

    def images(self, batch: Any) -> Vectors:
        """Raises BadConfig."""
        return np.asarray(self.prepare(batch))

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        found = self._model.encode(list(texts), batch_size=64, convert_to_numpy=True, show_progress_bar=False)
        return unit(np.asarray(found, np.float32))

    def cut(self, text: str) -> str:
        """The end of a text that is beyond the model's longest input."""
        most = int(self._model.max_seq_length or 0)
        tokens = self._model.tokenizer(text, add_special_tokens=False)["input_ids"]
        room = most - 2  # beside the tokens that begin and end a text
        return str(self._model.tokenizer.decode(tokens[room:])) if most and len(tokens) > room else ""
