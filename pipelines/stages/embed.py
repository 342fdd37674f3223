"""embed: images → unit vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from curate.embed import embed
from curate.encoders import EncoderSpec
from curate.encoders.clip import Clip, describe
from curate.ground.files import write_json
from curate.ground.workers import Engine
from pipelines.stage import Context, Counts, Stage

BUILT_IN = "driftline-photo-world"  # the small model that was trained on rendered photos


def model_of(context: Context) -> tuple[str, str | None]:
    """Model name or folder, and weights, as open_clip takes them."""
    section = context.config.embed
    if section.model == BUILT_IN:
        return str(files("pipelines").joinpath("demo/model")), None
    folder = context.path(section.model)
    model = str(folder) if folder.is_dir() else section.model
    weights = section.weights
    if weights is not None and context.path(weights).is_file():
        weights = str(context.path(weights))
    return model, weights


def _public(given: str) -> str:
    """A model's name as a release may tell it: of a local path only the last part."""
    return given if "://" in given or given.startswith("hf-hub:") else Path(given).name or given


@dataclass(frozen=True)
class Embed(Stage):
    """Embed every image that is in a bucket; finished shards are not embedded again."""

    name: ClassVar[str] = "embed"
    needs: ClassVar[tuple[str, ...]] = ("fetch", "bucket")

    def settings(self) -> Any:
        """Model and batch size (which may change the last bits)."""
        return self.context.config.embed.model_dump()

    def outside(self) -> list[Path]:
        """Local model files."""
        model, weights = model_of(self.context)
        return [Path(p) for p in (model, weights) if p is not None and Path(p).exists()]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """shards → img_emb/, metadata/, encoder.json."""
        model, weights = model_of(self.context)
        section = self.context.config.embed
        spec = EncoderSpec(model, weights, section.device)
        encoder = Clip(model, weights, section.device)  # before any work: a wrong model is one clear error
        engine = self.context.engine if encoder.device == "cpu" else Engine()  # one process has the one device
        members = pq.read_table(inputs["bucket"] / "members.parquet")
        faults = embed(inputs["fetch"], members, spec, out, self.context.journal, section.batch, engine)
        kept = faults.pop("", 0)
        name, file = (None if given is None else _public(given) for given in (section.model, section.weights))
        write_json(out / "encoder.json", describe(encoder, name or "", file))
        return Counts(len(members), kept, faults)
