"""`driftline stream from-NAME`: a command for each importer, ours and of plug-ins, with its parameters as options."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_origin

import typer

from driftline.curate.core.errors import BadPlugin
from driftline.pipelines.cli.makers import MEANINGS, add_maker, stream_app
from driftline.pipelines.kinds import Place

import_app = typer.Typer()

PLAIN = (str, int, float, bool, Path, str | None, int | None, float | None, Path | None)  # types of options of plug-ins
EMPTY = inspect.Parameter.empty
FILES = ("root", "features", "table")  # parameters that are paths
CHOICES: dict[str, Any] = {
    "order": Literal["natural", "balanced"],
    "grouping": Literal["grouped", "random"],
    "first_bucket": Literal["auto", "prior", "step"],
}
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
        "others are named; ids are the column id, else the row numbers; groups the column group or user.\n\n"
        "features FILE: Vectors as samples: an .npy file (N, D), a row for each of the table. CGLM, CLOC: a folder "
        "with train.npy and test.npy.",
        "driftline stream from-table photos.csv --time taken --label kind\n  --period year --out S",
        {"features": None, "root": None, "size": 64, **TIMED},
        ("time", "label", "x", "id", "path", "group", "label_time"),
        "near-future",
        f"{BUILDERS}.table:from_table",
    ),
    "clear": Import(
        ("DIR", "The unpacked download, old or new layout."),
        "Read CLEAR-10 or CLEAR-100 as they are published.\n\nRefuses half a download, files of another version, "
        "photos in the wrong bucket and pickles with code.\n\n"
        "features NAME: images:SIZE, decoded on access; or published vectors: moco_b0, …",
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
        "images, else text.\n\nx COLUMN: Column of images or texts.",
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


def _add(name: str, about: Import, types: Mapping[str, Any] | None = None) -> None:
    """Register the command of an importer. types: of options that only it has."""

    def read(source: Path, work: Path, **options: Any) -> Any:
        function = _function(name)
        return function(
            source, **options, **({"work": work} if "work" in inspect.signature(function).parameters else {})
        )

    facts = [key for key in ("paper", "trained_until") if key in about.options]
    defaults = dict.fromkeys(about.columns) | {k: v for k, v in about.options.items() if k not in facts}
    kinds: dict[str, Any] = {"source": Place, "work": Path}
    for key, default in defaults.items():
        usual: Any = (
            Place if key in FILES and not isinstance(default, str) else str if default is None else type(default)
        )
        kinds[key] = (types or {}).get(key) or CHOICES.get(key) or (usual | None if default is None else usual)
    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(key, EMPTY), annotation=kind)
        for key, kind in kinds.items()
    ]
    lines = [f"source {about.source[0]}: {about.source[1]}", *(f"{key}: Of this importer." for key in types or {})]
    text = "\n".join([about.text, "", *lines])
    add_maker(f"from-{name}", read, text, parameters, about.example, [about.protocol], facts=facts, group=import_app)


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
    ours |= {str(info.name).removeprefix("from-") for info in stream_app.registered_commands}
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
        _, *parameters = inspect.signature(IMPORTERS[name], eval_str=True).parameters.values()
        own = {p.name: p.annotation for p in parameters if p.name not in (*MEANINGS, "work")}
        for key, kind in own.items():
            if kind not in PLAIN and get_origin(kind) is not Literal:
                problem = f"The importer {name!r} has a parameter {key} of type {kind}."
                raise BadPlugin(problem, "Expected text, a number, a path or True and False.")
    except BadPlugin as error:
        if asked:
            raise
        return Import(source, str(error), example, {}), {}
    text = inspect.cleandoc(IMPORTERS[name].__doc__ or f"Read data of {name}.")
    return Import(source, text, example, {p.name: p.default for p in parameters if p.name != "work"}), own
