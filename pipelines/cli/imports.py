"""`driftline stream from-NAME`: a command for each importer, ours and of plug-ins, of its signature and docstring."""

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_origin

import typer

from driftline.curate.core.errors import BadPlugin
from driftline.pipelines.cli.makers import MEANINGS, add_maker, stream_app
from driftline.pipelines.kinds import Place

import_app = typer.Typer()
PLAIN = (str, int, float, bool, Path, str | None, int | None, float | None, Path | None)  # types of options of plug-ins
SOURCE = inspect.Parameter("source", inspect.Parameter.KEYWORD_ONLY, annotation=Place)


class Import(NamedTuple):
    """What a command has that its function does not say."""

    example: str
    protocol: str = "clear-iid"
    """for `driftline eval`"""
    facts: Sequence[str] = ()
    """options that are recorded beside the stream's own facts"""
    function: str = ""
    """module:name; "": as the importer is registered"""


OURS = {
    "arrays": Import(
        "driftline stream from-arrays features.npz --out stream", facts=("paper", "trained_until"),
        function="driftline.stream_builder.builders.arrays:from_arrays",
    ),
    "table": Import(
        "driftline stream from-table photos.csv --time taken --label kind\n  --period year --out S", "near-future",
        function="driftline.stream_builder.builders.table:from_table",
    ),
    "clear": Import("driftline stream from-clear clear10 --features moco_b0 --out S", facts=("paper",)),
    "folder-by-time": Import("driftline stream from-folder-by-time album --out by-year"),
    "hub": Import("driftline stream from-hub USER/NAME --time year --label kind --out S"),
    "tic": Import("driftline stream from-tic year2uids.json --table t.parquet --out S"),
    "wilds": Import("driftline stream from-wilds fmow_v1.1 --out fmow"),
    "wild-time": Import("driftline stream from-wild-time yearbook.pkl --out yearbook"),
}  # fmt: skip


def add_imports(words: Sequence[str]) -> None:
    """Register the commands of importers: the one that `words` after `driftline stream` begin with, else all. Raises
    BadPlugin for an importer with the name of another command, one that cannot be imported, and one with a parameter
    that cannot be an option."""
    if words and not words[0].startswith(("from-", "-")):
        return
    from driftline.stream_builder.importers import IMPORTERS

    asked = words[0].removeprefix("from-") if words else ""
    taken = {name for name, about in OURS.items() if about.function}
    taken |= {str(info.name).removeprefix("from-") for info in stream_app.registered_commands}
    if asked in taken and asked in IMPORTERS:
        entry = IMPORTERS.entry(asked)
        problem = f"The importer {asked!r} of {entry.origin} ({entry.target}) has the name of our from-{asked}."
        raise BadPlugin(problem, "Expected another name.", "Uninstall or rename it.")
    names = dict.fromkeys([*OURS, *(name for name in IMPORTERS if name not in taken)])
    there = {info.name for info in import_app.registered_commands}
    for name in [asked] if asked in names else names:
        if f"from-{name}" not in there:
            _add(name, name == asked)


def _add(name: str, asked: bool) -> None:
    """Register the command of an importer. asked: raise BadPlugin; else its text says why."""
    about = OURS.get(name, Import(f"driftline stream from-{name} PATH --out S"))
    try:
        function = _function(name)
        first, *others = inspect.signature(function, eval_str=True).parameters.values()
        parameters, own = [first.replace(annotation=Place), *others], []
        if name not in OURS:
            own = [p for p in others if p.name not in (*MEANINGS, "work")]
        for p in own:
            if p.annotation not in PLAIN and get_origin(p.annotation) is not Literal:
                problem = f"The importer {name!r} has a parameter {p.name} of type {p.annotation}."
                raise BadPlugin(problem, "Expected text, a number, a path or True and False.")
        text = inspect.cleandoc(function.__doc__ or f"Read data of {name}.").replace("`", "")
        parts = [part for part in text.split("\n\n") if not part.startswith("Raises ")]
        lines = [f"{first.name} PATH: Its data.", *(f"{p.name}: Of this importer." for p in own), *parts]
    except BadPlugin as error:
        if asked:
            raise
        function, parameters, lines = _function, [SOURCE], ["source PATH: Its data.", str(error)]
    facts, then = about.facts, [about.protocol]
    add_maker(
        f"from-{name}", function, "\n\n".join(lines), parameters, about.example, then, facts=facts, group=import_app
    )


def _function(name: str) -> Callable[..., Any]:
    from driftline.stream_builder.importers import IMPORTERS

    if name in OURS and OURS[name].function:
        module, _, attribute = OURS[name].function.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), attribute)
        return function
    return IMPORTERS[name]
