"""Backbones for evaluation features, as in CLEAR's supplement: ImageNet, MoCo v2, BYOL checkpoints, any timm model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.core.atomic_io import fingerprint, read_json, sha256_file
from curate.core.errors import BadConfig, BadInput, MissingFile
from curate.encoders import Vectors
from curate.encoders.network import MEAN, STD, Network, place

CLEAR = 224  # pixels; another size is part of the fingerprint
HEADS = ("fc.", "classifier.", "head.")  # layers after the features: not needed, and MoCo's have other shapes


class Backbone(Network):
    """A timm network without its head.

    model: a timm name ("resnet50"). weights: a checkpoint file (torchvision's, MoCo's `module.encoder_q.…`, BYOL's,
    or any whose names match after a common prefix), a timm tag ("tv_in1k") from the hub, or a folder that `driftline
    pretrain` wrote. Preprocessing is that of CLEAR's `prepare_features.py`: shorter edge to 224 (bilinear), centre crop
    of 224, ImageNet's mean and deviation; of a pre-trained folder the size is the one that it was trained at.
    """

    def __init__(
        self,
        model: str,
        weights: str | None = None,
        device: str = "auto",
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        import timm
        from torchvision import transforms

        if model not in timm.list_models():
            near = difflib.get_close_matches(model, timm.list_models(), 3)
            raise BadConfig(f"There is no backbone {model!r} in timm.", f"Nearest names: {', '.join(near) or 'none'}.")
        if weights is None:
            raise BadConfig(f"The backbone {model} has no weights.", "Expected a checkpoint file or a timm tag.")
        device = place(device)
        size = CLEAR
        if (Path(weights) / "pretrain.json").is_file():
            size, weights = pretrained(Path(weights), model)
        if Path(weights).is_file():
            network = timm.create_model(model, pretrained=False, num_classes=0)
            load_checkpoint(network, Path(weights))
            self.fingerprint = fingerprint([model, sha256_file(Path(weights)), *([size] if size != CLEAR else [])])
        else:
            try:
                network = timm.create_model(f"{model}.{weights}", pretrained=True, num_classes=0)
            except (RuntimeError, OSError, ValueError) as error:
                raise MissingFile(
                    f"The weights {weights} of {model} cannot be reached ({str(error).splitlines()[0]}).",
                    "Expected a checkpoint file, or a tag of timm's hub.",
                    "Without internet: download the checkpoint elsewhere and give its path.",
                ) from None
            self.fingerprint = fingerprint([model, weights])
        features: Any = network.num_features
        self.width = int(features)
        transform = transforms.Compose(
            [
                transforms.Resize(size),
                transforms.CenterCrop(size),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )
        super().__init__(network.eval().to(device), transform, device, precision, compiled)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Raises BadConfig: a backbone reads no text."""
        raise BadConfig("A backbone has no text tower.", "Expected CLIP for retrieval.", "Use it for features only.")

    def cut(self, text: str) -> str:
        """Nothing is read."""
        return text


def pretrained(folder: Path, model: str) -> tuple[int, str]:
    """Edge in pixels and weights of what `driftline pretrain` wrote. Raises BadConfig for another network."""
    recipe = read_json(folder / "pretrain.json")["recipe"]
    if recipe["network"] != model:
        raise BadConfig(f"{folder} holds a {recipe['network']}.", f"The encoder's model is {model}.", "Name that one.")
    return int(recipe["size"]), str(folder / "weights.safetensors")


def load_checkpoint(network: Any, path: Path) -> None:
    """Fill `network` from a file, whatever its keys' common prefix; heads are left out.

    Raises BadInput where a layer is missing or has another shape: never a network that is partly random.
    """
    import torch

    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        found: Any = load_file(path)
    else:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # unpickling raises what it likes
            raise BadInput(
                f"{path} cannot be read as a checkpoint ({type(error).__name__}: {str(error).splitlines()[0][:150]}).",
                "Expected tensors only.",
                "Save the state_dict alone: torch.save(model.state_dict(), PATH).",
            ) from None
    for key in ("state_dict", "model", "online_network_state_dict"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    tensors = {k: v for k, v in found.items() if hasattr(v, "shape")} if isinstance(found, Mapping) else {}
    wanted = {k: v for k, v in network.state_dict().items() if not k.startswith(HEADS)}
    first = next(iter(wanted))
    prefixes = sorted(
        (k[: -len(first)] for k in tensors if k.endswith(first)), key=lambda p: ("encoder_k" in p, len(p))
    )
    best = min(prefixes, key=lambda p: sum(p + k not in tensors for k in wanted), default="")
    lacking = [
        k for k, v in wanted.items()
        if (best + k not in tensors or tensors[best + k].shape != v.shape) and not k.endswith("num_batches_tracked")
    ]  # fmt: skip
    if lacking:
        raise BadInput(
            f"{path} does not fit the network: {len(lacking)} of {len(wanted)} tensors are missing or have another "
            f"shape, {lacking[0]} first.",
            "Expected a checkpoint of this architecture.",
            "Check model and weights.",
        )
    network.load_state_dict({k: tensors.get(best + k, v) for k, v in wanted.items()}, strict=False)
