"""Learn the two linear maps of a locked-image, locked-text encoder from captions, on a CPU, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes, write_json
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import Encoder, Vectors, spec_of
from driftline.curate.encoders.locked import MAPS, RECORD
from driftline.curate.pretrain.small_clip import Images, Order, contrast

EDGE = 224  # pixels of an image before the image encoder prepares it
BLOCK = 64  # images at once


def encoded(encoder: Encoder, images: Images) -> Vectors:
    """uint8 (N, S, S, 3) → (N, D) unit vectors."""
    import torch
    from PIL import Image

    blocks = (images[low : low + BLOCK] for low in range(0, len(images), BLOCK))
    prepared = (torch.stack([encoder.prepare(Image.fromarray(image)) for image in block]) for block in blocks)
    return np.concatenate([encoder.images(batch) for batch in prepared])


def train(
    images: Vectors,
    captions: Callable[[int, np.random.Generator], str],
    keys: Sequence[str],
    towers: tuple[tuple[str, Encoder], tuple[str, Encoder]],
    out: Path,
    run_log: RunLog,
    seed: int = 0,
    epochs: int = 20,
    batch: int = 256,
    lr: float = 3e-3,
    width: int = 256,
    decay: float = 0.1,
    dropout: float = 0.5,
) -> list[float]:
    """Train and write the folder `out`; returns the mean loss of every epoch.

    images: (N, D) vectors of the image encoder. captions, keys, and the loss with soft targets: as in
    `small_clip.train`. towers: KIND:MODEL:WEIGHTS and encoder of images, and of texts. width: of the space. dropout: of
    the encoders' numbers, because a map has more weights than there are captions.
    """
    import torch
    from safetensors.torch import save
    from torch.nn import functional

    rng = rng_for(seed, "locked towers")
    torch.manual_seed(int(rng.integers(2**31)))
    text = towers[1][1]
    maps = torch.nn.ModuleDict(
        {"image": torch.nn.Linear(images.shape[1], width), "text": torch.nn.Linear(text.width, width)}
    )
    scale = torch.nn.Parameter(torch.tensor(np.log(1 / 0.07)))
    groups: list[dict[str, Any]] = [{"params": maps.parameters()}, {"params": [scale], "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr, weight_decay=decay)
    vector_of: dict[str, Vectors] = {}

    def vectors(texts: list[str]) -> Vectors:
        if new := [one for one in dict.fromkeys(texts) if one not in vector_of]:
            vector_of.update(zip(new, text.texts(new), strict=True))
        return np.stack([vector_of[one] for one in texts])

    def mapped(side: str, x: Vectors) -> torch.Tensor:
        rows = functional.dropout(torch.from_numpy(x * np.sqrt(x.shape[1])), dropout)  # of unit variance
        return functional.normalize(maps[side](rows.float()), dim=1)

    def embedded(chosen: Order) -> tuple[Any, Any]:
        return mapped("image", images[chosen]), mapped("text", vectors([captions(int(i), rng) for i in chosen]))

    batch = min(batch, len(images))
    per_epoch = contrast(
        embedded, keys, optimiser=optimiser, log_scale=scale, lr=lr, epochs=epochs, batch=batch, rng=rng,
        run_log=run_log,
    )  # fmt: skip
    losses = list(per_epoch)
    state = {name: tensor.contiguous() for name, tensor in maps.state_dict().items()}
    for side, d in (("image", images.shape[1]), ("text", text.width)):
        state[f"{side}.weight"] *= float(np.sqrt(d))  # an encoder's vectors have length 1
    write_bytes(out / MAPS, save(state))
    record = {
        side: {"encoder": _absolute(name), "fingerprint": one.fingerprint}
        for side, (name, one) in zip(("image", "text"), towers, strict=True)
    }
    write_json(out / RECORD, record)
    return losses


def _absolute(name: str) -> str:
    """KIND:MODEL:WEIGHTS with the full paths of files and folders."""
    spec = spec_of(name)
    parts = (part for part in (spec.model, spec.weights) if part is not None)
    return ":".join([spec.encoder, *(str(Path(part).absolute()) if Path(part).exists() else part for part in parts)])
