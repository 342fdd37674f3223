"""What all commands share: registration with an example, common options, the context of a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.core.executor import Executor
from curate.core.run_log import RunLog

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting by its dotted path; may be repeated."),
]
Run = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder (it holds driftline.yaml).")]


def command(group: typer.Typer, name: str, example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command: its docstring plus an example is its help."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            function(*args, **kwargs)

        group.command(name, help=f"{(function.__doc__ or '').strip()}\n\nExample: {example}")(wrapped)
        return function

    return register


def context_of(directory: Path, sets: list[str] | None, quiet: bool, executor: Executor | None = None) -> Any:
    """Configuration, log and place of a run."""
    from pipelines.config.loader import load
    from pipelines.stage import Context

    config = load(directory / "driftline.yaml", sets or ())
    return Context(directory, config, RunLog(directory / "log.jsonl", quiet), executor or Executor())
