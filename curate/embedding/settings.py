"""Settings of embed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from driftline.curate.core.settings import SPEED, Positive
from driftline.curate.encoders import EncoderSpec


class EmbedSettings(EncoderSpec):
    """Which model turns images and prompts into vectors."""

    vectors: str | None = Field(default=None, validation_alias="from")
    """folder of image vectors in clip-retrieval's layout, made by the same model (null: compute them)"""
    decoders: Annotated[Annotated[int, Field(ge=0, le=256)] | None, SPEED] = None
    """processes that decode for a device (null: none on CPU, where each worker has a thread for it; else --workers)"""
    batch: Positive = 64
    """images a batch"""
