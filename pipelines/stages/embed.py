"""embed: images → unit vectors."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.errors import MissingFile
from driftline.curate.core.registry import HOME
from driftline.curate.encoders import ENCODERS, EncoderSpec, describe
from driftline.curate.encoders.weights import NOBODY, seen
from driftline.curate.foreign.images import PREPARATION
from driftline.pipelines.stages.base import Context, Counts, Records, Stage

BUILT_IN = "driftline-photo-world"  # a small CLIP, trained on rendered photos of all years
OF_2004 = "driftline-photos-of-2004"  # a small network, trained on rendered photos of their first year
BEFORE_1904 = "driftline-paintings-before-1904"  # the same network, trained on the USDA's older watercolours
FOLDERS = {BUILT_IN: "demo/model", OF_2004: "demo/early", BEFORE_1904: "demo/watercolours"}
TRIED = 8  # images that are embedded to measure the speed


def built_in(model: str) -> str:
    """Folder of a model that is part of driftline; "" for other models."""
    return str(files("driftline.pipelines").joinpath(FOLDERS[model])) if model in FOLDERS else ""


def spec_of(context: Context) -> EncoderSpec:
    """The configured encoder with the paths of local models resolved."""
    section = context.config.embed
    if model := built_in(section.model):
        weights = None
    else:
        model, weights = section.model, section.weights
        model = str(folder) if (folder := context.path(model)).is_dir() else model
        if weights is not None and (file := context.path(weights)).is_file():
            weights = str(file)
    located: EncoderSpec = section.model_copy(update={"model": model, "weights": weights})
    return located


def measured_speed(context: Context) -> float:
    """Images a second that one process embeds, measured now."""
    import torch
    from PIL import Image

    from driftline.curate.core.executor import one_thread

    encoder = spec_of(context).load()
    with one_thread():
        batch = torch.stack([encoder.prepare(Image.new("RGB", (256, 256)))] * TRIED)
        encoder.images(batch)
        started = time.perf_counter()
        encoder.images(batch)
    return TRIED / (time.perf_counter() - started)


def _public(name: str) -> str:
    """A model's name as a release shows it: of a local path only the last part."""
    return name if "://" in name or name.startswith("hf-hub:") else Path(name).name or name


class Embed(Stage):
    """Embed every image that is in a bucket; finished shards are not embedded again."""

    name: ClassVar[str] = "embed"
    records: ClassVar[Records] = (("metadata/*.parquet", "fault"),)
    version: ClassVar[int] = 1 + PREPARATION
    needs: ClassVar[tuple[str, ...]] = ("fetch", "bucket")
    hint: ClassVar[str] = (
        "The folder embed.from has vectors of none of the images: compare its ids with stages/04_bucket."
    )

    parts: ClassVar[str] = r"(?:img_emb/img_emb|metadata/metadata)_(\d+)\.(?:npy|parquet)"

    def settings(self) -> Any:
        """Model and batch size (which may change the last bits)."""
        return self.context.config.embed.identity(self.name)

    def plugins(self) -> list[type]:
        """Also the encoder."""
        return [*super().plugins(), *own_encoder(self.context)]

    def check(self) -> None:
        """The model can be loaded; the folder of vectors exists."""
        vectors = self.context.config.embed.vectors
        if vectors is not None and not self.context.path(vectors).is_dir():
            raise MissingFile(
                f"There is no folder {self.context.path(vectors).absolute()}.", "Expected vectors.", "Check embed.from."
            )
        spec_of(self.context).load()

    def outside(self) -> list[Path]:
        """Local model files, and vectors from elsewhere."""
        spec, vectors = spec_of(self.context), self.context.config.embed.vectors
        places = [spec.model, spec.weights, None if vectors is None else str(self.context.path(vectors))]
        return [Path(p) for p in places if p is not None and Path(p).exists()]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """shards → img_emb/, metadata/, encoder.json."""
        import pyarrow.parquet as pq

        from driftline.curate.embedding.embed import embed
        from driftline.curate.embedding.vector_store import import_vectors

        section = self.context.config.embed
        spec = spec_of(self.context)
        encoder = spec.load()  # before any work: a wrong model is one clear error
        members = pq.read_table(inputs["bucket"] / "members.parquet")
        name, file = (None if value is None else _public(value) for value in (section.model, section.weights))
        facts = describe(encoder, section.encoder, name or "", file)
        facts["seen"] = asdict(seen(spec.encoder, spec.model, spec.weights))
        if section.vectors is not None:
            value = self.context.path(section.vectors)
            faults = import_vectors(value, members, out, self.context.run_log)
            facts |= maker_of(value)
        else:
            faults = embed(
                inputs["fetch"], members, spec, out, self.context.run_log, section.batch,
                executor=self.context.executor, decoders=section.decoders, store=self.context.store(),
            )  # fmt: skip
        kept = faults.pop("", 0)
        write_json(out / "encoder.json", facts)
        return Counts(len(members), kept, faults)


def own_encoder(context: Context) -> list[type]:
    """The class of the encoder, if it is not driftline's own, which need not be imported here."""
    name = context.config.embed.encoder
    return [] if ENCODERS.entry(name).origin == HOME else [ENCODERS[name]]


def maker_of(vectors: Path) -> dict[str, Any]:
    """The model that made a folder of vectors, by driftline's `encoder.json`; None if it has none (clip-retrieval)."""
    file = vectors / "encoder.json"
    facts = read_json(file) if file.is_file() else {}
    facts = facts if isinstance(facts, dict) else {}
    return {
        "from": vectors.name, "fingerprint": facts.get("fingerprint"), "seen": facts.get("seen", asdict(NOBODY)),
        "preparation": facts.get("preparation"),
    }  # fmt: skip
