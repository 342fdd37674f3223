"""`driftline doctor`: this machine."""

from __future__ import annotations

import typer

from driftline.pipelines.cli.common import Json, command, show

doctor_app = typer.Typer()


@command(doctor_app, "doctor", "driftline doctor", panel="Start")
def doctor(as_json: Json = False) -> None:
    """Examine this machine: versions, hardware, parts, speed.

    Takes about ten seconds. What a run would miss here is said by driftline plan.
    """
    from driftline.pipelines.cli.doctor import examine, text

    facts = examine()
    show(as_json, facts, text(facts))
