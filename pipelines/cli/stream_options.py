"""Options that commands of `driftline stream` share, and what they print of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Device, next_step, show

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

INPUT, DRAWS, PAPER, OUTPUT = "Input", "Draws", "Paper", "Output"  # headings of options in help
ROLES = {
    "time": "dates, years, ISO 8601 or seconds since 1970",
    "label": "labels",
    "x": "samples: texts, images or numbers (A,B: of several columns)",
    "id": "ids, each of one sample",
    "path": "file names of images",
    "group": "uploaders: all samples of one are on one side",
    "label_time": "when labels come, if later than their samples; empty: never",
}
DATA = "A name (driftline list datasets), a path, or package.module:Name."
PERIOD = "year|month|week|day|N"


def option(flag: str, metavar: str | None, text: str, panel: str | None = INPUT, **more: Any) -> Any:
    """An option under a heading. metavar: None for flags and choices."""
    return typer.Option(flag, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag_of(role: str) -> str:
    """The option of a role of columns."""
    return f"--{role.replace('_', '-')}"


Columns = Annotated[str | None, option("--columns", "YAML", "All columns at once: '{time: taken, label: kind}'.")]
Root = Annotated[Path | None, option("--root", "DIR", "Folder of images (default: the table's).")]
DataDir = Annotated[Path | None, option("--data-dir", "DIR", "Folder of a named dataset (default: data).")]
Labels = Annotated[
    Literal["fine", "coarse"] | None, option("--labels", None, "Labels of a dataset that has both (default: coarse).")
]
Size = Annotated[int, option("--size", "PIXELS", "Edge of decoded images.", min=4, max=512)]
Download = Annotated[bool, option("--download", None, "Download a named dataset that is not in --data-dir.")]
EncoderDevice = Annotated[Device, option("--device", None, "Where the encoder runs.")]
TrainedUntil = Annotated[
    str | None,
    option("--trained-until", "DATE", "Newest year, month or day that the vectors' encoder may have seen: 2021-01."),
]
Seed = Annotated[int, option("--seed", "N", "Random seed of all draws, and of the order of equal times.", DRAWS)]
Period = Annotated[str, option("--period", PERIOD, "Length of a step; N: so many steps of about equal size.", DRAWS)]
TestShare = Annotated[
    float,
    option(
        "--test-share",
        "SHARE",
        "Share of test samples, where the data has no split.",
        DRAWS,
        min=0,
        max=0.99,
    ),
]
Order = Annotated[
    Literal["natural", "balanced"],
    option("--order", None, "balanced: of each class in a step no more than the median class has.", DRAWS),
]
Grouping = Annotated[
    Literal["grouped", "random"],
    option("--grouping", None, "grouped: samples of one uploader, and near copies, are on one side.", DRAWS),
]
Fidelity = Literal["clean", "paper-code"]
FIDELITY = "clean: as the paper says; paper-code: as its code did, with its errors."
Paper = Annotated[
    str | None,
    option("--paper", "NAME", "Data of a paper, as in clear10/moco-yfcc-b0: reports show its values.", PAPER),
]
Out = Annotated[Path, option("--out", "DIR", "Folder of the stream.", OUTPUT)]


def save(stream: Stream, out: Path, facts: dict[str, str] | None = None) -> dict[str, Any]:
    """Save a stream; returns its facts for the user. facts: recorded in addition to the stream's own."""
    return facts_of(stream.save(out, {**stream.facts, **(facts or {})}), out)


def facts_of(stream: Stream, out: Path) -> dict[str, Any]:
    """Facts about a saved stream, for the user."""
    return {
        "out": str(out),
        "stream": stream.name,
        "sha256": stream.sha256,
        "steps": len(stream.steps),
        "samples": sum(len(split) for step in stream.steps for split in step.splits.values()),
        "classes": len(stream.classes),
        "shared_with_training": stream.shared_with_training(),
        "made": stream.facts.get("made"),
    }


def tell(
    saved: Sequence[dict[str, Any]],
    protocol: str = "clear-iid",
    *more: str,
    out: Path | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print a line about each saved stream, and warn of test samples that are near training samples. protocol: which
    one such streams are made for, with `more` words of `driftline eval`. out: the folder of several
    streams. notes: more lines."""
    lines = []
    for facts in saved:
        size = f"{facts['steps']} steps, {facts['samples']:,} samples, {facts['classes']} classes"
        lines.append(f"stream {facts['stream']}: {size} in {facts['out']}")
        if facts["made"] is not None:
            lines.append(f"The file does not say everything, so the stream has {facts['made']}.")
        if facts["shared_with_training"]:
            typer.echo(
                f"Warning: {facts['shared_with_training']:.1%} of its test samples share an uploader, or are near "
                "copies of, a training sample: tests in the same period are too easy.",
                err=True,
            )
    lines += notes
    place = out if out is not None and len(saved) > 1 else saved[0]["out"]
    lines.append(next_step("eval", place, "--protocol", protocol, *more, "--learners", "all", "--out", "runs"))
    show(saved[0] if out is None else {"out": str(out), "streams": list(saved)}, "\n".join(lines))


def paper_facts(paper: str | None, trained_until: str | None = None) -> dict[str, str]:
    """What the user says of the data. Raises BadConfig for data without published values, and for no date."""
    from driftline.curate.encoders.seen import Seen, checked
    from driftline.eval.scoring.published_values import names

    if paper is not None and paper not in names():
        raise BadConfig(f"--paper is {paper!r}.", f"Expected one of {', '.join(names())}.")
    seen = Seen(checked(trained_until), "not stated", "--trained-until").facts() if trained_until else {}
    return ({"published": paper} if paper else {}) | seen


def columns_of(columns: str | None) -> dict[str, str]:
    """role → column of --columns. Raises BadConfig."""
    import yaml

    try:
        named = yaml.safe_load(columns or "{}")
    except yaml.YAMLError:
        named = None
    if not isinstance(named, dict) or not all(isinstance(one, str) for pair in named.items() for one in pair):
        raise BadConfig(f"--columns is {columns!r}.", "Expected roles and columns, as in '{time: taken, label: kind}'.")
    return named


def with_columns(columns: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the columns of --columns. Raises BadConfig for another role, and for a column in both."""
    roles, named = [role for role in ROLES if role in options], columns_of(columns)
    for role in named:
        if role not in roles:
            raise BadConfig(f"--columns names {role!r}.", f"Available here: {', '.join(roles)}.")
        if options[role] is not None:
            raise BadConfig(f"--columns names {role}, and {flag_of(role)} was given, too.", "Expected one of them.")
    return options | named
