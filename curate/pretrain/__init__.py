"""Pre-training on unlabelled photos of the past: MoCo v2 [Chen et al. 2020, arXiv:2003.04297].

CLEAR's strongest result: features learned from its unlabelled bucket 0 improve every method [CLEAR, sec. 5].

pool.py     a bucket's images → one array        views.py   two views of each image, in batches, on the device
moco.py     two encoders, a queue, the loss      train.py   training: resume, processes

A new recipe is one `Recipe` object and one line in `RECIPES`.
"""

from dataclasses import dataclass

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.registry import Registry


@dataclass(frozen=True)
class Recipe:
    """Hyper-parameters of MoCo v2."""

    network: str = "resnet50"
    """name in timm"""
    size: int = 224
    """edge of a view in pixels"""
    room: int = 256
    """edge of the stored images in pixels, from which views are cropped"""
    epochs: int = 200
    batch: int = 256
    """images per batch"""
    lr: float = 0.03
    """learning rate of SGD, with cosine decay to 0"""
    momentum: float = 0.9
    weight_decay: float = 1e-4
    queue: int = 65_536
    """number of keys; those of an image's own earlier views are not its negatives"""
    key_momentum: float = 0.999
    """of the moving average in the key encoder"""
    temperature: float = 0.2
    """of the loss"""
    width: int = 128
    """dimensions of the projection, which has one hidden layer"""
    groups: int = 8
    """parts of a batch that are normalised separately, so that batch statistics do not identify the positive key (as
    MoCo's shuffled batch normalisation, but on one device)"""
    precision: str = "auto"
    """bfloat16 (not on a CPU), float32, or auto: bfloat16 on CUDA, float32 on CPU"""

    def __post_init__(self) -> None:
        """Raises BadConfig for impossible values."""
        positive = ("size", "room", "epochs", "batch", "lr", "queue", "temperature", "width", "groups")
        if bad := [name for name in positive if not getattr(self, name) > 0]:
            raise BadConfig(f"{bad[0]} is {getattr(self, bad[0])}.", "Expected a positive number.")
        momenta, decay = (self.key_momentum, self.momentum), self.weight_decay
        rules = (
            (all(0 <= value < 1 for value in momenta) and decay >= 0, ("key_momentum", "momentum", "weight_decay"),
             "0 ≤ momentum < 1 and weight_decay ≥ 0"),
            (16 <= self.size <= self.room, ("size", "room"), "16 ≤ size ≤ room"),
            (self.batch >= 2 * self.groups and self.batch % self.groups == 0, ("batch", "groups"),
             "equal groups of at least 2 images"),
            (self.queue >= 2, ("queue",), "at least 2 keys: an image's own key is no negative"),
            (self.precision in ("auto", "float32", "bfloat16"), ("precision",), "auto, float32 or bfloat16"),
        )  # fmt: skip
        for good, names, expected in rules:
            if not good:
                values = ", ".join(f"{name} {getattr(self, name)}" for name in names).replace(" ", " is ", 1)
                raise BadConfig(f"{values}.", f"Expected {expected}.")


MOCO_V2 = Recipe()  # the reference code's defaults, which CLEAR used [CLEAR, supplement 6]
# For 2,000 images: minutes on two cores. The queue is short: with a key encoder that changes fast enough for a few
# thousand updates, negatives in a long queue would be recognised by their age.
SMALL = Recipe(
    "resnet10t", size=64, room=72, epochs=100, batch=128, queue=256, key_momentum=0.996, temperature=0.1, groups=2
)
RECIPES = Registry("recipe", __name__, {"moco-v2": ":MOCO_V2", "small": ":SMALL"})
