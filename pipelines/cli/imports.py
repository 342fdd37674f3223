"""`driftline stream from-NAME`: a command for each importer, ours and of plug-ins, with its parameters as options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_origin

import typer

from driftline.curate.core.atomic_io import remove_tree
from driftline.curate.core.errors import BadPlugin
from driftline.pipelines.cli import stream_options as shared
from driftline.pipelines.cli.common import command
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.stream_from import from_app
from driftline.pipelines.cli.stream_options import DRAWS, ROLES, flag_of, option, paper_facts, save, tell, with_columns

import_app = typer.Typer()

PLAIN = (str, int, float, bool, Path, str | None, int | None, float | None, Path | None)  # types of options of plug-ins
VECTORS = "Vectors as samples: an .npy file (N, D), a row for each of the table."
OPTIONS: dict[str, Any] = {  # parameter, or command and parameter → its option
    **{role: Annotated[str | None, option(flag_of(role), "COLUMN", f"Column of {of}.")] for role, of in ROLES.items()},
    "columns": shared.Columns, "root": shared.Root, "size": shared.Size, "period": shared.Period,
    "test_share": shared.TestShare, "order": shared.Order, "grouping": shared.Grouping, "seed": shared.Seed,
    "paper": shared.Paper, "trained_until": shared.TrainedUntil,
    "features": Annotated[Path | None, option("--features", "FILE", VECTORS)],
    "table": Annotated[Path | None, option("--table", "FILE", "CSV or Parquet with ids, labels and file names.")],
    "config": Annotated[str | None, option("--config", "NAME", "A configuration of the data set.")],
    "time_unit": Annotated[str, option("--time-unit", "UNIT", "Of numbers: s, ms, us, ns, or auto.")],
    "split": Annotated[int, option("--split", "N", "Which of the old layout's five splits.", DRAWS, min=0)],
    "first_bucket": Annotated[
        Literal["auto", "prior", "step"],
        option("--first-bucket", None, "prior: without labels, for pre-training; auto: so if all 11 exist."),
    ],
    "hub x": Annotated[str | None, option("--x", "COLUMN", "Column of images or texts.")],
    "clear features": Annotated[
        str, option("--features", "NAME", "images:SIZE, decoded on access; or published vectors: moco_b0, …")
    ],
    "table features": Annotated[
        Path | None, option("--features", "FILE", f"{VECTORS} CGLM, CLOC: a folder with train.npy and test.npy.")
    ],
}  # fmt: skip
CUT: dict[str, Any] = {"size": 224, "period": "year", "test_share": 0.3, "seed": 0}
TIMED: dict[str, Any] = {"period": "10", "test_share": 0.1, "order": "natural", "grouping": "grouped", "seed": 0}
BUILDERS = "driftline.stream_builder.builders"


class Import(NamedTuple):
    """A command."""

    source: tuple[str, str]
    """metavar and help of its argument"""
    text: str
    """summary, and more about it"""
    example: str
    options: Mapping[str, Any]
    """parameter → default"""
    columns: Sequence[str] = ()
    """roles of columns, which are parameters, too"""
    protocol: str = "clear-iid"
    """for `driftline eval`"""
    function: str = ""
    """module:name; "": as the importer is registered"""


OURS = {
    "arrays": Import(
        ("FILE.npz", "Arrays x and y; optional step, time, label_time, split, group, id, classes."),
        "Turn arrays in an .npz file into a stream.\n\nWithout steps, times are cut into steps; without splits, a "
        "test split is drawn.",
        "driftline stream from-arrays features.npz --out stream",
        {
            "period": "10",
            "test_share": 0.3,
            "grouping": "grouped",
            "seed": 0,
            "paper": None,
            "trained_until": None,
        },
        function=f"{BUILDERS}.arrays:from_arrays",
    ),
    "table": Import(
        ("TABLE", "CSV or Parquet; or a folder with the order files of CGLM or CLOC."),
        "Put the samples of a dated table in time order.\n\nIts columns are time, label and path, if no "
        "others are named; ids are the column id, else the row numbers; groups the column group or user.",
        "driftline stream from-table photos.csv --time taken --label kind\n  --period year --out S",
        {"features": None, "root": None, "size": 64, **TIMED},
        ("time", "label", "x", "id", "path", "group", "label_time"),
        "near-future",
        f"{BUILDERS}.table:from_table",
    ),
    "clear": Import(
        ("DIR", "The unpacked download, old or new layout."),
        "Read CLEAR-10 or CLEAR-100 as they are published.\n\nRefuses half a download, files of another version, "
        "photos in the wrong bucket and pickles with code.",
        "driftline stream from-clear clear10 --features moco_b0 --out S",
        {"features": "images:224", "split": 0, "first_bucket": "auto", "seed": 0, "paper": None},
    ),
    "folder-by-time": Import(
        ("DIR", "Class folders of dated photos."),
        "Read class folders of dated photos.\n\nDates are in EXIF, in files beside the photos, or in their names.",
        "driftline stream from-folder-by-time album --out by-year",
        CUT,
    ),
    "hub": Import(
        ("PATH|USER/NAME", "A local copy, or a name on the Hub."),
        "Read a Hugging Face data set, shard by shard.\n\nImages or texts with a date and a label column, which must "
        "be named; from a local copy, or from the Hub (HF_TOKEN for private ones). Samples are the only column of "
        "images, else text.",
        "driftline stream from-hub USER/NAME --time year --label kind --out S",
        {"config": None, "time_unit": "auto", **CUT},
        ("time", "label", "x", "label_time"),
    ),
    "tic": Import(
        ("LISTS", "…_year2uids.json or .pkl, or a folder of YEAR.npy."),
        "Join TiC's lists of uids by year to a table.\n\nAlso lists by month; the table has images or vectors. Its "
        "columns, if no others are named: uid, key or id; label or class; path, file or filename.",
        "driftline stream from-tic year2uids.json --table t.parquet --out S",
        {"table": inspect.Parameter.empty, "features": None, "root": None, **CUT},
        ("id", "label", "path"),
    ),
    "wilds": Import(
        ("DIR", "An unpacked WILDS data set of images."),
        "Read a WILDS data set of images: FMoW, iWildCam.\n\nAny other with a time column, too. Its columns, if no "
        "others are named: timestamp, datetime, date or year; category, label or y; filename, file or path; seq_id.",
        "driftline stream from-wilds fmow_v1.1 --out fmow",
        CUT,
        ("time", "label", "path", "group"),
    ),
    "wild-time": Import(
        ("FILE.pkl", "yearbook, fmow, huffpost or arxiv."),
        "Read a pickled data set of Wild-Time safely.\n\nCode in it is never run.",
        "driftline stream from-wild-time yearbook.pkl --out yearbook",
        {"root": None, "size": 224, "seed": 0},
    ),
}


def _function(name: str) -> Callable[..., Any]:
    from driftline.stream_builder.importers import IMPORTERS

    if name in OURS and OURS[name].function:
        module, _, attribute = OURS[name].function.partition(":")
        return getattr(import_module(module), attribute)
    return IMPORTERS[name]


def _add(name: str, about: Import, own: Mapping[str, Any] | None = None) -> None:
    """Register the command of an importer. own: options that only it has."""

    def run(source: Path, out: Path, **options: Any) -> None:
        from driftline.curate.core.times.calendar_periods import count_of

        guarded_out(out, "stream")
        options = with_columns(options.pop("columns", None), options)
        count_of(options.get("period", 1))
        facts = paper_facts(options.pop("paper", None), options.pop("trained_until", None))
        function = _function(name)
        work = out.parent / f".partial-{out.name}-files"  # beside the stream: its files become hard links
        remove_tree(work)
        if "work" in inspect.signature(function).parameters:
            options["work"] = work
        try:
            stream = function(source, **options)
            notes = [f"{fact}: {stream.facts[fact]}" for fact in ("licence", "cite") if fact in stream.facts]
            tell([save(stream, out, facts)], about.protocol, notes=notes)
        finally:
            remove_tree(work)

    metavar, text = about.source
    typed: dict[str, tuple[Any, Any]] = {
        "source": (inspect.Parameter.empty, Annotated[Path, typer.Argument(metavar=metavar, help=text)]),
        "out": (inspect.Parameter.empty, shared.Out),
    }
    known = {**OPTIONS, **(own or {})}
    columns = dict.fromkeys([*about.columns, "columns"] if about.columns else [])
    for key, default in {**columns, **about.options}.items():
        typed[key] = default, known.get(f"{name} {key}", known.get(key))
    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for key, (default, kind) in typed.items()
    ]
    run.__doc__, run.__signature__ = about.text, inspect.Signature(parameters)  # type: ignore[attr-defined]
    command(import_app, f"from-{name}", about.example)(run)


for _name, _about in OURS.items():
    _add(_name, _about)


def add_plugins(words: Sequence[str]) -> None:
    """Register the commands of other packages' importers: the one that `words` after `driftline stream` begin with,
    else all. Raises BadPlugin for an importer with the name of another command, one that cannot be imported, and one
    with a parameter that cannot be an option."""
    if words and not words[0].startswith(("from-", "-")):
        return
    from driftline.stream_builder.importers import IMPORTERS

    asked = words[0].removeprefix("from-") if words else ""
    ours = {name for name, about in OURS.items() if about.function}
    ours |= {str(info.name).removeprefix("from-") for info in from_app.registered_commands}
    added = {info.name for info in import_app.registered_commands}
    for name in [asked] if asked in IMPORTERS else IMPORTERS:
        if name in ours and name == asked:
            entry = IMPORTERS.entry(name)
            problem = f"The importer {name!r} of {entry.origin} ({entry.target}) has the name of our from-{name}."
            raise BadPlugin(problem, "Expected another name.", "Uninstall or rename it.")
        if name not in ours and f"from-{name}" not in added:
            _add(name, *_plugin(name, name == asked))


def _plugin(name: str, asked: bool) -> tuple[Import, dict[str, Any]]:
    """The command of a plug-in, and the options that only it has. asked: raise BadPlugin; else its text says why."""
    from driftline.stream_builder.importers import IMPORTERS

    source, example = ("PATH", "Its data."), f"driftline stream from-{name} PATH --out S"
    try:
        function, own = IMPORTERS[name], {}
        _, *parameters = inspect.signature(function, eval_str=True).parameters.values()
        for parameter in parameters:
            if parameter.name in (*OPTIONS, "work"):
                continue
            if parameter.annotation not in PLAIN and get_origin(parameter.annotation) is not Literal:
                problem = f"The importer {name!r} has a parameter {parameter.name} of type {parameter.annotation}."
                raise BadPlugin(problem, "Expected text, a number, a path or True and False.")
            flag = f"--{parameter.name.replace('_', '-')}"
            own[parameter.name] = Annotated[parameter.annotation, option(flag, None, "Of this importer.")]
    except BadPlugin as error:
        if asked:
            raise
        return Import(source, str(error), example, {}), {}
    text = inspect.cleandoc(function.__doc__ or f"Read data of {name}.")
    return Import(
        source,
        text,
        example,
        {parameter.name: parameter.default for parameter in parameters if parameter.name != "work"},
    ), own
