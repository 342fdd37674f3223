"""`driftline prolific …`: ask paid participants of Prolific about the open batch."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from driftline.pipelines.cli.common import (
    Json,
    RunFolder,
    Sets,
    command,
    context_of_last,
    group_app,
    next_step,
    option,
    show,
)

prolific_app = group_app(
    "Ask paid participants of Prolific: one batch, one study.\n\nThe token is read from the environment variable "
    "PROLIFIC_TOKEN. Nothing is published or paid twice, even after a crash: the same command continues.",
    "driftline prolific publish photos2024 --workspace W1 --max-usd 9",
)
Endpoint = Annotated[str | None, option("--endpoint", "URL", "A compatible service.")]
MaxUsd = Annotated[float | None, option("--max-usd", "USD", "Refuse what costs more, fees included.", min=0)]


def _act(
    action: str, directory: Path, sets: list[str] | None, endpoint: str | None, as_json: bool, **more: Any
) -> None:
    from driftline.curate.core.atomic_io import locked
    from driftline.pipelines.annotation.batches import prolific_action

    context = context_of_last(directory, sets, as_json)
    with nullcontext() if action == "status" else locked(directory / "prolific"):  # two commands would pay twice
        result = prolific_action(context, action, endpoint=endpoint, **more)
    facts = {n: ", ".join(f"{k} {v}" for k, v in value.items()) or "none" if isinstance(value, dict) else value
             for n, value in result.items()}  # fmt: skip
    lines = [f"{name}: {value}" for name, value in facts.items()]
    lines += [next_step("run", directory)] if action == "collect" else []
    show(as_json, result, "\n".join(lines))


@command(prolific_app, "publish", "driftline prolific publish photos2024 --workspace W1 --max-usd 9")
def publish(
    directory: RunFolder,
    workspace: Annotated[str, option("--workspace", "ID", "The workspace that pays.")],
    count: Annotated[int, option("--count", None, "Images in one submission.", min=1, max=500)] = 20,
    max_usd: MaxUsd = None,
    endpoint: Endpoint = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Publish the open batch as a study.

    Without --max-usd, only say what it costs.
    """
    _act("publish", directory, sets, endpoint, as_json, workspace=workspace, group=count, max_usd=max_usd)


@command(prolific_app, "status", "driftline prolific status photos2024")
def status(directory: RunFolder, endpoint: Endpoint = None, sets: Sets = None, as_json: Json = False) -> None:
    """Show the state of each batch's study, and of its submissions."""
    _act("status", directory, sets, endpoint, as_json)


@command(prolific_app, "collect", "driftline prolific collect photos2024")
def collect(directory: RunFolder, endpoint: Endpoint = None, sets: Sets = None, as_json: Json = False) -> None:
    """Write the answers into DIR/answers, for driftline run."""
    _act("collect", directory, sets, endpoint, as_json)


@command(prolific_app, "approve", "driftline prolific approve photos2024")
def approve(directory: RunFolder, endpoint: Endpoint = None, sets: Sets = None, as_json: Json = False) -> None:
    """Approve all submissions that wait: they are paid."""
    _act("approve", directory, sets, endpoint, as_json)


@command(prolific_app, "reject", "driftline prolific reject photos2024 --file rejected.csv")
def reject(
    directory: RunFolder,
    file: Annotated[Path, option("--file", "FILE", "CSV with the columns AssignmentId, Reject.")],
    endpoint: Endpoint = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Reject the submissions of a file, with reasons."""
    _act("reject", directory, sets, endpoint, as_json, file=file)


@command(prolific_app, "bonus", "driftline prolific bonus photos2024 --file bonus.csv --max-usd 10")
def bonus(
    directory: RunFolder,
    file: Annotated[Path, option("--file", "FILE", "CSV: SubmissionId, Amount.")],
    max_usd: MaxUsd = None,
    endpoint: Endpoint = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Pay what a file says in addition.

    Without --max-usd, only say what it costs.
    """
    _act("bonus", directory, sets, endpoint, as_json, file=file, max_usd=max_usd)
