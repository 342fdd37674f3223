"""CLIP models of open_clip, with weights from a hub tag, a checkpoint file or a local folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import fingerprint, sha256_file
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile, available, reason
from driftline.curate.core.late import open_clip, torch
from driftline.curate.core.vectors import unit
from driftline.curate.encoders import Encoder, Vectors
from driftline.curate.encoders.backbone import Network, resolve_device
from driftline.curate.encoders.weights import check_weights, unreachable


class Clip(Network, Encoder):
    """A CLIP model; images and texts.

    model: an open_clip name ("RN50", "ViT-B-32"), `hf-hub:org/name`, or a folder with `open_clip_config.json` and
    weights. weights: hub tag ("openai"), checkpoint path, or None if `model` is a folder or hub name. device: "auto",
    "cpu" or "cuda".
    """

    def __init__(self, model: str, weights: str | None = None, device: str = "auto", precision: str = "auto") -> None:
        check_weights(model, weights)  # before the imports, which take seconds
        device = resolve_device(device)
        name, source = self._resolve(model, weights)
        try:
            clip, _, transform = open_clip.create_model_and_transforms(name, pretrained=source, device=device)
        except Exception as error:  # unpickling raises many kinds of exceptions
            if isinstance(error, OSError) or "download" in str(error):
                raise unreachable(model, weights, error) from None
            fault = f"do not fit the model {model}" if isinstance(error, RuntimeError) else "cannot be read"
            raise BadInput(
                f"The weights {weights or model} {fault} ({reason(error)}).",
                "Expected a checkpoint of this architecture, tensors only.",
                "Check embed.model and embed.weights.",
            ) from None
        self._model = clip.eval()
        super().__init__(self._model.encode_image, transform, device, precision)
        self._tokenize = open_clip.get_tokenizer(name)
        self.fingerprint = self._identity(model, weights)
        with torch.no_grad():
            self.width = int(self._model.encode_text(self._tokenize(["a"]).to(self.device)).shape[1])

    @staticmethod
    def _resolve(model: str, weights: str | None) -> tuple[str, str | None]:
        if Path(model).is_dir():
            if not (Path(model) / "open_clip_config.json").is_file():
                raise MissingFile(f"The folder {model} holds no open_clip_config.json.", "", "Check embed.model.")
            return f"local-dir:{model}", None
        if model.startswith(("hf-hub:", "local-dir:")):
            return model, None
        names = open_clip.list_models()
        if model not in names:
            problem = f"embed.model is {model!r}: neither a folder nor a model of open_clip."
            raise BadConfig(problem, available(model, names, "open_clip.list_models()"))
        tags = open_clip.list_pretrained_tags_by_model(model)
        if weights is None or (weights not in tags and not Path(weights).is_file()):
            raise BadConfig(
                f"embed.weights is {weights!r}.",
                f"Expected a checkpoint file, or one of {model}'s tags: {', '.join(tags) or 'none'}.",
            )
        return model, weights

    @staticmethod
    def _identity(model: str, weights: str | None) -> str:
        folder = Path(model.removeprefix("local-dir:"))
        if folder.is_dir():
            files = sorted(p for p in folder.iterdir() if p.suffix in (".json", ".safetensors", ".bin", ".pt"))
            return fingerprint([(p.name, sha256_file(p)) for p in files])
        if weights and Path(weights).is_file():
            return fingerprint([model, sha256_file(Path(weights))])
        return fingerprint([model, weights])

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length; the part that `truncated` returns is not read."""
        with torch.inference_mode():
            tokens = self._tokenize(list(texts)).to(self.device)
            return unit(self._model.encode_text(tokens).float().cpu().numpy())

    def truncated(self, text: str) -> str:
        """The end of a text that exceeds the model's context; "" if all of it is read."""
        tokenizer: Any = self._tokenize
        most = tokenizer.context_length - 2  # the start and end tokens take two places
        if hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode"):
            tokens = tokenizer.encode(text)
        else:
            tokenizer = tokenizer.tokenizer  # a Hugging Face tokenizer, wrapped by open_clip
            tokens = tokenizer.encode(text, add_special_tokens=False)
        return str(tokenizer.decode(tokens[most:])).strip() if len(tokens) > most else ""
