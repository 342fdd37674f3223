"""The command `driftline`. Heavy imports happen inside the commands: `driftline --help` must answer at once."""

import copy
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command_name

from driftline.curate.core import errors
from driftline.curate.core.system import collect_rarely
from driftline.pipelines.actions.action import ACTIONS
from driftline.pipelines.actions.common import EXAMPLE, OUTPUT, PlainGroup, Quiet, Verbose, set_output
from driftline.pipelines.actions.makers import add_imports, import_app, list_app, stream_app
from driftline.pipelines.commands import build, evaluate, keep, people, release, report, share, sources, start, streams  # noqa: F401
from driftline.pipelines.commands.models import models_app

LONGEST = 3000  # characters of a message
app = typer.Typer(
    name="driftline",
    cls=PlainGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        from driftline.curate.core.files import code_of

        print(code_of())
        raise typer.Exit


@app.callback(
    help=f"Measure how models age: build temporal datasets, compose streams, evaluate learners.\n\n"
    f"To see everything at work, offline:\n\n{EXAMPLE}driftline demo\n\n"
    "Exit codes: 0 done, 1 failed or unfinished, 2 wrong usage, 3 waiting for answers of people, 4 a limit "
    "of age --alarm is crossed, 130 stopped with Ctrl-C."
)
def options(
    quiet: Quiet = False,
    verbose: Verbose = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """What stands before the command."""
    OUTPUT.debug = debug
    set_output(quiet, verbose)


# Without a name, the commands of a group become commands of driftline itself.
app.add_typer(ACTIONS)
stream_app.add_typer(import_app)
stream_app.add_typer(list_app)
app.add_typer(stream_app, name="stream", rich_help_panel="Stream")
app.add_typer(models_app, name="models", rich_help_panel="Start")


def called(words: Sequence[str], part: typer.Typer = app) -> typer.Typer:
    """The application with no other command than the one that `words` begin with; the whole of it where they begin with
    none. To make all sixty commands takes longer than most of them do."""
    if part is app and [word for word in words if not word.startswith("-")][:1] == ["stream"]:
        add_imports(words[words.index("stream") + 1 :])
    if not words:
        return part
    one = copy.copy(part)
    one.registered_commands, one.registered_groups = [], []
    one._add_completion = False  # its options, which every command would read, load pydantic
    for member in part.registered_commands:
        if (member.name or get_command_name(getattr(member.callback, "__name__", ""))) == words[0]:
            one.registered_commands = [member]
            return one
    for group in part.registered_groups:
        whole = group.typer_instance or part
        inner = called(words[1:] if group.name == words[0] else words, whole)
        if group.name == words[0] or (inner is not whole and not isinstance(group.name, str)):
            one.registered_groups = [copy.copy(group)]
            one.registered_groups[0].typer_instance = inner
            return one
    return part


def _say(text: str, for_people: bool = True) -> None:
    """An error on stderr; with --json also as the one document on stdout, unless the result is there already."""
    text = errors.without_secrets(text)
    if for_people:
        print(text, file=sys.stderr)
    if "--json" in sys.argv and not OUTPUT.shown:
        print(json.dumps({"error": text.removeprefix("driftline: ")}))


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 failed, 2 bad usage, 3 waiting for answers; an error is one paragraph."""
    collect_rarely()
    os.environ["PYTHONSAFEPATH"] = "1"  # no process that starts from here imports what lies in the working folder
    OUTPUT.shown = False
    try:
        sys.exit(called(sys.argv[1:])(prog_name="driftline", standalone_mode=False) or 0)
    except TyperException as error:
        text = " ".join(error.format_message().replace("Value error, ", "").split())
        ctx = getattr(error, "ctx", None)
        is_help = type(error).__name__ == "NoArgsIsHelpError"  # of a group without a command
        way_out = f" Help: {ctx.command_path} --help." if ctx is not None else ""
        end = "" if text.endswith((".", "?")) else "."
        _say(error.format_message() if is_help else f"driftline: {text}{end}{way_out}")
        sys.exit(2)
    except (errors.DriftlineError, OSError, ModuleNotFoundError, UnicodeEncodeError) as error:
        if OUTPUT.debug:
            traceback.print_exc()
        text = str(error if isinstance(error, errors.DriftlineError) else errors.explained(error))
        _say(f"driftline: {errors.shortened(text, LONGEST)}", not OUTPUT.debug)
        bad_usage = isinstance(error, (errors.BadConfig, errors.BadPlugin, errors.MissingFile, errors.UnknownName))
        failed = isinstance(error, errors.Unreachable) or not bad_usage
        sys.exit(3 if isinstance(error, errors.Waiting) else 1 if failed else 2)


if __name__ == "__main__":
    main()
