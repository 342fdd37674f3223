"""`driftline stream encode`, `measure`, `show`: what is done with a stream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.actions.action import Answer, Device, Shown, action
from driftline.pipelines.actions.common import guarded_out, log_of
from driftline.pipelines.actions.makers import facts_of, saved_text, stream_app
from driftline.pipelines.kinds import Names, Place, StreamPlace, kind_of, path_of, several

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

UNITS = {  # of a measure
    "covariate": "1 is the distance of the last step's own training data",
    "conditional": "1 is the distance of the last step's own training data, class by class",
    **dict.fromkeys(("w2", "sliced"), "in units of the samples"),
    "priors": "part of the class frequencies that differs from the last step's, 0 to 1",
}


@action("driftline stream encode photos2024 --out vectors\n  --encoder moco=backbone:resnet10t:moco", group=stream_app)
def encode(path: Place, *, encoder: Names, out: Place, device: Device = "auto") -> Shown[dict[str, Stream]]:
    """Encode a stream's samples with other encoders.

    Writes one stream of vectors for each. What is already encoded is not encoded again.

    path PATH: A stream of images or texts, a release, or a run.
    encoder [NAME=]SPEC: KIND:MODEL:WEIGHTS (driftline list encoders). Repeatable.
    out DIR: Folder; the stream of each encoder is in OUT/NAME.
    device: Where the encoder runs.
    """
    from driftline.curate.core.atomic_io import sha256_file
    from driftline.pipelines.run.run_folder import open_published
    from driftline.stream_builder.builders.release import from_release
    from driftline.stream_builder.stream import Stream

    source, folder = path_of(path), guarded_out(path_of(out))
    encoders = encoders_of(several(encoder))
    places = {name: guarded_out(folder / name, "stream") for name in encoders}
    opened = open_published(source)
    if isinstance(opened, Stream):
        stream, digest = opened, opened.sha256
    else:
        stream, digest = from_release(opened, "images:256"), sha256_file(opened.path / "SHA256SUMS")
    streams = {name: _encoded(stream, digest, name, encoders[name], place, device) for name, place in places.items()}
    saved = [facts_of(encoded, folder / name) for name, encoded in streams.items()]
    return Shown(streams, saved_text(saved, out=folder), {"out": str(folder), "streams": saved})


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


def _encoded(stream: Stream, digest: str, name: str, encoder: str, where: Path, device: str) -> Stream:
    """The stream, encoded, with the name `STREAM, name`; stored in the folder `where`. digest: of the samples. Raises
    BadConfig for other vectors in that folder."""
    from driftline.curate.core.atomic_io import fingerprint
    from driftline.curate.encoders import spec_of
    from driftline.curate.encoders.weights import seen
    from driftline.curate.foreign.images import PREPARATION
    from driftline.stream_builder.builders.encoded import count_samples
    from driftline.stream_builder.builders.encoded import encode as encoded
    from driftline.stream_builder.stream import Stream

    spec = spec_of(encoder, device)
    loaded = spec.load()
    key = fingerprint([digest, encoder, loaded.fingerprint, PREPARATION])
    if kind_of(where) == "stream":
        there = Stream.load(where)
        if there.facts.get("made_from") == key:
            return there
        what = f"{where} holds vectors of another encoder, or of other samples."
        raise BadConfig(what, "", "Set another --out, or delete the folder.")
    with log_of().progress(name, count_samples(stream), "samples") as tick:
        made = encoded(stream, loaded, encoder, tick)
    provenance = seen(spec.encoder, spec.model, spec.weights).facts()
    facts = {**made.facts, "features": name, "made_from": key, **provenance}
    return replace(made, name=f"{stream.name}, {name}").save(where, facts)


@action(
    "driftline stream measure STREAM --distance w2,sliced --json", group=stream_app, completes={"distance": "distances"}
)
def measure(
    stream: StreamPlace, *, distance: Names = "paper", labels: bool = False,
    fidelity: Literal["clean", "paper-code"] | None = None, exact: bool = False, seed: int = 0,
) -> Shown[Answer]:  # fmt: skip
    """Measure how far each step is from the last step.

    Distances are from each step's training data to the last step's test data. Of a large stream, evenly spaced samples
    of each split are used, and the output says so.

    stream STREAM: A stream folder.
    distance NAME,…: paper (W2, divided as in its table 5), names (driftline list distances), package.module:Name.
    labels: Also measure labels: drift of class frequencies, lookahead S.
    fidelity: paper-code: stop as the paper's code did (default: as composed).
    exact: Use all samples of a large stream: minutes to hours, gigabytes.
    seed N: Random seed of distances that draw.
    """
    from driftline.eval.reporting.exports import columns
    from driftline.stream_builder.measures.shift_distance import measured
    from driftline.stream_builder.stream import Stream

    opened = Stream.load(stream) if isinstance(stream, str | Path) else stream
    document = measured(opened, several(distance), labels, fidelity, exact, seed)
    statistics = document.get("labels")
    values = {name: of_steps for name, of_steps in document.items() if isinstance(of_steps, list)}
    values |= {} if statistics is None else {"priors": statistics["priors"]}
    heads, dates = _with_dates(opened)
    floors = document.get("floor", {})
    shown = [(head, of) for pair in values.items() for head, of in (pair, ("floor", floors.get(pair[0]))) if of]
    rows = [
        [*cells, *(f"{of_steps[i]:.3f}" if i < len(of_steps) else "–" for _, of_steps in shown)]
        for i, cells in enumerate(dates)
    ]
    lines = columns([[*heads, *(head for head, _ in shown)], *rows]) if values else []
    lines.append(f"From each step's training data to the test data of the last step, {opened.steps[-1].name}.")
    lines += [f"{name}: {unit}." for name, unit in UNITS.items() if name in values]
    lines += [f"Floor of {name}: {why}." for name, why in document.get("floor_because", {}).items()]
    lines += ["What is not above its floor is no drift."] * any(floors.values())
    if statistics is not None:
        blind = statistics["blind"]
        best = [[f"{s:,}", f"{100 * b:.1f}"] for s, b in zip(blind["shifts"], blind["best"], strict=True)]
        lines += ["", *columns([["samples ahead", "blind classifier, % right"], *best])]
        lines += [statistics["shift_text"], statistics["ties_text"]]
    lines += [f"Warning: {document['warning']}"] if "warning" in document else []
    if "samples_of_each_split" in document:
        used = document["samples_of_each_split"]
        lines.append(f"from {used:,} evenly spaced samples of each split; --exact uses all")
    return Shown(document, "\n".join(lines))


@action("driftline stream show STREAM --out sheets", group=stream_app)
def show(stream: Place, *, out: Place | None = None) -> Shown[Answer]:
    """Show a stream's steps, splits and sizes.

    With --out, also draw contact sheets with a row per step.

    stream STREAM: A stream folder.
    out DIR: Folder of contact sheets, one for each split.
    """
    from driftline.eval.reporting.exports import columns
    from driftline.eval.scoring.aggregate import plain
    from driftline.eval.scoring.retraining import smallest_ageing
    from driftline.stream_builder.stream import Stream

    folder = None if out is None else guarded_out(path_of(out))
    opened = Stream.load(path_of(stream))
    names, sheets = list(dict.fromkeys(name for step in opened.steps for name in step.splits)), []
    if folder is not None:
        from driftline.stream_builder.export.layouts import write_contact_sheet

        sheets = [str(write_contact_sheet(opened, folder / f"{name}.png", name)) for name in names]
    power = smallest_ageing(opened)
    document = {
        "name": opened.name,
        "sha256": opened.sha256,
        "classes": list(opened.classes),
        "x_shape": list(opened.x_shape),
        "steps": [
            {"index": s.index, "name": s.name, "splits": {k: len(v) for k, v in s.splits.items()}} for s in opened.steps
        ],
        "facts": dict(opened.facts),
        "ties": opened.ties(),
        "smallest_ageing": plain(power),
        "out": None if folder is None else str(folder),
        "sheets": sheets,
    }
    lines = [f"{opened.name}  {opened.sha256[:12]}  samples of shape {opened.x_shape}, {len(opened.classes)} classes"]
    heads, dates = _with_dates(opened)
    sizes = [[f"{len(s.splits[n]):,}" if n in s.splits else "–" for n in names] for s in opened.steps]
    lines += columns([[*heads, *names], *(a + b for a, b in zip(dates, sizes, strict=True))])
    lines.append(f"Numbers of samples{'; dates of the first and the last one, UTC' if 'from' in heads else ''}.")
    lines += [
        opened.ties_text(),
        *([f"{power.text().capitalize()}."] if power else []),
        *(f"  contact sheet: {name}" for name in sheets),
    ]
    return Shown(document, "\n".join(lines))


def _with_dates(stream: Stream) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of a table's first columns: each step's name, and its first and last day where it has times."""
    days = [step.days() for step in stream.steps]
    heads = ["step", *(["from", "to"] if any(days) else [])]
    return heads, [[s.name, *((d or ("–", "–")) if any(days) else ())] for s, d in zip(stream.steps, days, strict=True)]
