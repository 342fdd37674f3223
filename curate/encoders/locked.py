"""Two frozen encoders in one space: locked images, locked texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import fingerprint, read_json, sha256_file
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.vectors import unit
from driftline.curate.encoders import ENCODERS, Encoder, Vectors, spec_of

RECORD, MAPS = "locked.json", "locked.safetensors"


class Locked(Encoder):
    """An encoder of images and one of texts, both as they are, each followed by a learned linear map.

    As locked-image tuning [Zhai et al. 2022], with the text tower locked, too: only the two maps are trained, so that
    hundreds of captions are enough. model: a folder of `driftline models train --image … --text …`. weights: not used.
    """

    def __init__(
        self,
        model: str,
        weights: str | None = None,
        device: str = "auto",
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        from safetensors.numpy import load_file

        folder = Path(model)
        for name in (RECORD, MAPS):
            if not (folder / name).is_file():
                raise MissingFile(
                    f"There is no file {folder / name}.",
                    "Expected a folder of driftline models train with --image-encoder and --text-encoder.",
                )
        record, maps = read_json(folder / RECORD), load_file(folder / MAPS)
        self._towers, self._maps = {}, {}
        for side in ("image", "text"):
            entry = record[side]
            tower = load_encoder(entry["encoder"], device, precision, compiled)
            if tower.fingerprint != entry["fingerprint"]:
                raise BadInput(
                    f"{entry['encoder']} is not the {side} encoder that {folder} was trained with.",
                    f"Expected fingerprint {entry['fingerprint']}, found {tower.fingerprint}.",
                    "Give it the same weights, or train again.",
                )
            self._towers[side], self._maps[side] = tower, (maps[f"{side}.weight"], maps[f"{side}.bias"])
        image = self._towers["image"]
        self.device, self.precision, self.prepare = image.device, image.precision, image.prepare
        self.width = len(maps["image.bias"])
        self.fingerprint = fingerprint([*(t.fingerprint for t in self._towers.values()), sha256_file(folder / MAPS)])

    def images(self, batch: Any) -> Vectors:
        """Stacked prepared images (N, ...) → (N, D) float32, unit length."""
        return self.mapped("image", self._towers["image"].images(batch))

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        return self.mapped("text", self._towers["text"].texts(texts))

    def truncated(self, text: str) -> str:
        """The end of a text that its encoder does not read."""
        return self._towers["text"].truncated(text)

    def mapped(self, side: str, vectors: Vectors) -> Vectors:
        """Vectors of one tower in the space of both. side: "image" or "text"."""
        weight, bias = self._maps[side]
        return unit(np.asarray(vectors @ weight.T + bias))


def load_encoder(text: str, device: str = "auto", precision: str = "auto", compiled: bool = False) -> Encoder:
    """The encoder KIND:MODEL or KIND:MODEL:WEIGHTS, beside the one that `EncoderSpec.load` keeps."""
    spec = spec_of(text)
    encoder: Encoder = ENCODERS.resolve(spec.encoder)(spec.model, spec.weights, device, precision, compiled)
    return encoder
