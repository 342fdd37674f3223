"""The run file: its sections, each declared beside the code that uses it; reading it, checked before any work; and what
is wrong in it, as lines that name line, key, and what is expected."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, SerializeAsAny, ValidationError
from pydantic_core import ErrorDetails

from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.errors import BadConfig, DriftlineError, MissingFile, available, did_you_mean, reason
from driftline.curate.core.settings import Section, expected, keys_of, resolve_path, value_of
from driftline.curate.encoders import EmbedSettings
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.metadata.settings import FilterSettings
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.retrieval.settings import RetrieveSettings
from driftline.curate.sources import SOURCES
from driftline.curate.sources.base import Source, source_of
from driftline.curate.store import StoreSettings
from driftline.curate.validation.settings import ValidationSettings

Where = Sequence[int | str]
Node = yaml.Node | None


class Config(Section):
    """One run."""

    seed: int = 0
    """random seed"""

    collection: Annotated[SerializeAsAny[Source], BeforeValidator(source_of)]
    filter: FilterSettings = FilterSettings()
    fetch: FetchSettings = FetchSettings()
    buckets: BucketSettings = BucketSettings()
    embed: EmbedSettings
    retrieve: RetrieveSettings
    validation: ValidationSettings = ValidationSettings()
    release: ReleaseSettings = ReleaseSettings()
    store: StoreSettings = StoreSettings()

    def identity(self, stage: str) -> dict[str, Any]:
        """The settings of all sections that the fingerprint of `stage` holds, as plain data."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields if name != "store")
        return {name: value.identity(stage) if isinstance(value, Section) else value for name, value in values}


def load(path: Path, changes: Sequence[str] = ()) -> Config:
    """Read and check a run file; `changes` are `KEY=VALUE` with dotted keys (`--set`).

    Raises BadConfig naming file, line, key, what was given and what is expected.
    """
    if not path.is_file():
        way_out = f"Make one: driftline init {path.parent}"
        raise MissingFile(f"There is no configuration {path}.", "", way_out)
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        reader = yaml.SafeLoader(text)
        node = reader.get_single_node()
        values = None if node is None else reader.construct_document(node)
    except yaml.YAMLError as error:
        raise BadConfig(
            f"{path} is not valid YAML: {' '.join(str(error).split())}.", "", "Correct the line named."
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadConfig(f"{path} has a value that cannot be read: {reason(error)}.") from None
    if not isinstance(values, dict):
        raise BadConfig(
            f"{path} holds {'nothing' if values is None else type(values).__name__}.",
            "Expected sections such as collection and embed.",
        )
    return check(values, str(path), changes, node, path.parent)


def check(
    values: dict[str, Any], name: str, changes: Sequence[str] = (), node: yaml.Node | None = None, folder: Path = Path()
) -> Config:
    """Apply `changes` to the values of a run file, and check them. Raises BadConfig.

    values: changed in place. name: of the file or preset, for messages. node: the file's YAML node, for line numbers.
    folder: where other files are that the values name.
    """
    before = dict(values["collection"]) if isinstance(values.get("collection"), dict) else {}
    changed = [setting_of(change)[0] for change in changes]
    for change in changes:
        apply(values, change)
    _drop_other_sources(values, before, changed)
    _include_concepts(values, folder)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems = error.errors()
        # an error within a list also makes the list too short: the error within says more
        inner = [p for p in problems if not any(p["loc"] == q["loc"][: len(p["loc"])] for q in problems if q is not p)]
        lines = (explain(problem, values, name, node, changed) for problem in inner or problems)
        raise BadConfig("\n".join(dict.fromkeys(lines))) from None


def _drop_other_sources(values: dict[str, Any], before: Mapping[str, Any], changed: Sequence[str]) -> None:
    """If `changed` names another source than the file, drop the keys of the file that only its own source has."""
    section = values.get("collection")
    if not isinstance(section, dict) or section.get("source") == before.get("source", section.get("source")):
        return
    try:
        keys = keys_of(SOURCES.resolve(str(section["source"])))
    except DriftlineError:  # the check of the section names it
        return
    for key in before:
        if key not in keys and not any(f"{change}.".startswith(f"collection.{key}.") for change in changed):
            section.pop(key, None)


def _include_concepts(values: dict[str, Any], folder: Path) -> None:
    """If `retrieve.concepts` is the name of a file, replace it by the file's list."""
    section = values.get("retrieve")
    if not isinstance(section, dict) or not isinstance(section.get("concepts"), str):
        return
    file = resolve_path(section["concepts"], folder)
    try:
        section["concepts"] = yaml.safe_load(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        raise MissingFile(f"There is no file {file}.", "Expected a YAML list of concepts.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfig(f"{file} is not valid YAML: {' '.join(str(error).split())}.") from None


def setting_of(change: str) -> tuple[str, Any]:
    """`KEY=VALUE` of `--set` → key and value. Raises BadConfig for a malformed one."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise BadConfig(f"--set was given {change!r}.", "Expected KEY=VALUE, as in release.per_class=50.")
    return key, value_of(text)


def apply(values: dict[str, Any], change: str) -> None:
    """One `--set KEY=VALUE` with a dotted key. Raises BadConfig for a malformed one."""
    key, value = setting_of(change)
    *sections, last = key.split(".")
    section: Any = values
    for name in sections:
        if not isinstance(section.setdefault(name, {}), dict):
            raise BadConfig(f"--set {key}: {name!r} is not a section.", "Expected a key such as release.per_class.")
        section = section[name]
    section[last] = value


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
