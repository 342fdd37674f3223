"""embed: images → unit vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from curate.core.atomic_io import read_json, write_json
from curate.embedding.embed import embed
from curate.embedding.import_vectors import import_vectors
from curate.encoders import EncoderSpec, describe
from pipelines.stage import Context, Counts, Records, Stage

BUILT_IN = "driftline-photo-world"  # the small model that was trained on rendered photos


def built_in(model: str) -> str:
    """Where the model lies that comes with driftline; "" for others."""
    return str(files("pipelines").joinpath("demo/model")) if model == BUILT_IN else ""


def model_of(context: Context) -> tuple[str, str | None]:
    """Model name or folder, and weights, as open_clip takes them."""
    section = context.config.embed
    if place := built_in(section.model):
        return place, None
    folder = context.path(section.model)
    model = str(folder) if folder.is_dir() else section.model
    weights = section.weights
    if weights is not None and context.path(weights).is_file():
        weights = str(context.path(weights))
    return model, weights


def _public(given: str) -> str:
    """A model's name as a release may tell it: of a local path only the last part."""
    return given if "://" in given or given.startswith("hf-hub:") else Path(given).name or given


def spec_of(context: Context) -> EncoderSpec:
    """The configured encoder, paths resolved."""
    section = context.config.embed
    model, weights = model_of(context)
    return EncoderSpec(model, weights, section.device, section.encoder, section.precision, section.compile)


@dataclass(frozen=True)
class Embed(Stage):
    """Embed every image that is in a bucket; finished shards are not embedded again."""

    name: ClassVar[str] = "embed"
    records: ClassVar[Records] = (("metadata/*.parquet", "fault"),)
    version: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("fetch", "bucket")
    hint: ClassVar[str] = "The folder embed.from knows none of the images: compare its ids with stages/04_bucket."

    def settings(self) -> Any:
        """Model and batch size (which may change the last bits)."""
        return self.context.config.embed.model_dump(exclude={"decoders"})

    def outside(self) -> list[Path]:
        """Local model files, and vectors from elsewhere."""
        model, weights = model_of(self.context)
        given = self.context.config.embed.vectors
        places = [model, weights, None if given is None else str(self.context.path(given))]
        return [Path(p) for p in places if p is not None and Path(p).exists()]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """shards → img_emb/, metadata/, encoder.json."""
        section = self.context.config.embed
        encoder = spec_of(self.context).load()  # before any work: a wrong model is one clear error
        members = pq.read_table(inputs["bucket"] / "members.parquet")
        name, file = (None if given is None else _public(given) for given in (section.model, section.weights))
        facts = describe(encoder, section.encoder, name or "", file)
        if section.vectors is not None:
            given = self.context.path(section.vectors)
            faults = import_vectors(given, members, out, self.context.run_log)
            facts |= maker_of(given)
        else:
            faults = embed(
                inputs["fetch"], members, spec_of(self.context), out, self.context.run_log, section.batch,
                self.context.executor, section.decoders,
            )  # fmt: skip
        kept = faults.pop("", 0)
        write_json(out / "encoder.json", facts)
        return Counts(len(members), kept, faults)


def maker_of(given: Path) -> dict[str, Any]:
    """What a folder of vectors tells of its maker: nothing (clip-retrieval's), or our `encoder.json`."""
    file = given / "encoder.json"
    known = read_json(file) if file.is_file() else {}
    return {"from": given.name, "fingerprint": known.get("fingerprint") if isinstance(known, dict) else None}
