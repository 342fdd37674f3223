"""`driftline stream encode`: vectors of any encoder for a stream of images or texts; finished ones are reused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream


def encoders_of(texts: Sequence[str]) -> dict[str, str]:
    """`[NAME=]SPEC` of --encoder → name and encoder (KIND:MODEL:WEIGHTS), which without a name is named by its parts.
    Raises BadConfig for a wrong one, and for two of one name.

    >>> encoders_of(["ngrams:2048", "a=ngrams:64"])
    {'ngrams-2048': 'ngrams:2048', 'a': 'ngrams:64'}
    """
    from driftline.curate.encoders import spec_of
    from driftline.pipelines.stages.embed import built_in

    if not texts:
        raise BadConfig("--encoder is empty.", "Expected [NAME=]KIND:MODEL:WEIGHTS.")
    encoders: dict[str, str] = {}
    for text in texts:
        name, equals, encoder = text.rpartition("=")
        spec = spec_of(encoder)
        parts = [part for part in (spec.model, spec.weights) if part]
        name = name if equals else re.sub(r"[^\w.-]", "-", "-".join([spec.encoder, *(Path(p).name for p in parts)]))
        if not re.fullmatch(r"\w[\w.-]*", name) or name in encoders:
            expected = "Expected [NAME=]KIND:MODEL:WEIGHTS, each with another name of letters, digits, '-' and '_'."
            raise BadConfig(f"--encoder is {text!r}.", expected)
        encoders[name] = ":".join([spec.encoder, *(str(built_in(part) or part) for part in parts)])
    return encoders


def opened(place: Path) -> tuple[Stream, str]:
    """The stream in a folder, or the images of a release as a stream; and a hash of its content."""
    from driftline.curate.core.atomic_io import sha256_file
    from driftline.curate.release import Release
    from driftline.stream_builder.builders.release import from_release
    from driftline.stream_builder.stream import Stream

    if (place / "stream.json").is_file():
        stream = Stream.load(place)
        return stream, stream.sha256
    release = Release.open(place)
    return from_release(release, "images:256"), sha256_file(release.path / "SHA256SUMS")


def papers_encoder(preset: str | None, streams: Collection[Stream], run_log: RunLog) -> list[str] | None:
    """The text encoder of a preset's paper, if it is on this machine and all streams hold texts; else its name."""
    from driftline.curate.encoders.weights import is_here
    from driftline.eval.experiment.presets import TEXT_ENCODERS

    encoder = TEXT_ENCODERS.get(preset or "")
    if encoder is None or not streams or any(stream.x_shape for stream in streams):
        return None
    if is_here(encoder.partition(":")[2], ("model.safetensors", "pytorch_model.bin")):
        run_log.say(f"preset {preset}: texts are encoded as in its paper, by {encoder}")
        return [encoder]
    ways = f"--encoder {encoder} downloads it, --encoder ngrams:2048 needs no model"
    run_log.say(f"preset {preset}: its paper's encoder of texts is not on this machine; {ways}")
    return None


def encoded_all(streams: Iterable[Stream], encoders: list[str], out: Path, device: str, run_log: RunLog) -> list[Path]:
    """Folders with each stream as vectors of each encoder."""
    from driftline.curate.core.atomic_io import fingerprint

    folders = []
    for stream in streams:
        for text in encoders:
            name, equals, encoder = text.partition("=")
            encoder = encoder if equals else text
            folder = out / "encoders" / fingerprint([stream.sha256, encoder])[:16]
            encoded_at(stream, stream.sha256, name, encoder, folder, device, run_log=run_log, cache=True)
            folders.append(folder)
    return folders


def encoded_at(
    stream: Stream, source: str, name: str, encoder: str, where: Path, device: str, run_log: RunLog,
    cache: bool = False,
) -> Stream:  # fmt: skip
    """The stream, encoded, with the name `STREAM, name`; stored in the folder `where`. source: hash of the samples.
    cache: of an older model, or older samples, nothing is kept there. Else they raise BadConfig."""
    from driftline.curate.core.atomic_io import fingerprint
    from driftline.curate.encoders import spec_of
    from driftline.curate.encoders.weights import seen
    from driftline.curate.foreign.images import PREPARATION
    from driftline.stream_builder.builders.encoded import count_samples, encode
    from driftline.stream_builder.stream import Stream

    spec = spec_of(encoder, device)
    loaded = spec.load()
    key = fingerprint([source, encoder, loaded.fingerprint, PREPARATION])
    there = Stream.load(where) if (where / "stream.json").is_file() else None
    if there is not None and there.facts.get("made_from") == key:
        return there
    if there is not None and not cache:
        what = f"{where} holds vectors of another encoder, or of other samples."
        raise BadConfig(what, "", "Set another --out, or delete the folder.")
    with run_log.progress(name, count_samples(stream), "samples") as tick:
        encoded = encode(stream, loaded, encoder, tick)
    provenance = seen(spec.encoder, spec.model, spec.weights).facts()
    facts = {**encoded.facts, "features": name, "made_from": key, **provenance}
    if there is not None:
        shutil.rmtree(where)
    return replace(encoded, name=f"{stream.name}, {name}").save(where, facts)
