"""A convolutional network or transformer of timm, trained on images with the same loop and rules as the heads. Flips,
crops and small rotations of a whole batch are one gather of pixels on the images' device."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, IncompatibleStream, UnknownName, did_you_mean
from driftline.curate.core.late import timm, torch
from driftline.eval.engine import fused
from driftline.eval.engine.linear import Params, Pull, seeded, zeros

PAD = 8  # an image is shifted by at most 1/PAD of its side; new pixels are black
TURN = 10.0  # largest rotation in degrees
KINDS = ("flip", "crop", "rotate")


def draw(shape: tuple[int, ...], kinds: tuple[str, ...], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """shape: (B, H, W, 3) → (B, 5): cosine and sine of each image's rotation, shift in rows and columns, flipped or
    not.

    Drawn on the CPU: the same on every device.
    """
    n, height, width, _ = shape
    flip = rng.random(n) < 0.5 if "flip" in kinds else np.zeros(n)
    reach = (height // PAD, width // PAD) if "crop" in kinds else (0, 0)
    down, right = (rng.integers(-most, most + 1, n) for most in reach)
    angle = np.deg2rad(rng.uniform(-TURN, TURN, n)) if "rotate" in kinds else np.zeros(n)
    return np.stack([np.cos(angle), np.sin(angle), down, right, flip], 1).astype(np.float32)


def augmented(x: Any, draws: npt.NDArray[np.float32]) -> Any:
    """x (B, H, W, 3) uint8 tensor → the same, each image flipped, shifted and rotated (nearest pixel) by its own
    draw."""
    n, height, width, _ = x.shape
    each = torch.from_numpy(draws).to(x.device)[:, :, None, None]
    cos, sin, down, right, flip = each.unbind(1)
    rows = torch.arange(height, dtype=torch.float32, device=x.device)[:, None] - (height - 1) / 2
    columns = torch.arange(width, dtype=torch.float32, device=x.device) - (width - 1) / 2
    # Source of each pixel: rotated about the centre, then shifted.
    from_row = (sin * columns + cos * rows).add_(down + (height - 1) / 2).round_()
    from_column = (cos * columns - sin * rows).add_(right + (width - 1) / 2).round_()
    inside = (from_row >= 0) & (from_row < height) & (from_column >= 0) & (from_column < width)
    from_column = torch.where(flip > 0, width - 1 - from_column, from_column)
    places = from_row.mul_(width).add_(from_column).mul_(inside).long().view(n, -1)
    # Four bytes at a time: one gather of whole pixels instead of three of their channels.
    pixels = torch.nn.functional.pad(x, (0, 1)).view(torch.int32).view(n, -1)
    taken = pixels.gather(1, places).mul_(inside.view(n, -1))
    return taken.view(torch.uint8).view(n, height, width, 4)[..., :3]


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as in CLEAR's recipe
SCALE = tuple(1 / (255 * std) for std in STD)  # factors of bytes
SHIFT = tuple(-mean / std for mean, std in zip(MEAN, STD, strict=True))
CHUNK = 256  # images predicted at once
RANDOM = ("", "none")  # weights: random ones
SINGLE = 16  # images whose single gradients are computed at once


@dataclass
class Deep:
    """A timm model under the training loop. x is (B, H, W, 3) uint8, or the result of `view`."""

    module: Any
    """the model; its last two parameters are its classifier's: weights (C, F), and bias (C,) or σ ()"""
    velocity: Params
    kinds: tuple[str, ...]
    """augmentations of training batches"""
    rng: np.random.Generator
    mixed: bool = False
    """training multiplies in bfloat16 (autocast)"""
    frozen: bool = False
    """only the classifier learns, and statistics of batch normalisation stay"""
    half = False  # data stay uint8

    @classmethod
    def new(
        cls,
        name: str,
        n_classes: int,
        kinds: tuple[str, ...],
        rng: np.random.Generator,
        device: str,
        mixed: bool,
        weights: str = "",
        cosine: bool = False,
    ) -> "Deep":
        """A timm model with random weights from `rng`, or with `weights` (a checkpoint or a tag of timm, as of the
        encoder `backbone`) below a new classifier. cosine: the classifier is `CosineLayer`. Raises UnknownName for an
        unknown tag, MissingFile and BadInput for weights that are not here or do not fit."""
        from driftline.curate.encoders.backbone import loaded

        with seeded(rng):
            make = partial(timm.create_model, num_classes=n_classes)
            # torchvision's ResNets, the papers', start with every scale at 1; timm's with the last of each block at 0
            own: Any = {"zero_init_last": False} if timm.models.is_model_in_modules(name, ("resnet",)) else {}
            module: Any = make(name, **own) if weights in RANDOM else loaded(name, weights, make, new=2)
            last = [tuple(p.shape) for p in module.parameters()][-2:]
            if len(last[0]) != 2 or last[0][0] != n_classes or last[1] != (n_classes,):
                raise BadConfig(f"net is {name!r}.", "Expected a model that ends in one linear layer with a bias.")
            if cosine:
                from driftline.eval.engine.layers import CosineLayer

                classifier = next(key for key, part in module.named_modules() if part is module.get_classifier())
                parent, _, key = classifier.rpartition(".")
                setattr(module.get_submodule(parent), key, CosineLayer(last[0][1], n_classes))
        module = module.to(device)
        if mixed or device.startswith("cuda"):  # a third faster in bfloat16 at 128 pixels, slower in float32
            module = module.to(memory_format=torch.channels_last)
        return cls(module, zeros(list(module.parameters())), kinds, rng, mixed)

    @property
    def params(self) -> Params:
        """In the module's order; they share its memory, detached from autograd."""
        return [p.detach() for p in self.module.parameters()]

    @property
    def nbytes(self) -> int:
        """Bytes kept between training runs: weights and statistics of batch normalisation."""
        return sum(int(t.nbytes) for t in self.module.state_dict().values())

    def copy(self) -> "Deep":
        module, velocity = copy.deepcopy(self.module), [v.clone() for v in self.velocity]
        return Deep(module, velocity, self.kinds, copy.deepcopy(self.rng), self.mixed, self.frozen)

    def view(self, x: Any) -> Any:
        """A training batch as the network's input: augmented and normalised, (B, 3, H, W) float32."""
        draws = draw(tuple(x.shape), self.kinds, self.rng)
        if fused.ready(x):
            shown = fused.show(x, draws, SCALE, SHIFT)
        else:
            shown = planes(augmented(x, draws) if self.kinds else x)
        return shown.contiguous(memory_format=torch.channels_last) if self.mixed else shown

    def scores(self, x: Any) -> Any:
        """Scores (B, C) float32; batch normalisation by its statistics."""
        self.module.eval()
        parts = []
        for low in range(0, len(x), CHUNK):
            with self._casting(x):
                parts.append(self.module(planes(x[low : low + CHUNK])).float())
        return torch.cat(parts)

    def data_gradient(self, x: Any, y: Any, pull: Pull | None = None) -> Params:
        """Batch normalisation by the batch."""

        def loss(scores: Any) -> Any:
            data = torch.nn.functional.cross_entropy(scores, y, reduction="sum") / len(y)
            return data if pull is None else data + (scores * pull(scores.detach())).sum()

        return self.gradient(x, loss)

    def pulled(self, x: Any, g: Any) -> Params:
        return self.gradient(x, lambda scores: (scores * g).sum())

    def fisher(self, x: Any, y: Any) -> Params:
        """Mean over samples of the squared gradient of one sample's loss; batch normalisation by its statistics."""
        self.module.eval()
        weights = {name: p.detach() for name, p in self.module.named_parameters()}

        def loss(params: Any, image: Any, label: Any) -> Any:
            scores = torch.func.functional_call(self.module, params, (image[None],))
            return torch.nn.functional.cross_entropy(scores, label[None])

        single = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        total = zeros(self.params)
        for low in range(0, len(y), SINGLE):
            squares = single(weights, planes(x[low : low + SINGLE]), y[low : low + SINGLE])
            total = [f + (squares[name] ** 2).sum(0) / len(y) for f, name in zip(total, weights, strict=True)]
        return total

    def gradient(self, x: Any, loss_of: Callable[[Any], Any]) -> Params:
        """Gradient of a loss of the scores."""
        self.module.train(not self.frozen and len(x) > 1)  # one image, as in a correction, has no statistics
        params = list(self.module.parameters())[-2 if self.frozen else 0 :]
        with torch.enable_grad():
            with self._casting(x):
                shown = planes(x)
                scores = self.module.get_classifier()(self.features(shown)) if self.frozen else self.module(shown)
            grads = list(torch.autograd.grad(loss_of(scores.float()), params))
        return [None] * (len(self.params) - 2) + grads if self.frozen else grads

    def features(self, x: Any) -> Any:
        """Inputs (B, F) of the classifier, without gradient; batch normalisation by its statistics if frozen."""
        with torch.no_grad():
            return self.module.forward_head(self.module.forward_features(planes(x)), pre_logits=True)

    def _casting(self, x: Any) -> Any:
        return torch.autocast(x.device.type, torch.bfloat16, enabled=self.mixed)


def check_model(name: str, x_shape: tuple[int, ...]) -> None:
    """Raise UnknownName for a model that timm does not have, IncompatibleStream for samples that are no images."""
    if not timm.is_model(name):
        expected = did_you_mean(name, timm.list_models())
        raise UnknownName(f"Unknown net {name!r}.", expected, "Available: linear, mlp, and the models of timm.")
    if len(x_shape) != 3 or x_shape[-1] != 3:
        problem = f"net is {name!r}, which takes images; the samples have shape {x_shape}."
        raise IncompatibleStream(problem, "Expected uint8 images (H, W, 3).", "On features leave net at its default.")


def planes(x: Any) -> Any:
    """(B, H, W, 3) uint8 → (B, 3, H, W) float32, normalised; float32 is returned unchanged."""
    if x.dtype != torch.uint8:
        return x
    scale, shift = (torch.tensor(v, device=x.device).view(1, 3, 1, 1) for v in (SCALE, SHIFT))
    return x.permute(0, 3, 1, 2).float().mul_(scale).add_(shift)
