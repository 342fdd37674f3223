"""An encoder of another package: the mean colour of an image, or the length of a text; a small transformer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from driftline.curate.core.vectors import unit
from driftline.curate.encoders import Encoder, Vectors


def small(image: Any) -> Any:
    """RGB image → uint8 (3, 4, 4)."""
    return torch.from_numpy(np.array(image.resize((4, 4)))).permute(2, 0, 1)


class MeanColour(Encoder):
    """Mean red, green and blue; a text has the colour of its length. model: not used."""

    width, prepare = 3, staticmethod(small)

    def __init__(self, model: str, *_: Any) -> None:
        self.fingerprint = f"mean-colour-{model}"

    def images(self, batch: Any) -> Vectors:
        """(N, 3, 4, 4) → (N, 3)."""
        return unit(batch.float().mean((2, 3)).numpy())

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, 3)."""
        return unit(np.array([[len(text), 1, 0] for text in texts], np.float32))


def tiny_bert(folder: Path, words: Sequence[str]) -> Path:
    """A transformer with random weights that knows these words."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(
        vocab={w: i for i, w in enumerate(vocabulary)}, vocab_file=str(folder / "vocab.txt")
    ).save_pretrained(folder)
    return folder
