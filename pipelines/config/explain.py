"""What pydantic finds wrong in a run file, as lines that a person can act on."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from driftline.curate.core.errors import available, did_you_mean
from driftline.curate.core.settings import expected, keys_of
from driftline.curate.sources import SOURCES
from driftline.curate.sources.base import Source
from driftline.pipelines.config.schema import Config

Where = Sequence[int | str]
Node = yaml.Node | None


def explain(problem: ErrorDetails, values: Mapping[str, Any], name: str, node: Node, changed: Sequence[str]) -> str:
    """One line: where it is, what was given, what is expected.

    values: of the run file. name: of the file, or of the preset. node: the file's YAML node. changed: keys of `--set`.
    """
    where, kind, value = list(problem["loc"]), problem["type"], problem["input"]
    if where[-1] == "[key]":  # a key of a mapping; the location before it is the same key as a value
        del where[-2]
    if kind == "missing" and isinstance(where[-1], int):  # a list that is too short
        where, kind = where[:-1], "too_short"
    key = ".".join(str(part) for part in where if part != "[key]")
    unknown = kind in ("extra_forbidden", "invalid_key")  # invalid: no text, such as a number or null
    place = _place(key, where, name, node, changed, unknown)
    if unknown:
        section, *_ = _field_at(where[:-1], values)
        names = sorted(keys_of(_bare(section)))
        of_source = where[0] == "collection" and len(where) == 2
        source = f" of the source {values['collection']['source']}" if of_source else ""
        hint = f"{_did_you_mean(where[-1], names)} {available(str(where[-1]), names)}"
        return f"{place}: unknown key {str(where[-1])!r}{source}.{hint}"
    if kind == "invalid_key":
        return f"{place}: this key is no text. Expected the name of a section or a setting."
    error = str(problem.get("ctx", {}).get("error", "")).rstrip(".")
    if kind == "unknown_name":
        return f"{place}: {error}."
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    shown = f"{place}:" if isinstance(value, Mapping) else f"{place} is {text}."
    if kind == "value_error":
        return f"{shown} {error}."
    annotation, marks, description = _field_at(where, values)
    wanted = f"Expected {expected(annotation, marks)}"
    if kind == "missing":
        return f"{place}: missing. {wanted}{description and f': {description}'}."
    plain = _bare(annotation)
    choices = [str(choice) for choice in get_args(plain)] if get_origin(plain) is Literal else []
    return f"{shown}{_did_you_mean(value, choices)} {wanted}."


def _place(key: str, where: Where, name: str, node: Node, changed: Sequence[str], unknown: bool) -> str:
    """`--set KEY`, or file, line and key."""
    for change in changed:
        if f"{key}.".startswith(f"{change}.") or (unknown and change.startswith(f"{key}.")):
            return f"--set {change}" if unknown or key == change else f"--set {change}, {key}"
    line = _line(node, where)
    return f"{name}, line {line}, {key}" if line else f"{name}, {key}"


def _did_you_mean(word: Any, names: Sequence[str]) -> str:
    return f" {did_you_mean(str(word), names)}".rstrip()


def _field_at(where: Where, values: Mapping[str, Any]) -> tuple[Any, Sequence[Any], str]:
    """Type, marks and description of the setting at `where`."""
    kind: Any = Config
    marks: Sequence[Any] = ()
    description = ""
    for part in where:
        kind = _bare(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = keys_of(kind)[str(part)]
            kind, marks, description = field.annotation, field.metadata, field.description or ""
            collection = values.get("collection")
            if kind is Source and isinstance(collection, Mapping) and "source" in collection:
                kind = SOURCES[str(collection["source"])]
        elif get_origin(kind) is dict:
            kind, marks = get_args(kind)[part != "[key]"], ()
        else:
            kind, marks = get_args(kind)[0], ()
    return kind, marks, " ".join(description.split())


def _bare(kind: Any) -> Any:
    """A type without marks and without "or null"."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    inner = [one for one in get_args(kind) if one is not type(None)]
    return _bare(inner[0]) if type(None) in get_args(kind) else kind


def _line(node: Node, where: Where) -> int | None:
    """Line (from 1) of the key at `where`, or of the nearest section that exists."""
    line = None
    for part in where:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
