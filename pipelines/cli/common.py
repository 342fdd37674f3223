"""What all commands share: registration with an example, common options, output, the context of a run."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer
from typer.core import TyperGroup

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor import Engine as EngineName
from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog

if TYPE_CHECKING:
    from driftline.pipelines.run.stage import Context

Panel = Literal["Build", "Validate", "Stream", "Evaluate", "Tools"]
Device = Literal["auto", "cpu", "cuda"]
Engine = Annotated[
    EngineName,
    typer.Option("--engine", help="ray: the cluster of RAY_ADDRESS, or this machine; slurm: one job a task."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
IncludeTests = Annotated[
    bool, typer.Option("--include-tests", help="Learn from test images and their uploaders, too; it is recorded.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting by its dotted path; may be repeated."),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="MODULE:NAME", help="Your own protocol, where rows are of it; may be repeated."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder (it holds driftline.yaml).")]


@dataclass
class Output:
    """What the options before the command say."""

    quiet: bool = False
    """no progress messages on stderr"""
    verbose: bool = False
    """every event of the log on stderr, too"""
    debug: bool = False
    """errors with their traceback"""


OUTPUT = Output()
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors, no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print every event of the log.")]


def set_output(quiet: bool, verbose: bool) -> None:
    """What -q and -v say, before or after the command. Raises BadConfig for both."""
    OUTPUT.quiet, OUTPUT.verbose = quiet, verbose
    if quiet and verbose:
        raise BadConfig("--quiet and --verbose were given.", "Expected one of them.")


class PlainGroup(TyperGroup):
    """Lists commands in their panels, with whole summaries: Typer itself shows panels only in rich's boxes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A section for each panel."""
        width = max(map(len, self.commands))
        for panel in get_args(Panel):
            members = {name: cmd for name, cmd in self.commands.items() if getattr(cmd, "rich_help_panel", "") == panel}
            with formatter.section(panel):
                formatter.write_dl([(f"{name:<{width}}", cmd.short_help or cmd.help) for name, cmd in members.items()])


def command(
    group: typer.Typer, name: str, example: str, panel: Panel | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command. Its docstring and an example are its help; the first paragraph is its summary in lists.

    panel: heading of the command in the help of driftline itself.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def wrapped(*args: Any, quiet_here: bool = False, verbose_here: bool = False, **kwargs: Any) -> None:
            set_output(OUTPUT.quiet or quiet_here, OUTPUT.verbose or verbose_here)
            try:
                function(*args, **kwargs)
            except KeyboardInterrupt as stop:
                text = str(stop) or "Stopped. The same command continues where it stopped."
                print(f"driftline: {text}", file=sys.stderr)
                raise typer.Exit(130) from None

        # -q and -v belong to driftline itself; people also type them after the command.
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
            for name, kind in (("quiet_here", Quiet), ("verbose_here", Verbose))
        ]
        own = inspect.signature(function, eval_str=True)
        wrapped.__signature__ = own.replace(parameters=[*own.parameters.values(), *more])  # type: ignore[attr-defined]
        text = inspect.cleandoc(function.__doc__ or "")
        group.command(
            name,
            help=f"{text}\n\nExample: {example}",
            short_help=" ".join(text.partition("\n\n")[0].split()),
            rich_help_panel=panel,
        )(wrapped)
        return function

    return register


def show(as_json: bool, document: Any, text: str) -> None:
    """Print the result of a command: one JSON document, or text for people."""
    print(json.dumps(document) if as_json else text)


def next_step(*words: object) -> str:
    """The last line of what a command prints: what to do with its result.

    >>> next_step("run", "my photos")
    "Next: driftline run 'my photos'"
    """
    return f"Next: driftline {shlex.join(map(str, words))}"


def say_address(as_json: bool, open_page: bool = False) -> Callable[[str], None]:
    """What a local server calls with the URL of its page, when connections are accepted.

    open_page: also open it in the browser.
    """

    def say(url: str) -> None:
        print(json.dumps({"address": url}) if as_json else f"{url} (Ctrl-C stops the server)", flush=True)
        if open_page and not webbrowser.open(url):
            print("driftline: no browser was found; open the address yourself.", file=sys.stderr)

    return say


def counts_text(counts: dict[str, dict[str, int]], out: Path) -> str:
    """A line for each format that was written: its counts and its folder."""
    return "\n".join(
        f"{name}: {', '.join(f'{v:,} {k}' for k, v in count.items())} in {out / name}" for name, count in counts.items()
    )


def comma_separated(text: str) -> list[str]:
    """The names of an option that takes several, in order."""
    return [name.strip() for name in text.split(",") if name.strip()]


def log_of(path: Path | None, as_json: bool = False) -> RunLog:
    """The log of a command's work: quiet with --json and --quiet, full with --verbose."""
    return RunLog(path, as_json or OUTPUT.quiet, OUTPUT.verbose)


def context_of(directory: Path, sets: Sequence[str] | None, quiet: bool, executor: Executor | None = None) -> Context:
    """Configuration, log and folder of a run."""
    from driftline.pipelines.config.loader import load
    from driftline.pipelines.run.stage import Context

    changes = tuple(sets or ())
    config = load(directory / "driftline.yaml", changes)
    return Context(directory, config, log_of(directory / "log.jsonl", quiet), executor or Executor(), changes)


def context_of_last(
    directory: Path, sets: Sequence[str] | None, quiet: bool, executor: Executor | None = None
) -> Context:
    """As `context_of`, but without --set with the settings of the last run: what looks at its output must know them."""
    from driftline.pipelines.run.state import last_changes

    return context_of(directory, sets or last_changes(directory), quiet, executor)


def admit(plugins: list[str] | None) -> None:
    """Import the protocols of --plugin, here and where strangers' rows are checked. Raises UnknownName, BadPlugin."""
    if plugins:
        from driftline.eval.leaderboard.isolation import trust

        for plugin in plugins:
            trust(plugin)
