"""`driftline figure save`: the charts of a report, and plots of what Seq-to-Final's methods learned, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Json, Streams, command, group_app, log_of, option, several, show
from driftline.pipelines.cli.listing import named
from driftline.pipelines.cli.out import guarded_out

figure_app = group_app(
    "Save a report's charts; plot what networks learned.", "driftline figure save runs --out figures"
)  # fmt: skip


@command(figure_app, "save", "driftline figure save runs cost-against-accuracy --out figures")
def save(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A folder with rows of driftline eval.")],
    out: Annotated[Path, option("--out", "DIR", "Folder for the files.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…",
            help="Titles of charts, as in retention (default: all), or interpolation, projection, svcca, adjacent: "
            "drawn from the networks that an evaluation by seq-to-final stored.",
        ),
    ] = None,
    stream: Streams = None,
    learners: Annotated[
        list[str] | None, named("--learners", "learners", "Of networks; default: all with stored ones")
    ] = None,
    sets: Annotated[
        list[str] | None,
        option(
            "--set",
            "KEY=VALUE",
            "Of networks: count=1000 (test images at most); norm=interpolate, recalibrate, or initial as in the "
            "paper's code (batch normalisation of interpolation). Repeatable.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write charts as SVG, PDF and PNG: those of a report, or by name.

    interpolation: accuracy between the weights before and after the last step. projection: weights on a plane: oracle,
    history, the last step's samples. svcca: similarity of each block's output to the oracle's. adjacent: validation
    accuracy of joint models over their regulariser. All but adjacent need --stream.
    """
    from driftline.eval.plotting.files import OF_NETWORKS
    from driftline.eval.reporting.files.figures import save_figures
    from driftline.eval.reporting.report import results_of
    from driftline.stream_builder.stream import Stream

    guarded_out(out)
    chosen = several(names)
    titles, networks = ([name for name in chosen if (name in OF_NETWORKS) == drawn] for drawn in (False, True))
    if (sets or learners) and not networks:
        raise BadConfig("--set or --learners was given.", f"Expected one of {', '.join(OF_NETWORKS)} with it.")
    streams = [Stream.load(path) for path in stream or ()]
    written = save_figures(results_of([runs], streams), out, titles, streams) if titles or not chosen else []
    if networks:
        from driftline.eval.experiment.learner_sets import split
        from driftline.eval.experiment.settings import check_settings
        from driftline.eval.plotting.finetuning import DrawSettings, draw
        from driftline.pipelines.config.loader import setting_of

        settings = DrawSettings(**check_settings(DrawSettings, dict(map(setting_of, sets or ())), "figure save"))
        shown = split(",".join(learners or ()))
        for name in networks:
            written += draw(name, runs, next(iter(streams), None), out, shown, settings, log_of(None, as_json).say)
    text = "\n".join(f"figure: {path}" for path in written)
    show(as_json, {"out": str(out), "figures": [str(path) for path in written]}, text)
