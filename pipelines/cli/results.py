"""`driftline results` and `driftline codabench`: results and tasks for other people's boards."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from driftline.curate.core.errors import BadConfig, did_you_mean
from driftline.pipelines.cli.common import Json, comma_separated, command, counts_text, show
from driftline.pipelines.cli.listing import named

results_app = typer.Typer()
FORMATS = ("every-eval-ever", "huggingface")


@command(
    results_app,
    "results",
    "driftline results runs --by 'Our group' --out results",
    panel="Evaluate",
)
def results(
    paths: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Folders with rows of driftline eval.")],
    out: Annotated[Path, typer.Option("--out", help="Folder; each format gets a subfolder.")],
    by: Annotated[str, typer.Option("--by", help="Who ran the evaluation.")],
    formats: Annotated[
        str, typer.Option("--format", help=f"Separated by commas: {', '.join(FORMATS)}.")
    ] = "every-eval-ever",
    dataset: Annotated[str, typer.Option("--dataset", help="USER/NAME of the benchmark on the Hub.")] = "",
    stream: Annotated[
        list[Path] | None,
        typer.Option("--stream", help="An evaluated stream: gives samples their ids; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write results for Every Eval Ever or Hugging Face's boards."""
    from driftline.curate.metadata.column_mapping import is_utf8
    from driftline.eval.reporting.files.result_formats import About, write_results
    from driftline.pipelines import VERSION
    from driftline.stream_builder.stream import Stream

    chosen = comma_separated(formats)
    for name in chosen:
        if name not in FORMATS:
            raise BadConfig(
                f"Unknown result format {name!r}.", did_you_mean(name, FORMATS), f"Available: {', '.join(FORMATS)}."
            )
    for option, text in (("--by", by), ("--dataset", dataset)):
        if not is_utf8(text):
            raise BadConfig(f"{option} is {text!r}.", "Expected text in UTF-8.")
    about = About(by, VERSION, datetime.now(UTC), dataset)
    counts = write_results(paths, out, chosen, about, [Stream.load(place) for place in stream or ()])
    files = {name: {"files": n} for name, n in counts.items()}
    show(as_json, {"results": counts, "folder": str(out)}, counts_text(files, out))


@command(
    results_app, "codabench", "driftline codabench stream --image ghcr.io/me/driftline --out task.zip", panel="Evaluate"
)
def codabench(
    stream: Annotated[Path, typer.Argument(metavar="S", help="A stream of features, texts or pixels.")],
    image: Annotated[str, typer.Option("--image", help="Docker image that has driftline, for both programs.")],
    out: Annotated[Path, typer.Option("--out", help="A .zip file.")],
    protocol: Annotated[str, named("--protocol", "protocols", "A protocol whose test labels learners never see")] = (
        "clear-iid"
    ),
    seeds: Annotated[str, typer.Option("--seeds", help="As in 0-4 or 0,2,5.")] = "0-4",
    title: Annotated[str | None, typer.Option("--title", help="Its title (default: the stream's name).")] = None,
    as_json: Json = False,
) -> None:
    """Write a Codabench bundle: loop, scores and a baseline.

    Our loop is its ingestion program; learners never see a test label."""
    from driftline.eval.experiment.settings import seeds_of
    from driftline.eval.leaderboard.codabench import bundle

    files = bundle(stream, protocol, seeds_of(seeds), image, out, title)
    show(as_json, {"bundle": str(out), "files": files}, f"{out}: {', '.join(files)}")
