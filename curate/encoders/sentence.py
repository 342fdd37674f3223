"""Text models of sentence-transformers, by hub name or local folder."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import BadConfig, not_loaded
from driftline.curate.core.files.digests import content_digest, listing
from driftline.curate.core.vectors import unit
from driftline.curate.encoders import Encoder, Vectors
from driftline.curate.encoders.network import resolve_device
from driftline.curate.encoders.weights import offline_copy


class Sentence(Encoder):
    """A model of sentence-transformers; texts only (needs the extra `text`).

    model: "all-MiniLM-L6-v2", "org/name", or a folder. weights: not used.
    """

    def __init__(self, model: str, weights: str | None = None, device: str = "auto", *_: Any) -> None:
        if find_spec("sentence_transformers") is None:
            way_out = "Install driftline's extra: pip install 'driftline[text]'."
            raise BadConfig("sentence-transformers is not installed.", "", way_out)
        repository = model if "/" in model else f"sentence-transformers/{model}"
        alone = Path(model).is_dir() or offline_copy(repository, ("config.json",)) is not None
        from sentence_transformers import SentenceTransformer

        self.device = resolve_device(device)
        try:
            self._model = SentenceTransformer(model, device=self.device, local_files_only=alone)
        except Exception as error:  # unpickling raises many kinds of exceptions
            raise not_loaded(model, error) from None
        self.width = len(self._model.encode("a", show_progress_bar=False))
        self.fingerprint = content_digest(listing(Path(model))) if Path(model).is_dir() else fingerprint(model)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        vectors = self._model.encode(list(texts), batch_size=64, convert_to_numpy=True, show_progress_bar=False)
        return unit(np.asarray(vectors, np.float32))

    def truncated(self, text: str) -> str:
        """The end of a text that exceeds the model's longest input; "" if all of it is read."""
        longest = int(self._model.max_seq_length or 0)
        most = longest - 2  # the start and end tokens take two places
        tokens = self._model.tokenizer(text, add_special_tokens=False)["input_ids"]
        return str(self._model.tokenizer.decode(tokens[most:])) if longest and len(tokens) > most else ""
