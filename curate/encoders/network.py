"""The shared part of encoders with a torch network: device, precision, normalisation on the device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.vectors import unit
from driftline.curate.encoders import Vectors

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as in the code of CLEAR and MoCo
PRECISIONS = ("auto", "float32", "bfloat16", "float16")


def resolve_device(device: str) -> str:
    """ "auto" → "cuda" if available, else "cpu". Raises BadConfig for a device that does not exist."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BadConfig("embed.device is cuda.", "No CUDA device is visible.", "Use device: auto or cpu.")
    if device != "cpu" and not device.startswith("cuda"):
        raise BadConfig(f"embed.device is {device!r}.", "Expected auto, cpu or cuda.")
    return device


@dataclass(frozen=True)
class Prepare:
    """RGB image (PIL) → tensor. Holds no network, so that it can be sent to processes that decode."""

    transform: Callable[[Any], Any]
    to_pixels: bool
    """`transform` gives an image, which becomes uint8 (3, H, W); the device normalises it. Else it gives a tensor."""

    def __call__(self, image: Any) -> Any:
        """The input tensor of one image."""
        import torch

        transformed = self.transform(image)
        return torch.from_numpy(np.array(transformed)).permute(2, 0, 1) if self.to_pixels else transformed


class Network:
    """The image side of an `Encoder`: a torch function images → features on a device, in a precision.

    precision: "auto": float16 on CUDA, float32 on CPU. Vectors of different precisions differ by about 1e-3.
    """

    def __init__(self, forward: Callable[[Any], Any], transform: Any, device: str, precision: str, compiled: bool):
        import torch

        if precision not in PRECISIONS:
            raise BadConfig(f"embed.precision is {precision!r}.", f"Expected one of {', '.join(PRECISIONS)}.")
        if precision == "auto":
            precision = "float16" if device.startswith("cuda") else "float32"
        self.device, self.precision = device, precision
        self._forward = torch.compile(forward, dynamic=False) if compiled else forward
        on_image, self._mean, self._std = split_transform(transform)
        self.prepare: Callable[[Any], Any] = Prepare(on_image, self._mean is not None)

    def images(self, batch: Any) -> Vectors:
        """uint8 or float32 (N, 3, H, W) → (N, D) float32, unit length."""
        import torch

        with torch.inference_mode():
            x = batch.to(self.device, non_blocking=True)
            if x.dtype == torch.uint8:
                mean, std = (torch.tensor(v, device=x.device).view(1, 3, 1, 1) for v in (self._mean, self._std))
                x = x.float().div_(255).sub_(mean).div_(std)
            enabled = self.precision != "float32"
            dtype = getattr(torch, self.precision) if enabled else torch.bfloat16
            with torch.autocast(self.device.partition(":")[0], dtype=dtype, enabled=enabled):
                out = self._forward(x)
            return unit(out.float().cpu().numpy())


def split_transform(transform: Any) -> tuple[Callable[[Any], Any], list[float] | None, list[float] | None]:
    """A torchvision Compose → (its steps on PIL images, mean, std), so that normalisation runs on the device in
    batches.

    A transform that does not end in ToTensor and Normalize is returned unchanged, with None for mean and std. Images
    are RGB: without open_clip's conversion to it, a process that decodes need not import that package, which takes
    seconds.
    """
    from torchvision.transforms import Compose, Normalize, ToTensor

    steps = list(getattr(transform, "transforms", []))
    if len(steps) < 2 or not isinstance(steps[-2], ToTensor) or not isinstance(steps[-1], Normalize):
        return transform, None, None
    on_image = [s for s in steps[:-2] if not _to_rgb(s)]
    return Compose(on_image), [float(v) for v in steps[-1].mean], [float(v) for v in steps[-1].std]


def _to_rgb(step: Any) -> bool:
    """Whether this is open_clip's conversion: a function in 3.0, a class with a mode in 3.3."""
    name = getattr(step, "__name__", type(step).__name__)
    return name == "_convert_to_rgb" or (name == "MaybeConvertMode" and step.mode == "RGB")
