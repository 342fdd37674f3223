"""Encoders of texts alone: n-grams, models of sentence-transformers, and vectors that were computed elsewhere."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import fingerprint, read_json, sha256_file
from driftline.curate.core.errors import BadConfig, BadInput, available, not_loaded
from driftline.curate.core.files import content_digest, listing
from driftline.curate.core.vectors import hashed_ngrams, unit
from driftline.curate.encoders import Encoder, Vectors
from driftline.curate.encoders.backbone import resolve_device
from driftline.curate.encoders.weights import offline_copy
from driftline.curate.foreign.arrays import open_array
from driftline.curate.foreign.names import is_count


class Ngrams(Encoder):
    """Hashed character n-gram counts, without weights or download: the baseline for learned encoders.

    model: the width, as in "2048". See `driftline.curate.core.vectors`.
    """

    def __init__(self, model: str = "2048", *_: Any) -> None:
        if not is_count(str(model)) or int(model) < 2:
            raise BadConfig(f"The width of ngrams is {model!r}.", "Expected a number from 2, as in ngrams:2048.")
        self.width = int(model)
        self.fingerprint = f"ngrams-{self.width}"

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        return hashed_ngrams(texts, self.width)


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


class TableOfVectors(Encoder):
    """A table of texts and their vectors; texts only.

    model: a folder with `texts.json` (a list of N texts) and `texts.npy` (N, D). The image vectors of the same model
    come from `embed.from`.
    """

    def __init__(self, model: str, *_: Any) -> None:
        folder = Path(model)
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
        if unknown := [text for text in texts if text not in self._row]:
            way_out = "Use a text of texts.json, or compute its vector on a machine that has the model."
            problem = f"The table of texts holds no vector of {unknown[0]!r}."
            raise BadConfig(problem, available(unknown[0], self._row), way_out)
        return self._vectors[[self._row[text] for text in texts]]
