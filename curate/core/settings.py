"""What the sections of a run file share: their base class, common types, marks of fields, and how a field is described.

A setting is declared once, as a field of a `Section` beside the code that uses it: type, range, default, and a
docstring below the field. The run file, `--set`, presets, fingerprints, error messages and the manual read it there.
"""

import os
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from driftline.curate.core.late import yaml


@dataclass(frozen=True)
class Stages:
    """Marks a setting that only the fingerprints of these stages hold; without it those of all stages do that read the
    section."""

    names: tuple[str, ...] = ()
    """these stages"""


PLACE = Stages()  # a path of this machine: the content behind it enters the fingerprint
SPEED = Stages()  # never changes the output


@dataclass(frozen=True)
class Form:
    """Marks a type with the words that say what it expects."""

    text: str


class Section(BaseModel):
    """A section of the run file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def identity(self, stage: str) -> dict[str, Any]:
        """The settings that the fingerprint of `stage` holds, as plain data."""
        hidden = {
            name
            for name, field in type(self).model_fields.items()
            if any(isinstance(mark, Stages) and stage not in mark.names for mark in field.metadata)
        }
        return self.model_dump(mode="json", exclude=hidden)


def key_of(name: str, field: FieldInfo) -> str:
    """The key of a field in the run file."""
    return field.validation_alias if isinstance(field.validation_alias, str) else name


def keys_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Key in the run file → field."""
    return {key_of(name, field): field for name, field in section.model_fields.items()}


def _seconds(value: Any) -> Any:
    """A year, `2004-01-01`, an ISO time or a number of seconds → seconds UTC; other values as they are."""
    text = value.isoformat() if hasattr(value, "isoformat") else value
    if re.fullmatch("[12][0-9]{3}", str(text)):  # no number of seconds: nobody means the first hours of 1970
        text = f"{text}-01-01"
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return value
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _duration(value: Any) -> Any:
    """`14h`, `30m`, `10s` → seconds."""
    if isinstance(value, str) and value[-1:] in "smh" and re.fullmatch("[0-9]{1,18}", value[:-1]):
        return int(value[:-1]) * {"s": 1, "m": 60, "h": 3600}[value[-1]]
    return value


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Time = Annotated[int, BeforeValidator(_seconds), Form("a year, a date, an ISO 8601 time or seconds since 1970, UTC")]
Duration = Annotated[int, BeforeValidator(_duration), Field(ge=0), Form("a duration such as 14h, 30m or 10s")]
_day = BeforeValidator(lambda value: value.isoformat() if hasattr(value, "isoformat") else value)
Day = Annotated[str, _day, Field(pattern=r"^\d{4}-\d\d-\d\d$"), Form("a date such as 2024-05-01")]
PathText = Annotated[str, BeforeValidator(_path), Field(min_length=1), Form("a path")]
Positive = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Template = Annotated[str, Field(pattern=r"\{\}"), Form("text with {} in it")]

NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
LIMITS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))  # attributes of marks


def expected(annotation: Any, marks: Sequence[Any] = ()) -> str:
    """What a type accepts, in words. marks: the metadata of a field of that type.

    >>> expected(Annotated[int, Field(ge=1, le=256)] | None), expected(tuple[Literal["a", "b", "c"], ...])
    ('a whole number ≥ 1 and ≤ 256, or null', 'a list: a, b or c')
    """
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        marks = [*(one for mark in inner for one in (mark.metadata if isinstance(mark, FieldInfo) else [mark])), *marks]
    if forms := [mark.text for mark in marks if isinstance(mark, Form)]:
        return str(forms[-1])
    kind, inside = get_origin(annotation), get_args(annotation)
    if kind in (Union, types.UnionType):
        return ", or ".join(expected(one, () if one is type(None) else marks) for one in inside)
    if kind is Literal:
        *most, last = map(str, inside)
        return f"{', '.join(most)} or {last}" if most else last
    if kind is tuple:
        some = any(hasattr(mark, "min_length") for mark in marks)
        return f"a list{' with at least one entry' if some else ''}: {expected(inside[0])}"
    if kind is dict:
        return f"a mapping: {expected(inside[0])} → {expected(inside[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"the keys {', '.join(keys_of(annotation))}"
    limits = [f"{sign} {getattr(mark, name):,}" for name, sign in LIMITS for mark in marks if hasattr(mark, name)]
    return f"{NAMES.get(annotation, 'a value')} {' and '.join(limits)}".rstrip()


def resolve_path(path: str, base: Path) -> Path:
    """A path of the run file: `~` expanded; relative to `base`, the folder of the file, unless it exists only in the
    working directory. What exists nowhere is absolute, for messages."""
    expanded = Path(os.path.expanduser(path))
    if expanded.is_absolute():
        return expanded
    if (base / expanded).exists():
        return base / expanded
    return expanded if expanded.exists() else (base / expanded).absolute()


def value_of(text: str) -> Any:
    """The value of `KEY=VALUE` as a user types it: YAML, and also numbers such as 1e-3, which YAML reads as text.

    >>> value_of("1e-3"), value_of("3"), value_of("true"), value_of("dynamic:0.5"), value_of("[1, 2]"), value_of("[")
    (0.001, 3, True, 'dynamic:0.5', [1, 2], '[')
    """
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # no YAML, or a date that does not exist
        return text
    if isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value):
        return float(value)
    return value
