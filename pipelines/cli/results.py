"""`driftline results`: results for other people's boards."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Json, Runs, Streams, command, counts_text, option, several, show
from driftline.pipelines.cli.listing import named
from driftline.pipelines.cli.out import guarded_out

results_app = typer.Typer()


@command(
    results_app,
    "results",
    "driftline results runs --by 'Our group' --out results",
    panel="Share",
)
def results(
    paths: Runs,
    out: Annotated[Path, option("--out", "DIR", "Folder; each format gets a subfolder.")],
    by: Annotated[str, option("--by", None, "Who ran the evaluation.")],
    formats: Annotated[
        list[str] | None, named("--format", "result-formats", "Formats; default: every-eval-ever")
    ] = None,
    dataset: Annotated[str, option("--dataset", "USER/NAME", "The benchmark on the Hub; huggingface needs it.")] = "",
    stream: Streams = None,
    as_json: Json = False,
) -> None:
    """Write results for Every Eval Ever or Hugging Face's boards."""
    from driftline.curate.core.outside.names import is_utf8
    from driftline.eval.reporting.files.result_formats import About, write_results
    from driftline.pipelines import VERSION
    from driftline.stream_builder.stream import Stream

    guarded_out(out)
    chosen = several(formats) or ["every-eval-ever"]
    for flag, text in (("--by", by), ("--dataset", dataset)):
        if not is_utf8(text):
            raise BadConfig(f"{flag} is {text!r}.", "Expected text in UTF-8.")
    about = About(by, VERSION, datetime.now(UTC), dataset)
    counts = write_results(paths, out, chosen, about, [Stream.load(place) for place in stream or ()])
    files = {name: {"files": n} for name, n in counts.items()}
    show(as_json, {"out": str(out), "results": counts}, counts_text(files, out))
