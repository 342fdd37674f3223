"""Reading the configuration of a run: one YAML file, checked before any work, messages with line and key."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from curate.core.errors import BadConfig, MissingFile
from curate.core.parsing import value_of
from pipelines.config.schema import Config


def load(path: Path, changes: Sequence[str] = ()) -> Config:
    """Read and check a configuration; `changes` are `KEY=VALUE` with dotted keys (`--set`).

    Raises BadConfig naming file, line, key, what was given and what is allowed.
    """
    if not path.is_file():
        raise MissingFile(
            f"There is no configuration {path}.", "", f"Make one: driftline init {path.parent} --preset mini."
        )
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadConfig(
            f"{path} is not valid YAML: {' '.join(str(error).split())}.", "", "Correct the line named."
        ) from None
    except ValueError as error:
        raise BadConfig(f"{path} holds a value that cannot be read: {error}.") from None
    if not isinstance(values, dict):
        raise BadConfig(
            f"{path} holds {'nothing' if values is None else type(values).__name__}.",
            "Expected sections such as collection and embed.",
        )
    for change in changes:
        apply(values, change)
    _include_concepts(values, path)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise BadConfig(_explain(path, node, error, changes)) from None


def _include_concepts(values: dict[str, Any], path: Path) -> None:
    """Where `retrieve.concepts` is the name of a file, put the file's list in its place."""
    section = values.get("retrieve")
    if not isinstance(section, dict) or not isinstance(section.get("concepts"), str):
        return
    file = resolve(section["concepts"], path.parent)
    try:
        section["concepts"] = yaml.safe_load(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        raise MissingFile(f"There is no file {file}.", "Expected a YAML list of concepts.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadConfig(f"{file} is not valid YAML: {' '.join(str(error).split())}.") from None


def given(change: str) -> tuple[str, Any]:
    """`KEY=VALUE` of `--set` → key and value. Raises BadConfig for a malformed one."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise BadConfig(f"--set was given {change!r}.", "Expected KEY=VALUE, as in release.per_class=50.")
    try:
        return key, value_of(text)
    except (yaml.YAMLError, ValueError):
        return key, text


def apply(values: dict[str, Any], change: str) -> None:
    """One `--set KEY=VALUE` with a dotted key. Raises BadConfig for a malformed one."""
    key, value = given(change)
    *sections, last = key.split(".")
    here: Any = values
    for name in sections:
        if not isinstance(here.setdefault(name, {}), dict):
            raise BadConfig(f"--set {change!r}: {name!r} is no section.")
        here = here[name]
    here[last] = value


def _explain(path: Path, node: Any, error: ValidationError, changes: Sequence[str]) -> str:
    """Pydantic's findings as lines a person can act on."""
    lines = []
    for problem in error.errors():
        where = [p for p in problem["loc"] if p != "function-after"]
        key = ".".join(map(str, where))
        line = _line(node, where)
        by_set = any(change.split("=")[0] == key for change in changes)
        place = f"--set {key}" if by_set else f"{path}, line {line}, {key}" if line else f"{path}, {key}"
        if problem["type"] == "extra_forbidden":
            allowed = _allowed(where[:-1])
            near = difflib.get_close_matches(str(where[-1]), allowed, 1)
            lines.append(
                f"{place}: unknown key. Allowed: {', '.join(allowed)}."
                + (f" Did you mean {near[0]!r}?" if near else "")
            )
        elif problem["type"] == "missing":
            lines.append(f"{place}: missing. Expected a value.")
        else:
            given = problem.get("input")
            shown = "" if isinstance(given, Mapping) else f" (given: {given!r})"
            lines.append(f"{place}: {problem['msg']}{shown}.")
    return "\n".join(lines)


def _line(node: Any, where: Sequence[Any]) -> int | None:
    """Line (from 1) of the key at `where`, or of the nearest section that exists."""
    line = None
    for part in where:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _allowed(where: Sequence[Any]) -> list[str]:
    """Keys of the section at `where`."""
    model: Any = Config
    for part in where:
        if isinstance(part, int):
            continue
        names = {field.alias or name: name for name, field in model.model_fields.items()}
        annotation = model.model_fields[names[part]].annotation
        model = next((a for a in _models(annotation)), None)
        if model is None:
            return []
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in getattr(annotation, "__args__", ()) for m in _models(a)]


def resolve(path: str, base: Path) -> Path:
    """A path of the configuration: `~` expanded, relative to the configuration's folder if it is there, else to the
    working directory."""
    given = Path(os.path.expanduser(path))
    return given if given.is_absolute() or not (base / given).exists() else base / given
