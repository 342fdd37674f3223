"""Features of any encoder for any stream of images or texts; finished encodings are reused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from driftline.curate.core.errors import BadConfig, reason
from driftline.curate.core.run_log import RunLog

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

EXPECTED = "Expected lines NAME: KIND:MODEL:WEIGHTS."


def zoo_of(path: Path) -> dict[str, str]:
    """name → encoder (KIND:MODEL:WEIGHTS) of a YAML file; paths in it are relative to the file. Raises BadConfig."""
    import yaml

    from driftline.curate.encoders import spec_of
    from driftline.pipelines.stages.embed import built_in

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise BadConfig(f"{path} cannot be read as YAML ({reason(error)}).", EXPECTED) from None
    if not isinstance(values, dict) or not all(isinstance(v, str) and isinstance(k, str) for k, v in values.items()):
        raise BadConfig(f"{path} does not list encoders.", EXPECTED)
    encoders = {}
    for name, text in values.items():
        spec = spec_of(text)
        parts = [part for part in (spec.model, spec.weights) if part]
        files = [path.parent / part for part in parts]  # else it is a name
        places = [built_in(p) or (str(file) if file.exists() else p) for p, file in zip(parts, files, strict=True)]
        encoders[name] = ":".join([spec.encoder, *places])
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


def encoded_at(
    stream: Stream, source: str, name: str, encoder: str, where: Path, device: str, run_log: RunLog,
    bits: Literal[8, 16] = 16, cache: bool = False,
) -> Stream:  # fmt: skip
    """The stream, encoded, with the name `STREAM, name`; stored in the folder `where`. source: hash of the samples.
    bits: of a stored number. cache: of an older model, or older samples, nothing is kept there. Else they raise
    BadConfig."""
    from driftline.curate.core.atomic_io import fingerprint
    from driftline.curate.core.outside.images import PREPARATION
    from driftline.curate.encoders import spec_of
    from driftline.curate.encoders.seen import seen
    from driftline.stream_builder.builders.encoded import count_samples, encode
    from driftline.stream_builder.stream import Stream

    spec = spec_of(encoder, device)
    loaded = spec.load()
    key = fingerprint([source, encoder, loaded.fingerprint, PREPARATION, *([bits] if bits == 8 else [])])
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
    return replace(encoded, name=f"{stream.name}, {name}").save(where, facts, bits)
