"""`driftline stream …`: create, show, measure and export streams."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import (
    comma_separated,
    command,
    counts_text,
    group_app,
    several,
    show,
)
from driftline.pipelines.cli.compose import compose_app
from driftline.pipelines.cli.encoding import encode_app
from driftline.pipelines.cli.imports import import_app
from driftline.pipelines.cli.listing import completion
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.stream_from import from_app
from driftline.pipelines.cli.stream_options import (
    OUTPUT,
    Fidelity,
    option,
)

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

stream_app = group_app(
    "Create, show, measure and export streams.", "driftline stream from-folder-by-time album --out by-year"
)
stream_app.add_typer(from_app)
stream_app.add_typer(import_app)
stream_app.add_typer(encode_app)
stream_app.add_typer(compose_app)

StreamFolder = Annotated[Path, typer.Argument(metavar="STREAM", help="A stream folder.")]
UNITS = {  # of a measure
    "covariate": "1 is the distance of the last step's own training data",
    "conditional": "1 is the distance of the last step's own training data, class by class",
    **dict.fromkeys(("w2", "sliced"), "in units of the samples"),
    "priors": "part of the class frequencies that differs from the last step's, 0 to 1",
}
EXPORT = "driftline stream export STREAM --format imagefolder --out exports"


@command(stream_app, "measure", "driftline stream measure STREAM --distance w2,sliced --json")
def stream_measure(
    path: StreamFolder,
    distance: Annotated[
        str,
        option(
            "--distance",
            "NAME,…",
            "paper (W2, divided as in its table 5), names (driftline list distances), package.module:Name.",
            None,
            autocompletion=completion("distances"),
        ),
    ] = "paper",
    labels: Annotated[
        bool, option("--labels", None, "Also measure labels: drift of class frequencies, shift S.", None)
    ] = False,
    fidelity: Annotated[
        Fidelity | None,
        option("--fidelity", None, "paper-code: stop as the paper's code did (default: as composed).", None),
    ] = None,
    exact: Annotated[
        bool, option("--exact", None, "Use all samples of a large stream: minutes to hours, gigabytes.", None)
    ] = False,
    seed: Annotated[int, option("--seed", "N", "Random seed of distances that draw.", None)] = 0,
) -> None:
    """Measure how far each step is from the last step.

    Distances are from each step's training data to the last step's test data. Of a large stream, evenly spaced samples
    of each split are used, and the output says so.
    """
    from driftline.eval.reporting.files.terminal import columns
    from driftline.stream_builder.measures.floors import measured
    from driftline.stream_builder.stream import Stream

    stream = Stream.load(path)
    document = measured(stream, comma_separated(distance), labels, fidelity, exact, seed)
    statistics = document.get("labels")
    values = {name: of_steps for name, of_steps in document.items() if isinstance(of_steps, list)}
    values |= {} if statistics is None else {"priors": statistics["priors"]}
    heads, dates = _with_dates(stream)
    floors = document.get("floor", {})
    shown = [(head, of) for pair in values.items() for head, of in (pair, ("floor", floors.get(pair[0]))) if of]
    rows = [
        [*cells, *(f"{of_steps[i]:.3f}" if i < len(of_steps) else "–" for _, of_steps in shown)]
        for i, cells in enumerate(dates)
    ]
    lines = columns([[*heads, *(head for head, _ in shown)], *rows]) if values else []
    lines.append(f"From each step's training data to the test data of the last step, {stream.steps[-1].name}.")
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
    show(document, "\n".join(lines))


@command(stream_app, "show", "driftline stream show STREAM --out sheets")
def stream_show(
    path: StreamFolder,
    out: Annotated[Path | None, option("--out", "DIR", "Folder of contact sheets, one for each split.", OUTPUT)] = None,
    verify: Annotated[bool, option("--verify", None, "Hash every array again.", None)] = False,
) -> None:
    """Show a stream's steps, splits and sizes.

    With --out, also draw contact sheets with a row per step.
    """
    from driftline.eval.plain import plain
    from driftline.eval.reporting.files.terminal import columns
    from driftline.eval.scoring.power import smallest_ageing
    from driftline.stream_builder.stream import Stream

    if out is not None:
        guarded_out(out)
    stream = Stream.load(path)
    if verify:
        stream.verify(path)
    sheets = []
    if out is not None:
        from driftline.stream_builder.export.contact_sheet import write_contact_sheet

        splits = dict.fromkeys(name for step in stream.steps for name in step.splits)
        sheets = [str(write_contact_sheet(stream, out / f"{name}.png", name)) for name in splits]
    power = smallest_ageing(stream)
    document = {
        "name": stream.name,
        "sha256": stream.sha256,
        "classes": list(stream.classes),
        "x_shape": list(stream.x_shape),
        "steps": [
            {"index": s.index, "name": s.name, "splits": {k: len(v) for k, v in s.splits.items()}} for s in stream.steps
        ],
        "facts": dict(stream.facts),
        "ties": stream.ties(),
        "smallest_ageing": plain(power),
        "out": None if out is None else str(out),
        "sheets": sheets,
    }
    lines = [f"{stream.name}  {stream.sha256[:12]}  samples of shape {stream.x_shape}, {len(stream.classes)} classes"]
    heads, dates = _with_dates(stream)
    names = list(dict.fromkeys(name for step in stream.steps for name in step.splits))
    sizes = [[f"{len(s.splits[n]):,}" if n in s.splits else "–" for n in names] for s in stream.steps]
    lines += columns([[*heads, *names], *(a + b for a, b in zip(dates, sizes, strict=True))])
    lines.append(f"Numbers of samples{'; dates of the first and the last one, UTC' if 'from' in heads else ''}.")
    lines += [
        stream.ties_text(),
        *([f"{power.text().capitalize()}."] if power else []),
        *(f"  contact sheet: {name}" for name in sheets),
    ]
    show(document, "\n".join(lines))


def _with_dates(stream: Stream) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of a table's first columns: each step's name, and its first and last day where it has times."""
    days = [step.days() for step in stream.steps]
    heads = ["step", *(["from", "to"] if any(days) else [])]
    return heads, [[s.name, *((d or ("–", "–")) if any(days) else ())] for s, d in zip(stream.steps, days, strict=True)]


@command(stream_app, "export", EXPORT)
def stream_export(
    path: StreamFolder,
    formats: Annotated[
        list[str],
        option(
            "--format",
            "NAME,…",
            "Names (driftline list stream-exports), package.module:Name.",
            OUTPUT,
            autocompletion=completion("stream-exports"),
        ),
    ],
    out: Annotated[Path, option("--out", "DIR", "Folder; each format gets a folder in it.", OUTPUT)],
) -> None:
    """Export a stream in layouts that other libraries load."""
    from driftline.curate.core.outputs import refill_all
    from driftline.stream_builder.export import EXPORTS
    from driftline.stream_builder.stream import Stream

    guarded_out(out)
    if not several(formats):
        raise BadConfig("--format is empty.", "Expected a name.")
    exporters = {name: EXPORTS.resolve(name) for name in several(formats)}
    stream = Stream.load(path)
    filled = refill_all({out / name: partial(export, stream) for name, export in exporters.items()})
    counts = {place.name: count for place, count in filled.items()}
    show({"out": str(out), "stream": stream.name, "exports": counts}, counts_text(counts, out))
