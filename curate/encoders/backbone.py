"""Encoders with a torch network, and image backbones for evaluation features, as in CLEAR's supplement: any timm model;
ImageNet, MoCo v2 or BYOL weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import fingerprint, read_json, sha256_file
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile, available, not_loaded, reason
from driftline.curate.core.late import timm, torch, transforms
from driftline.curate.core.vectors import unit
from driftline.curate.encoders import Encoder, Vectors
from driftline.curate.encoders.weights import offline_copy
from driftline.curate.foreign.arrays import check_weights

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as in the code of CLEAR and MoCo


def resolve_device(device: str) -> str:
    """ "auto" → "cuda" if available, else "cpu". Raises BadConfig for a device that does not exist."""
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
        transformed = self.transform(image)
        return torch.from_numpy(np.array(transformed)).permute(2, 0, 1) if self.to_pixels else transformed


class Network:
    """The image side of an `Encoder`: a torch function images → features on a device, in a precision.

    precision: "auto": float16 on CUDA, float32 on CPU. Vectors of different precisions differ by about 1e-3.
    """

    def __init__(self, forward: Callable[[Any], Any], transform: Any, device: str, precision: str):
        if precision == "auto":
            precision = "float16" if device.startswith("cuda") else "float32"
        self.device, self.precision = device, precision
        self._forward = forward
        on_image, self._mean, self._std = split_transform(transform)
        self.prepare: Callable[[Any], Any] = Prepare(on_image, self._mean is not None)

    def images(self, batch: Any) -> Vectors:
        """uint8 or float32 (N, 3, H, W) → (N, D) float32, unit length."""
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
    steps = list(getattr(transform, "transforms", []))
    ends = (transforms.ToTensor, transforms.Normalize)
    if len(steps) < 2 or not all(map(isinstance, steps[-2:], ends)):
        return transform, None, None
    on_image = [s for s in steps[:-2] if not _to_rgb(s)]
    return transforms.Compose(on_image), [float(v) for v in steps[-1].mean], [float(v) for v in steps[-1].std]


def _to_rgb(step: Any) -> bool:
    """Whether this is open_clip's conversion: a function in 3.0, a class with a mode in 3.3."""
    name = getattr(step, "__name__", type(step).__name__)
    return name == "_convert_to_rgb" or (name == "MaybeConvertMode" and step.mode == "RGB")


SIZE = 224  # pixels, as in CLEAR; only another size is part of the fingerprint


class Backbone(Network, Encoder):
    """A timm network without its head; images only.

    model: a timm name ("resnet50"). weights: a checkpoint file (torchvision's, MoCo's `module.encoder_q.…`, BYOL's, or
    any file whose names match after a common prefix), a timm tag ("tv_in1k") from the hub, or a folder written by
    `driftline models train`. Preprocessing as in CLEAR's `prepare_features.py`: shorter edge to 224 (bilinear), centre
    crop of 224, ImageNet's mean and standard deviation; for a pre-trained folder, the size that it was trained at.
    """

    def __init__(self, model: str, weights: str | None = None, device: str = "auto", precision: str = "auto") -> None:
        if model not in (models := timm.list_models()):
            raise BadConfig(f"There is no backbone {model!r} in timm.", available(model, models))
        if weights is None:
            raise BadConfig(f"The backbone {model} has no weights.", "Expected a checkpoint file or a timm tag.")
        device = resolve_device(device)
        size = SIZE
        if (Path(weights) / "pretrain.json").is_file():
            size, weights = pretrained(Path(weights), model)
        file = Path(weights) if Path(weights).is_file() else None
        network = loaded(model, weights, partial(create, size=size)).eval().to(device)
        self.width = int(network.num_features)
        identity = [model, weights] if file is None else [model, sha256_file(file), *([size] if size != SIZE else [])]
        self.fingerprint = fingerprint(identity)
        square = [transforms.Resize(size), transforms.CenterCrop(size)]
        transform = transforms.Compose([*square, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
        super().__init__(network, transform, device, precision)


def loaded(model: str, weights: str, make: Callable[..., Any], new: int = 0) -> Any:
    """A timm network with weights: of a checkpoint file, of a folder of `driftline models train`, or a tag of timm
    ("tv_in1k", or "resnet50.tv_in1k").

    make: (name, further arguments of `timm.create_model`) → the network. new: how many of its last parameters, those of
    a new classifier, are not loaded from a file. Raises MissingFile for what is no file and no tag, Unreachable within
    seconds for a tag whose weights are not here, BadInput as `load_checkpoint`.
    """
    if (Path(weights) / "pretrain.json").is_file():
        weights = pretrained(Path(weights), model)[1]
    if Path(weights).is_file():
        network = make(model)
        load_checkpoint(network, Path(weights), new)
        return network
    name = f"{model}.{weights.removeprefix(f'{model}.')}"
    if name not in (tags := timm.list_pretrained(f"{model}.*")):
        known = ", ".join(tag.partition(".")[2] for tag in tags)
        problem = f"There is no file {weights}, and timm has no such weights of {model}."
        raise MissingFile(problem, f"Expected a checkpoint (.pt, .pth or .safetensors), or one of: {known or 'none'}.")
    config = timm.models.get_pretrained_cfg(name)
    copy = offline_copy(str(config and config.hf_hub_id), ("model.safetensors", "pytorch_model.bin"))
    try:
        return make(name, pretrained=True, pretrained_cfg_overlay={"file": copy} if copy else None)
    except (RuntimeError, OSError, ValueError) as error:
        raise not_loaded(name, error) from None


def create(name: str, size: int, **settings: Any) -> Any:
    """A timm network without its head, for images of `size` pixels. Raises BadConfig if it takes other ones only."""
    config = timm.models.get_pretrained_cfg(name)
    if config is not None and config.fixed_input_size and config.input_size[-1] != size:
        settings["dynamic_img_size"] = True  # a transformer whose positions are interpolated
    try:
        return timm.create_model(name, num_classes=0, **settings)
    except TypeError as error:
        problem = f"The backbone {name} does not take images of {size} pixels ({reason(error)})."
        raise BadConfig(problem, "Expected a network for any size.") from None


def pretrained(folder: Path, model: str) -> tuple[int, str]:
    """(edge in pixels, weights file) of a folder written by `driftline models train`. Raises BadConfig for another
    network."""
    recipe = read_json(folder / "pretrain.json")["recipe"]
    if recipe["network"] != model:
        raise BadConfig(
            f"{folder} holds a {recipe['network']}.",
            f"Expected a {model}.",
            "Set the model to the network of the folder.",
        )
    return int(recipe["size"]), str(folder / "weights.safetensors")


def load_checkpoint(network: Any, path: Path, new: int = 0) -> None:
    """Load a checkpoint file into `network`, except its `new` last parameters; its keys may have a common prefix. A
    port with other names of layers fits if all tensors have the network's shapes and kinds in the network's order.

    Raises BadInput if a layer is missing or has another shape, because the network would be partly random.
    """
    check_weights(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            checkpoint: Any = load_file(path)
        else:
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling raises many kinds of exceptions
        raise BadInput(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}: {reason(error)}).",
            "Expected tensors only.",
            "Save the state_dict alone: torch.save(model.state_dict(), PATH).",
        ) from None
    for key in ("state_dict", "model", "online_network_state_dict"):
        if isinstance(checkpoint, Mapping) and isinstance(checkpoint.get(key), Mapping):
            checkpoint = checkpoint[key]
    tensors = {k: v for k, v in checkpoint.items() if hasattr(v, "shape")} if isinstance(checkpoint, Mapping) else {}
    skipped = {name for name, _ in list(network.named_parameters())[-new:]} if new else set()
    wanted = {k: v for k, v in network.state_dict().items() if k not in skipped}
    first = next(iter(wanted))
    prefixes = sorted(
        (k[: -len(first)] for k in tensors if k.endswith(first)), key=lambda p: ("encoder_k" in p, len(p))
    )
    best = min(prefixes, key=lambda p: sum(p + k not in tensors for k in wanted), default="")
    lacking = [
        k for k, v in wanted.items()
        if (best + k not in tensors or tensors[best + k].shape != v.shape) and not k.endswith("num_batches_tracked")
    ]  # fmt: skip
    if lacking and list(map(_kind, tensors.items()))[: len(wanted)] == list(map(_kind, wanted.items())):
        tensors, best, lacking = dict(zip(wanted, tensors.values(), strict=False)), "", []
    if lacking:
        raise BadInput(
            f"{path} does not fit the network: {len(lacking)} of {len(wanted)} tensors are missing or have another "
            f"shape, for example {lacking[0]}.",
            "Expected a checkpoint of this architecture.",
            "Check model and weights.",
        )
    network.load_state_dict({k: tensors.get(best + k, v) for k, v in wanted.items()}, strict=False)


def _kind(item: tuple[str, Any]) -> tuple[str, tuple[int, ...]]:
    """weight, bias, running_mean …, and the shape."""
    return item[0].rpartition(".")[2], tuple(item[1].shape)
