"""Pre-training on photos of the past, without labels: MoCo v2 [Chen et al. 2020, arXiv:2003.04297].

CLEAR's strongest finding is that features learned from its unlabelled bucket 0 lift every method [CLEAR, sec. 5].

gather.py   a bucket's images → one array        views.py   two views of each image, in batches, on the device
moco.py     two encoders, a queue, the loss      train.py   the loop: resume, mixed precision, several processes
probe.py    k-NN accuracy while it trains

A recipe is plain data: a new one is one object and one line in `RECIPES`.
"""

from __future__ import annotations

from dataclasses import dataclass

from curate.core.errors import BadConfig
from curate.core.registry import Registry


@dataclass(frozen=True)
class Recipe:
    """network: of timm. size: edge of a view in pixels. room: edge at which images are kept, before they are cropped.
    epochs, batch, lr, momentum, weight_decay: SGD with a cosine decay of lr to 0. queue: negatives. key_momentum: of
    the key encoder. temperature: of the loss. width: of the projection, behind a hidden layer. groups: parts of a
    batch that are normalised apart, so that a key cannot be told by its batch's statistics (MoCo's shuffled batch
    normalisation, on one device). precision: "bfloat16", "float32", or "auto": the former on CUDA."""

    network: str = "resnet50"
    size: int = 224
    room: int = 256
    epochs: int = 200
    batch: int = 256
    lr: float = 0.03
    momentum: float = 0.9
    weight_decay: float = 1e-4
    queue: int = 65_536
    key_momentum: float = 0.999
    temperature: float = 0.2
    width: int = 128
    groups: int = 8
    precision: str = "auto"

    def __post_init__(self) -> None:
        """Raises BadConfig for numbers that cannot be."""
        positive = ("size", "room", "epochs", "batch", "lr", "queue", "temperature", "width", "groups")
        if bad := [name for name in positive if not getattr(self, name) > 0]:
            raise BadConfig(f"{bad[0]} is {getattr(self, bad[0])}.", "Expected a positive number.")
        if not 0 <= self.key_momentum < 1 or not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise BadConfig(
                f"key_momentum is {self.key_momentum}, momentum {self.momentum}, weight_decay {self.weight_decay}.",
                "Expected momenta from 0 to below 1 and no negative decay.",
            )
        if self.room < self.size or self.size < 16:
            raise BadConfig(f"size is {self.size}, room {self.room}.", "Expected 16 ≤ size ≤ room.")
        if self.batch < 2 * self.groups or self.batch % self.groups:
            raise BadConfig(f"batch is {self.batch}, groups {self.groups}.", "Expected parts of equal size, 2 or more.")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise BadConfig(f"precision is {self.precision!r}.", "Expected auto, float32 or bfloat16.")


MOCO_V2 = Recipe()  # the reference code's defaults, which CLEAR used [CLEAR, supplement 6]
# For 2,000 images: minutes on two cores. The queue is short: with a key encoder that changes fast enough for a few
# thousand updates, negatives in a long queue would be recognised by their age.
SMALL = Recipe(
    "resnet10t",
    size=64,
    room=72,
    epochs=100,
    batch=128,
    queue=256,
    key_momentum=0.996,
    temperature=0.1,
    groups=2,
)
RECIPES = Registry("recipe", {"moco-v2": "curate.pretrain:MOCO_V2", "small": "curate.pretrain:SMALL"})
