"""`@action`: a typed function becomes a command; its signature and docstring are the options and the help of both."""

import inspect
import re
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from operator import or_
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Generic, Literal, ParamSpec, TypeVar, get_args, get_origin

import typer

from driftline.pipelines.actions.common import Panel, add_command, config_keys, show
from driftline.pipelines.actions.listing import completion

T = TypeVar("T")
P = ParamSpec("P")
Device = Literal["auto", "cpu", "cuda"]
Answer = dict[str, Any]
READ: dict[Any, Any] = {  # type → what the command line reads
    str | Path: Path, Sequence[Path]: list[Path], int | str: str, str | Sequence[str]: str,
}  # fmt: skip
LISTS = (list[str], list[Path])
WORDS = {int: "N", float: "N", Path: "PATH"}  # of values; others: TEXT
FLAGS = {"start": "--from", "settings": "--set", "oracle": "--oracle/--no-oracle"}  # of other names
LINE = re.compile(r"(\w+)(?: (\S+))?: (.*)")  # of a parameter: its name, what a value looks like, what it means
SHARED = """
run DIR: A run folder (it holds driftline.yaml).
until STAGE: Stop after this stage (driftline list stages).
start STAGE: Repeat this stage and all later ones (driftline list stages).
settings KEY=VALUE: Value of a setting, as in release.per_class=50; driftline.yaml lists all. Repeatable.
workers N|auto: Processes; auto: DRIFTLINE_WORKERS, else one for each core.
engine: ray: the cluster of RAY_ADDRESS, or this machine; slurm: one job a task.
reason REASON: Only for this reason (driftline status). Repeatable.
port N: 0: any free one.
open: Open the page in the browser.
plugin MODULE:NAME: Your own protocol, if the results come from one. Repeatable.
stream STREAM: An evaluated stream: adds its names, dates and images. Repeatable.
runs RUNS…: Result folders of driftline eval.
again N: How many runs are repeated (default: a tenth).
public_value TEXT: Seed for choosing the runs to repeat: a value published after the submission, such as a block hash
    (default: a random one, which is printed).
include_tests: Learn from test images and their uploaders, too; it is recorded.
"""
COMPLETED: dict[str, Any] = {"until": "stages", "start": "stages", "recipe": "recipes", "settings": config_keys}
LIMITS: dict[str, tuple[float, float | None]] = {  # parameter → smallest, largest
    "again": (0, None), "bucket": (0, None), "copy_bits": (0, 16), "cost_error": (0, None), "cost_retrain": (0, None),
    "evaluate": (1, None), "max_usd": (0, None),
    "port": (0, 65535), "size": (4, 512), "split": (0, None), "test_share": (0, 0.99),
    "test_size": (1, None), "val_share": (0, 0.9),
}  # fmt: skip


@dataclass(frozen=True)
class Shown(Generic[T]):
    """What an action answers."""

    result: T
    """for Python"""
    text: str
    """for people"""
    document: Any = None
    """for --json; None: the result"""
    problem: Exception | None = None
    """raised on the command line after the answer: its exit code"""
    warnings: Sequence[str] = ()
    """for Python"""


NOTHING: Shown[None] = Shown(None, "")  # of a page, which ends with its server


def action(
    example: str, panel: Panel | None = None, *, name: str = "", group: typer.Typer | None = None,
    needs: Mapping[str, str] | None = None, completes: Mapping[str, Any] | None = None, required: Container[str] = (),
    arguments: int | None = None,
) -> Callable[[Callable[P, Shown[T]]], Callable[P, T]]:  # fmt: skip
    """Make a command of a function; what Python calls returns `Shown.result`.

    Parameters before the `*` are arguments (but `out`), or the first `arguments`; the others are options. The docstring
    has a line `name VALUE: meaning` for each that is not in SHARED. name: of the command, if not that of the function.
    needs: as in `add_command`. completes: more of COMPLETED. required: options that Python may leave out, to have the
    result in memory.
    """

    def declare(function: Callable[P, Shown[T]]) -> Callable[P, T]:
        parameters = {p.name: typed(p, function) for p in inspect.signature(function).parameters.values()}
        text, own = described(function.__doc__, parameters)
        meanings = {key: own.get(key) or MEANINGS.get(key, ("", "")) for key in parameters}

        def answer(**values: Any) -> None:
            given = {key: parameters[key].default if value is None else value for key, value in values.items()}
            shown: Shown[Any] = function(**given)  # type: ignore[call-arg]
            if shown is NOTHING:
                return
            show(shown.result if shown.document is None else shown.document, shown.text)
            if shown.problem is not None:
                raise shown.problem

        add_options(
            ACTIONS if group is None else group, name or function.__name__, example, panel, needs, text,
            [p.replace(default=p.empty) if p.name in required else p for p in parameters.values()], meanings,
            answer, completes, arguments,
        )  # fmt: skip

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            shown = function(*args, **kwargs)
            for warning in shown.warnings:
                warnings.warn(warning, stacklevel=2)
            return shown.result

        result = str(function.__annotations__["return"]).removeprefix("Shown[").removesuffix("]")
        call.__signature__ = inspect.signature(function).replace(return_annotation=result)  # type: ignore[attr-defined]
        call.__doc__ = "\n".join([text, "", *(f"{key}: {meaning}" for key, (_, meaning) in meanings.items())])
        return call

    return declare


ACTIONS = typer.Typer()


def add_options(
    group: typer.Typer, name: str, example: str, panel: Panel | None, needs: Mapping[str, str] | None, text: str,
    parameters: Sequence[inspect.Parameter], meanings: Mapping[str, tuple[str, str]], answer: Callable[..., None],
    completes: Mapping[str, Any] | None, arguments: int | None, panels: Mapping[str, str] = MappingProxyType({}),
) -> None:  # fmt: skip
    """`add_command` with an option for each parameter; panels: parameter → heading in help, "" of the others."""
    completed = COMPLETED | dict(completes or {})
    options = []
    for i, p in enumerate(parameters):
        is_option = i >= arguments if arguments is not None else p.kind is p.KEYWORD_ONLY or p.name == "out"
        heading = panels.get(p.name, panels.get("")) if is_option else None
        options.append(option_of(p, *meanings[p.name], completed, is_option, heading))
    add_command(group, name, example, panel, needs or {}, text, options, answer)


def typed(p: inspect.Parameter, function: Callable[..., Any]) -> inspect.Parameter:
    """The parameter with its type; the type of a result may be one that is not imported."""
    kind = p.annotation
    return p.replace(annotation=eval(kind, function.__globals__) if isinstance(kind, str) else kind)


def described(docstring: str | None, names: Container[str] | None) -> tuple[str, dict[str, tuple[str, str]]]:
    """The text of a docstring without what it raises; and of each parameter, what a value looks like and what it means.
    names: of the parameters; None: every line is of one."""
    meanings: dict[str, tuple[str, str]] = {}
    text, last = list[str](), ""
    for line in inspect.cleandoc(docstring or "").split("\n"):
        match = LINE.fullmatch(line)
        if match is not None and (names is None or match[1] in names):
            last = match[1]
            meanings[last] = match[2] or "", match[3]
        elif last and line.startswith("    "):
            meanings[last] = meanings[last][0], f"{meanings[last][1]} {line.strip()}"
        else:
            text.append(line)
    return "\n".join(text).strip(), meanings


MEANINGS = described(SHARED, None)[1]


def option_of(
    p: inspect.Parameter, value: str, meaning: str, completed: Mapping[str, Any], is_option: bool, panel: str | None
) -> inspect.Parameter:
    """The argument or option of the command line for a parameter."""
    kinds = [kind for kind in get_args(p.annotation) if kind is not NoneType]
    is_optional = NoneType in get_args(p.annotation)
    plain = reduce(or_, kinds) if is_optional else p.annotation
    kind, default = READ.get(plain, plain), p.default
    if kind in LISTS and default is not p.empty:
        is_optional, default = True, None
    names = completed.get(p.name)
    word = WORDS.get(next(iter(get_args(kind)), kind), "TEXT")
    word = "|".join(get_args(kind)) if get_origin(kind) is Literal else word
    shown = value or (None if kind is bool else word)
    more: dict[str, Any] = {"metavar": shown, "help": meaning, "rich_help_panel": panel}
    more["show_default"] = "default:" not in meaning
    more["autocompletion"] = completion(names) if isinstance(names, str) else names
    more["min"], more["max"] = LIMITS.get(p.name, (None, None))
    mark = typer.Option(flag_of(p.name), **more) if is_option else typer.Argument(**more)
    annotation: Any = Annotated[kind | None if is_optional else kind, mark]
    return p.replace(kind=p.KEYWORD_ONLY, default=default, annotation=annotation)


def flag_of(parameter: str) -> str:
    """Its option."""
    return FLAGS.get(parameter, f"--{parameter.replace('_', '-')}")
