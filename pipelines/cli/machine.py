"""`driftline doctor`: this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from driftline.pipelines.cli.common import Json, command, context_of_last, show

doctor_app = typer.Typer()


@command(doctor_app, "doctor", "driftline doctor", panel="Start")
def doctor(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Also say what a run in this folder would miss.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine this machine: versions, hardware, parts, speed.

    Takes about ten seconds.
    """
    from driftline.pipelines.cli.doctor import examine, text

    context = None if directory is None else context_of_last(directory, None, True)
    facts = examine()
    if context is not None:
        from driftline.pipelines.forecast.needs import forecast
        from driftline.pipelines.run.plan import plan

        facts["problems"] = forecast(context, plan(context))["problems"]
    show(as_json, facts, text(facts))
