"""What all commands share: their help (panels, an example that is not wrapped), registration, common options, output,
the context of a run, and the one guard of `--out`: where a command may write is decided before any work."""

import inspect
import json
import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from driftline.curate.core.atomic_io import read_json, sweep_file
from driftline.curate.core.errors import BadConfig, without_secrets
from driftline.curate.core.executor import MOST_WORKERS, Executor, default_workers
from driftline.curate.core.executor import Engine as EngineName
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.system import is_planted
from driftline.pipelines.kinds import MARKS, Kind

if TYPE_CHECKING:
    from driftline.pipelines.stages.base import Context

Panel = Literal["Start", "Build", "Label", "Keep", "Release", "Stream", "Evaluate", "Share"]  # in this order
OF_OPTIONS = ("Arguments", "Input", "Sampling", "Paper", "Output", "Options")  # panels, in this order
EXAMPLE = "Example: "
NEXT = "Next: driftline "


def _write(formatter: Any, panels: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for name, rows in panels.items():
        if rows:
            with formatter.section(name):
                formatter.write_dl(rows)


class _Panels:
    """What a command and a group share."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """Arguments as their help names them."""
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        words = [param.metavar if param.required else f"[{param.metavar}]" for param in arguments]
        return [*words, *(["COMMAND"] if isinstance(self, TyperGroup) else []), "[OPTIONS]"]

    def format_help_text(self: Any, ctx: Any, formatter: Any) -> None:
        """The paragraphs of the help; a line of \\b keeps Typer from wrapping the one after it."""
        for paragraph in self.help.split("\n\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"\b\n{paragraph}" if paragraph.startswith(EXAMPLE) else paragraph)

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Arguments and options, by panel."""
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in OF_OPTIONS}
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                panels["Arguments"].append((param.metavar, param.help))
            elif row := param.get_help_record(ctx):
                panels[getattr(param, "rich_help_panel", None) or "Options"].append(row)
        _write(formatter, panels)


class PlainCommand(_Panels, TyperCommand):
    """A command with such a help."""


class PlainGroup(_Panels, TyperGroup):
    """A group of commands with such a help."""

    def get_help_option(self, ctx: Any) -> Any:
        """With False for no help: to read None, Typer would load pydantic."""
        option: Any = super().get_help_option(ctx)
        option.default = False
        return option

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Also the commands, by panel; each with its whole summary."""
        super().format_options(ctx, formatter)
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in get_args(Panel)}
        for name, command in self.commands.items():
            summary = (command.short_help or command.help or "").partition("\n\n")[0]
            panels.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append((name, summary))
        _write(formatter, panels)


def config_keys(incomplete: str) -> list[str]:
    from driftline.curate.core.settings import Section, keys_of
    from driftline.pipelines.config.loader import Config

    sections = {name: kind for name, field in keys_of(Config).items() if isinstance(kind := field.annotation, type)}
    keys = [f"{name}.{key}=" for name, kind in sections.items() if issubclass(kind, Section) for key in keys_of(kind)]
    return [key for key in keys if key.startswith(incomplete)]


@dataclass
class Output:
    """What the options before the command say."""

    quiet: bool = False
    """no progress messages on stderr"""
    verbose: bool = False
    """every event of the log on stderr, too"""
    debug: bool = False
    """errors with their traceback"""
    json: bool = False
    """one JSON document on stdout, no progress"""
    shown: bool = False
    """whether the result of the command was printed"""


OUTPUT = Output()
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors, no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print every event of the log.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
COMMON = {"json_": Json, "quiet_": Quiet, "verbose_": Verbose}  # options of every command


def set_output(quiet: bool, verbose: bool) -> None:
    """What -q and -v say, before or after the command. Raises BadConfig for both."""
    OUTPUT.quiet, OUTPUT.verbose = quiet, verbose
    if quiet and verbose:
        raise BadConfig("--quiet and --verbose were given.", "Expected one of them.")


def group_app(about: str, example: str) -> typer.Typer:
    """A group of commands; its help has an example, as that of each command."""
    text = f"{about}\n\n{EXAMPLE}{example}"
    return typer.Typer(cls=PlainGroup, no_args_is_help=True, help=text, rich_markup_mode=None)


def add_command(
    group: typer.Typer, name: str, example: str, panel: Panel | None, needs: Mapping[str, str], text: str,
    parameters: Iterable[inspect.Parameter], function: Callable[..., None],
) -> None:  # fmt: skip
    """Register a command. The first paragraph of `text` is its summary in lists.

    example: lines of at most 76 characters, which are not wrapped. panel: heading of the command in the help of
    driftline itself. needs: options, separated by spaces, that are refused without another one → that one.
    """

    def run(*, quiet_: bool, verbose_: bool, json_: bool, context_: typer.Context, **values: Any) -> None:
        set_output(OUTPUT.quiet or quiet_, OUTPUT.verbose or verbose_)
        _refuse_alone(context_, needs)
        OUTPUT.json = json_
        try:
            function(**values)
        except KeyboardInterrupt as stop:
            text = str(stop) or "Stopped. The same command continues where it stopped."
            print(f"driftline: {text}", file=sys.stderr)
            raise typer.Exit(130) from None
        finally:
            OUTPUT.json = False

    # -q and -v belong to driftline itself; people also type them after the command.
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(key, kind, default=False, annotation=flag) for key, flag in COMMON.items()]
    more.append(inspect.Parameter("context_", kind, annotation=typer.Context))
    run.__signature__ = inspect.Signature([*(p.replace(kind=kind) for p in parameters), *more])  # type: ignore[attr-defined]
    summary = " ".join(text.partition("\n\n")[0].split())
    about: dict[str, Any] = {"help": f"{text}\n\n{EXAMPLE}{example}", "short_help": summary, "rich_help_panel": panel}
    group.command(name, cls=PlainCommand, **about)(run)


def _refuse_alone(ctx: typer.Context, needs: Mapping[str, str]) -> None:
    """Raise BadConfig for an option of the command line that has no effect without another one, which is not there."""
    typed = {
        name
        for param in ctx.command.params
        if str(ctx.get_parameter_source(param.name or "")).endswith("COMMANDLINE")
        for name in param.opts
    }
    for names, needed in needs.items():
        for name in names.split():
            if name in typed and needed not in typed:
                raise BadConfig(f"{name} was given without {needed}.", f"Expected both, or no {name}.")


def show(document: Any, text: str) -> None:
    """Print the result of a command: one JSON document, or text for people; with -q without its `next_step`."""
    OUTPUT.shown = True
    lines = text.split("\n")
    lines = [line for line in lines if not line.startswith(NEXT)] if OUTPUT.quiet else lines
    print(without_secrets(json.dumps(document) if OUTPUT.json else "\n".join(lines)))


def next_step(*words: object) -> str:
    """The last line of what a command prints: what to do with its result.

    >>> next_step("run", "my photos")
    "Next: driftline run 'my photos'"
    """
    return f"{NEXT}{shlex.join(map(str, words))}"


def say_address(open_page: bool = False) -> Callable[[str], None]:
    """What a local server calls with the URL of its page, when connections are accepted.

    open_page: also open it in the browser.
    """

    def say(url: str) -> None:
        print(json.dumps({"address": url}) if OUTPUT.json else f"{url} (Ctrl-C stops the server)", flush=True)
        if open_page and not webbrowser.open(url):
            print("driftline: no browser was found; open the URL yourself.", file=sys.stderr)

    return say


def counts_text(counts: dict[str, dict[str, int]], out: Path) -> str:
    """A line for each format that was written: its counts and its folder."""
    return "\n".join(
        f"{name}: {', '.join(f'{v:,} {k}' for k, v in count.items())} in {out / name}" for name, count in counts.items()
    )


def executor_of(engine: EngineName, workers: int | str, automatic: int | None = None) -> Executor:
    """What --engine and --workers say. automatic: workers of `auto`, instead of the usual ones. Raises BadConfig."""
    if workers == "auto":
        return Executor(engine, automatic or default_workers())
    if not str(workers).isdecimal() or not 1 <= int(workers) <= MOST_WORKERS:
        raise BadConfig(f"--workers is {workers!r}.", f"Expected auto or a number from 1 to {MOST_WORKERS}.")
    return Executor(engine, int(workers))


def log_of(path: Path | None = None, quiet: bool = False) -> RunLog:
    """The log of a command's work: quiet with --json and --quiet, full with --verbose."""
    return RunLog(path, quiet or OUTPUT.json or OUTPUT.quiet, OUTPUT.verbose)


def context_of_last(
    directory: Path, sets: Sequence[str] | None, quiet: bool, executor: Executor | None = None
) -> "Context":
    """Configuration, log and folder of a run. A setting of the last run is kept until `sets` or driftline.yaml gives it
    another value."""
    from driftline.pipelines.run.run_folder import Run

    context = Run(directory).context(sets or (), executor)
    return replace(context, run_log=log_of(directory / "log.jsonl", quiet))


def kept_text(context: "Context", sets: Sequence[str] | None) -> str:
    """A sentence that names the settings that are kept from the last run; "" without one."""
    options = " ".join(f"--set {shlex.quote(change)}" for change in context.changes if change not in (sets or ()))
    way_out = "To change one: --set KEY=VALUE, or edit it in driftline.yaml."
    return f"Kept from the last run: {options}. {way_out}" if options else ""


def context_to_run(directory: Path, sets: Sequence[str] | None, executor: Executor) -> "Context":
    """As `context_of_last`, and says what is kept."""
    context = context_of_last(directory, sets, False, executor)
    if kept := kept_text(context, sets):
        context.run_log.say(kept)
    return context


def admit(plugins: list[str] | None) -> None:
    """Import the protocols of --plugin: rows name the class or, from a command line, package.module:Name. Raises
    UnknownName, BadPlugin."""
    for plugin in plugins or ():
        from driftline.eval.protocol import protocol_named

        protocol_named(protocol_named(plugin)[1])


SEALED: tuple[Kind, ...] = ("stream", "release")  # their content is hashed: nothing else is written into them


def guarded_out(out: Path, writes: Kind | None = None, suffixes: Sequence[str] = (), option: str = "--out") -> Path:
    """`out`, where a command may write there.

    writes: what the command writes into a folder; its own earlier output may be there. None: files without a mark.
    suffixes: of the files that it can write, as in (".zip",): then `out` is a file. ("", ".svg"): a folder without one
    of these suffixes, else a file. option: its name in messages.

    Raises BadConfig for a link, a file in the place of a folder and the reverse, another suffix, a folder that holds
    what another command wrote, and a place inside a stream, a release or rows.
    """
    elsewhere = f"Set another {option}."
    if out.is_symlink():
        raise BadConfig(f"{option} is {out}, a link.", "Expected the folder or the file itself.", elsewhere)
    if is_planted(out):
        raise BadConfig(f"{option} is {out}, which somebody else made.", "Expected your own.", elsewhere)
    is_file = out.suffix.lower() in suffixes if out.suffix else False
    if not is_file and suffixes and "" not in suffixes:
        raise BadConfig(f"{option} is {out}.", f"Expected a file that ends with {' or '.join(suffixes)}.")
    if out.exists() and out.is_dir() == is_file:
        what, expected = ("folder", "file") if is_file else ("file", "folder")
        raise BadConfig(f"{option} is {out}, a {what}.", f"Expected a {expected}.", elsewhere)
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir():
        raise BadConfig(f"{option} is {out}, but {above} is a file.", "Expected a folder.", elsewhere)
    for kind, (called, marks) in MARKS.items():
        places = [] if is_file or kind == writes else [out]
        places += list(out.absolute().parents)[:2] if kind in SEALED else []
        for place in places:
            if any(True for mark in marks for _ in place.glob(mark)):
                may = f"Expected a new folder, or one with {MARKS[writes][0]}." if writes else "Expected another place."
                raise BadConfig(f"{option} is {out}, but {place} holds {called}.", may, elsewhere)
    for folder in () if writes == "rows" else list(out.absolute().parents)[:2]:
        run = next(folder.glob("*/*/run.json"), None)  # of rows a folder that is named by their protocol
        about = {} if run is None else read_json(run)
        if run is not None and isinstance(about, dict) and about.get("protocol") == run.parent.parent.name:
            called = MARKS["rows"][0]
            raise BadConfig(f"{option} is {out}, but {folder} holds {called}.", "Expected another place.", elsewhere)
    sweep_file(out)
    return out
