"""`driftline stream …`: commands of functions that return a stream, of importers, too, ours and of plug-ins; what they
share, and what they print of it."""

import ast
import collections.abc
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, get_origin

import typer

from driftline.curate.core.atomic_io import remove_tree
from driftline.curate.core.errors import BadConfig, BadPlugin
from driftline.pipelines.actions.action import add_options, described, flag_of, typed
from driftline.pipelines.actions.common import group_app, guarded_out, next_step, show
from driftline.pipelines.kinds import Place

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

P = ParamSpec("P")
ROLES = {
    "time": "dates, years, ISO 8601 or seconds since 1970",
    "label": "labels",
    "x": "samples: texts, images or numbers (A,B: of several columns)",
    "id": "ids, each of one sample",
    "path": "file names of images",
    "group": "uploaders: all samples of one are in the same split",
    "label_time": "when labels come, if later than their samples; empty: never",
}
SHARED = """
columns YAML: All columns at once: '{time: taken, label: kind}'.
root DIR: Folder of images (default: the table's).
data_dir DIR: Folder of a named dataset (default: data).
labels: Labels of a dataset that has both (default: coarse).
size PIXELS: Edge of decoded images.
download: Download a named dataset that is not in --data-dir.
device: Where the encoder runs.
trained_until DATE: Training cutoff of the vectors' encoder: year, month or day, as in 2021-01.
seed N: Random seed of all sampling, and of the order of equal times.
period year|month|week|day|N: Length of a step; N: so many steps of about equal size.
test_share SHARE: Share of test samples, where the data has no split.
grouping: grouped: samples of one uploader, and near-duplicates, are in the same split.
fidelity: clean: as the paper describes it; paper-code: as its code did, with its errors.
paper NAME: Data of a paper, as in clear10/moco-yfcc-b0: reports show its values.
out DIR: Folder of the stream.
features FILE: Vectors as samples: an .npy file (N, D), one vector for each row of the table.
table FILE: CSV or Parquet with ids, labels and file names.
config NAME: A configuration of the dataset.
time_unit UNIT: Of numbers: s, ms, us, ns, or auto.
split N: Which of the old layout's five splits.
first_bucket: unlabelled: for pre-training; step: a labelled step; auto: unlabelled if all 11 buckets exist.
workers N|auto: Processes; auto: DRIFTLINE_WORKERS, else one for each core.
"""
MEANINGS = described(SHARED, None)[1] | {role: ("COLUMN", f"Column of {of}.") for role, of in ROLES.items()}
PANELS: dict[str, str] = {  # parameter → heading in help; "": of the others
    "": "Input",
    **dict.fromkeys(
        ("split", "period", "test_share", "grouping", "seed", "sizes", "test_size", "seeds", "overlap",
         "classes", "val_share", "priors"), "Sampling",
    ),
    **dict.fromkeys(("paper", "fidelity", "draws", "augment", "oracle"), "Paper"),
    "out": "Output",
}  # fmt: skip
stream_app = group_app("Create, show and measure streams.", "driftline stream from-folder-by-time album --out by-year")


def maker(
    example: str, *then: str, arguments: int = 1, facts: Sequence[str] = (),
    needs: Mapping[str, str] | None = None, completes: Mapping[str, Any] | None = None, many: Any = None,
) -> "Callable[[Callable[P, Stream]], Callable[P, Stream]]":  # fmt: skip
    """Make a command of a function that returns a stream, which stays as it is. then: the protocol that such streams
    are made for, and more words of `driftline eval`. The other parameters as in `add_maker`."""

    def declare(function: "Callable[P, Stream]") -> "Callable[P, Stream]":
        parameters = [typed(p, function) for p in inspect.signature(function).parameters.values()]
        words, doc = function.__name__.replace("_", "-"), function.__doc__
        text, own = add_maker(
            words, function, doc, parameters, example, then, arguments, facts, needs, completes, stream_app, many
        )
        function.__doc__ = "\n".join([text, "", *(f"{key}: {meaning}" for key, (_, meaning) in own.items())])
        return function

    return declare


def add_maker(
    name: str, function: "Callable[..., Stream]", docstring: str | None, parameters: Sequence[inspect.Parameter],
    example: str, then: Sequence[str] = (), arguments: int = 1, facts: Sequence[str] = (),
    needs: Mapping[str, str] | None = None, completes: Mapping[str, Any] | None = None,
    group: typer.Typer = stream_app, many: Any = None,
) -> tuple[str, dict[str, tuple[str, str]]]:  # fmt: skip
    """Register the command; returns its text, and the meaning of each parameter.

    parameters: of the function, the first `arguments` of which are arguments. facts: options whose values are recorded
    beside the stream's own facts, and `seeds`: `many` makes and saves a
    stream of each. Columns may also be named by --columns; `work` is a folder for files that become
    those of the stream.
    """
    options = [p for p in parameters if p.name != "work"]
    roles = [p.name for p in options[arguments:] if p.name in ROLES]

    defaults = {p.name: p.default for p in options}

    def answer(out: Path, **values: Any) -> None:
        from driftline.curate.core.times import count_of

        seeds = values.pop("seeds", None)
        guarded_out(out, "stream" if seeds is None else "draws")
        if seeds is not None:
            drawn = many(function, values, out, seeds)
            return show({"out": str(out), "streams": drawn}, saved_text(drawn, then, out))
        if roles:
            values = with_columns(values.pop("columns"), values, roles)
        if values.get("period") is not None:
            count_of(values["period"])
        recorded = paper_facts(values.pop("paper", None), values.pop("trained_until", None))
        work = out.parent / f".partial-{out.name}-files"  # beside the stream: its files become hard links
        remove_tree(work)
        if len(options) < len(parameters):
            values["work"] = work
        source = [values.pop(p.name) for p in options[:arguments]]
        values = {key: defaults.get(key) if value is None else value for key, value in values.items()}
        try:
            stream = function(*source, **values)
            told = [fact for fact in ("licence", "cite", "left_out", "check") if fact in stream.facts]
            notes = [f"{fact.replace('_', ' ')}: {stream.facts[fact]}" for fact in told]
            saved = save(stream, out, recorded)
            show(saved, saved_text([saved], then or ["clear-iid"], notes=notes))
        finally:
            remove_tree(work)

    text, own = described(docstring, [*facts, *(p.name for p in options)])
    more = [inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, annotation=Place)]
    more += [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=str | None)
        for key in (*facts, *(["columns"] if roles else []))
    ]
    meanings = {p.name: own.get(p.name) or MEANINGS.get(p.name, ("", "")) for p in (*options, *more)}
    add_options(
        group, name, example, None, needs, text, [*options, *more], meanings, answer, completes, arguments, PANELS
    )
    return text, {p.name: meanings[p.name] for p in options}


def save(stream: "Stream", out: Path, facts: dict[str, str] | None = None) -> dict[str, Any]:
    """Save a stream; returns its facts for the user. facts: recorded in addition to the stream's own."""
    return facts_of(stream.save(out, {**stream.facts, **(facts or {})}), out)


def facts_of(stream: "Stream", out: Path) -> dict[str, Any]:
    """Facts about a saved stream, for the user."""
    return {
        "out": str(out),
        "stream": stream.name,
        "sha256": stream.sha256,
        "steps": len(stream.steps),
        "samples": sum(len(split) for step in stream.steps for split in step.splits.values()),
        "classes": len(stream.classes),
        "shared_with_training": stream.shared_with_training(),
        "made": stream.facts.get("made"),
    }


def saved_text(
    saved: Sequence[dict[str, Any]], then: Sequence[str] = ("clear-iid",), out: Path | None = None,
    notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """A line about each saved stream; warns of test samples that are near training samples. then: the protocol that
    such streams are made for, and more words of `driftline eval`. out: the folder of several streams."""
    lines = []
    for facts in saved:
        size = f"{facts['steps']} steps, {facts['samples']:,} samples, {facts['classes']} classes"
        lines.append(f"stream {facts['stream']}: {size} in {facts['out']}")
        if facts["made"] is not None:
            lines.append(f"The file does not say everything, so the stream has {facts['made']}.")
        if facts["shared_with_training"]:
            typer.echo(
                f"Warning: {facts['shared_with_training']:.1%} of its test samples share an uploader, or are "
                "near-duplicates of, a training sample: the test in the same period is too easy.",
                err=True,
            )
    place = out if out is not None and len(saved) > 1 else saved[0]["out"]
    return "\n".join(
        [*lines, *notes, next_step("eval", place, "--protocol", *then, "--learners", "all", "--out", "runs")]
    )


def paper_facts(paper: str | None, trained_until: str | None) -> dict[str, str]:
    """What the user says of the data. Raises BadConfig for data without published values, and for no date."""
    from driftline.curate.encoders.weights import Seen, checked
    from driftline.eval.scoring.published_values import names

    if paper is not None and paper not in names():
        raise BadConfig(f"--paper is {paper!r}.", f"Expected one of {', '.join(names())}.")
    seen = Seen(checked(trained_until), "not stated", "--trained-until").facts() if trained_until else {}
    return ({"published": paper} if paper else {}) | seen


def columns_of(columns: str | None) -> dict[str, str]:
    """role → column of --columns. Raises BadConfig."""
    import yaml

    try:
        named = yaml.safe_load(columns or "{}")
    except yaml.YAMLError:
        named = None
    if not isinstance(named, dict) or not all(isinstance(one, str) for pair in named.items() for one in pair):
        raise BadConfig(f"--columns is {columns!r}.", "Expected roles and columns, as in '{time: taken, label: kind}'.")
    return named


def with_columns(columns: str | None, options: dict[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    """The options with the columns of --columns. Raises BadConfig for another role, and for a column in both."""
    named = columns_of(columns)
    for role in named:
        if role not in roles:
            raise BadConfig(f"--columns names {role!r}.", f"Available here: {', '.join(roles)}.")
        if options[role] is not None:
            raise BadConfig(f"--columns names {role}, and {flag_of(role)} was given, too.", "Expected one of them.")
    return options | named


import_app, list_app = typer.Typer(), typer.Typer()  # importers; ours for help, without what they do
PLAIN = (str, int, float, bool, Path, str | None, int | None, float | None, Path | None)  # types of options of plug-ins
SOURCE = inspect.Parameter("source", inspect.Parameter.KEYWORD_ONLY, annotation=Place)


OURS = {  # importer → the end of its example
    "arrays": "features.npz --out stream",
    "table": "photos.csv --time taken --label kind\n  --period year --out S",
    "clear": "clear10 --features moco_b0 --out S",
    "folder-by-time": "album --out by-year",
    "hub": "USER/NAME --time year --label kind --out S",
    "tic": "year2uids.json --table t.parquet --out S",
    "wilds": "fmow_v1.1 --out fmow",
    "wild-time": "yearbook.pkl --out yearbook",
}
BUILDERS = {name: f"driftline.stream_builder.builders.{name}:from_{name}" for name in ("arrays", "table")}
FACTS = {"arrays": ("paper", "trained_until"), "clear": ("paper",)}  # options recorded beside the stream's own facts


def add_imports(words: Sequence[str]) -> None:
    """Register the commands of importers: the one that `words` after `driftline stream` begin with, else all; for help,
    ours are only declared. Raises BadPlugin for an importer with the name of another command, one that cannot be
    imported, and one with a parameter that cannot be an option."""
    if words and not words[0].startswith(("from-", "-")):
        return
    from driftline.stream_builder.importers import IMPORTERS

    list_app.registered_commands = []
    asked = words[0].removeprefix("from-") if words else ""
    own = {str(info.name).removeprefix("from-") for info in stream_app.registered_commands}
    taken = own | BUILDERS.keys()
    if asked in taken and asked in IMPORTERS:
        entry = IMPORTERS.entry(asked)
        problem = f"The importer {asked!r} of {entry.origin} ({entry.target}) has the name of our from-{asked}."
        raise BadPlugin(problem, "Expected another name.", "Uninstall or rename it.")
    names = dict.fromkeys([*OURS, *(name for name in IMPORTERS if name not in taken)])
    there = {info.name for info in import_app.registered_commands}
    for name in () if asked in own else [asked] if asked in names else names:
        if f"from-{name}" not in there:
            _add(name, name == asked, list_app if name in OURS and {"-h", "--help"} & set(words) else import_app)


def _declared(name: str) -> Callable[..., Any]:
    """One of our importers without what it does, by its source: its module would import NumPy."""
    module, _, function = _target(name).partition(":")
    tree = ast.parse(Path(str(getattr(find_spec(module), "origin", None))).read_text(encoding="utf-8"))
    (node,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == function)
    node.body, node.returns = node.body[:1], None
    names = {**vars(typing), **vars(collections.abc), "Path": Path}
    exec(compile(ast.Module([node], []), module, "exec"), names)
    declared: Callable[..., Any] = names[function]
    return declared


def _target(name: str) -> str:
    """Module and function of one of our importers."""
    from driftline.stream_builder.importers import IMPORTERS

    return BUILDERS.get(name) or IMPORTERS.entry(name).target


def _add(name: str, asked: bool, group: typer.Typer) -> None:
    """Register the command of an importer. asked: raise BadPlugin; else its text says why."""
    try:
        function = _declared(name) if group is list_app else _function(name)
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
    then = ["near-future" if name == "table" else "clear-iid"]
    example = f"driftline stream from-{name} {OURS.get(name, 'PATH --out S')}"
    text, facts = "\n\n".join(lines), FACTS.get(name, ())
    add_maker(f"from-{name}", function, text, parameters, example, then, facts=facts, group=group)


def _function(name: str) -> Callable[..., Any]:
    from driftline.stream_builder.importers import IMPORTERS

    if name not in OURS:
        return IMPORTERS[name]
    module, _, attribute = _target(name).partition(":")
    function: Callable[..., Any] = getattr(import_module(module), attribute)
    return function
