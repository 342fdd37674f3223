"""Encoders: images and texts → unit vectors in one space.

A new encoder is a class derived from `Encoder`: one file here and one line in `ENCODERS`, or an entry point of another
package in the group `driftline.encoders`, or any importable class named as `package.module:Name`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.registry import Registry
from driftline.curate.core.settings import SPEED, Form, Positive, Section
from driftline.curate.foreign.images import PREPARATION

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]
else:
    Vectors = Any  # settings are read without numpy, whose import takes longer than they do


def _no_images(_: Any) -> Any:
    expected = "Expected an encoder for images, such as clip, or image vectors computed elsewhere (embed.from)."
    raise BadConfig("The encoder does not read images.", expected)


class Encoder:
    """Base class of encoders. Set `fingerprint` and `width`; implement `prepare` and `images`, or `texts`, or all.

    The constructor is called as `Name(model, weights, device, precision)` with the settings of `embed`, or
    with the parts of `NAME:MODEL:WEIGHTS`; it may ignore what it does not need. Every process loads its own encoder.
    """

    fingerprint: str
    """changes when the model or its weights change"""
    width: int
    """D, the length of a vector"""
    device: str = "cpu"
    """where it computes: cpu or cuda…"""
    precision: str = "float32"
    """of its arithmetic: float32, bfloat16 or float16"""
    prepare: Callable[[Any], Any] = staticmethod(_no_images)
    """RGB image (PIL) → input tensor: uint8 (3, H, W), or float32 after normalisation. With `embed.decoders` other
    processes call it: then use a function or an object that can be pickled without the model."""

    def images(self, batch: Any) -> Vectors:
        """Stacked prepared images (N, ...) → (N, D) float32, unit length."""
        return _no_images(batch)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        raise BadConfig("The encoder does not read texts.", "Expected an encoder for texts, such as clip.")

    def truncated(self, text: str) -> str:
        """The end of a text that is not read because it exceeds the model's context; "" if all of it is read."""
        return ""


def _registered(name: str) -> str:
    try:
        if ":" in name:
            ENCODERS.resolve(name)
        else:
            ENCODERS.entry(name)  # without importing it
    except DriftlineError as error:
        raise PydanticCustomError("unknown_name", "{error}", {"error": str(error)}) from None
    return name


class EncoderSpec(Section):
    """Which encoder, as plain data that can be sent to worker processes. The encoder's class explains the values."""

    encoder: Annotated[str, AfterValidator(_registered), Form("one of driftline list encoders")] = "clip"
    """clip (open_clip), table (a folder of text vectors; needs `from`), another registered encoder, or
    package.module:Name"""
    model: str
    """open_clip name, hf-hub:…, a folder with open_clip_config.json, or driftline-photo-world"""
    weights: str | None = None
    """hub tag or checkpoint file (null when model is a folder)"""
    device: Annotated[str, SPEED] = "auto"
    """auto, cpu or cuda"""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: float16 on CUDA, float32 on CPU"""

    def load(self) -> Encoder:
        """The encoder; a process loads it once."""
        return _load(self)


class EmbedSettings(EncoderSpec):
    """Which model turns images and prompts into vectors."""

    vectors: str | None = Field(default=None, validation_alias="from")
    """folder of image vectors in clip-retrieval's layout, made by the same model (null: compute them)"""
    decoders: Annotated[Annotated[int, Field(ge=0, le=256)] | None, SPEED] = None
    """processes that decode for a device (null: none on CPU, where each worker has a thread for it; else --workers)"""
    batch: Positive = 64
    """images a batch"""


@lru_cache(maxsize=1)
def _load(spec: EncoderSpec) -> Encoder:
    kind = ENCODERS.resolve(spec.encoder)
    encoder: Encoder = kind(spec.model, spec.weights, spec.device, spec.precision)
    return encoder


def spec_of(text: str, device: str = "auto") -> EncoderSpec:
    """Parse KIND:MODEL or KIND:MODEL:WEIGHTS; KIND may be `package.module:Name`. Raises UnknownName, BadConfig.

    >>> spec_of("clip:ViT-B-32:openai")
    EncoderSpec(encoder='clip', model='ViT-B-32', weights='openai', device='auto', precision='auto')
    """
    kind, _, rest = text.partition(":")
    if kind not in ENCODERS and "." in kind:
        name, _, rest = rest.partition(":")
        kind = f"{kind}:{name}"
    ENCODERS.resolve(kind)
    hub = "hf-hub:" if rest.startswith("hf-hub:") else ""  # a colon inside open_clip's model name
    model, _, weights = rest.removeprefix(hub).partition(":")
    if not model:
        raise BadConfig(f"The encoder is {text!r}.", "Expected KIND:MODEL or KIND:MODEL:WEIGHTS, as in ngrams:2048.")
    return EncoderSpec(encoder=kind, model=hub + model, weights=weights or None, device=device)


def describe(encoder: Encoder, kind: str, model: str, weights: str | None) -> dict[str, Any]:
    """The record of an encoder that is kept with its vectors (`encoder.json`)."""
    return {
        "kind": kind,
        "model": model,
        "weights": weights,
        "precision": encoder.precision,
        "fingerprint": encoder.fingerprint,
        "preparation": PREPARATION,
        "width": encoder.width,
    }


ENCODERS = Registry(
    "encoder", __name__, {"clip": ".clip:Clip", "backbone": ".backbone:Backbone", "table": ".texts:TableOfVectors",
                          "sentence": ".texts:Sentence", "ngrams": ".texts:Ngrams"},
    group="encoders", base="driftline.curate.encoders:Encoder",
)  # fmt: skip
