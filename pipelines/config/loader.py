"""Reading a run file: one YAML file, checked before any work; messages name line, key, and what is expected."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from driftline.curate.core.errors import BadConfig, DriftlineError, MissingFile, reason
from driftline.curate.core.settings import keys_of, resolve_path, value_of
from driftline.curate.sources import SOURCES
from driftline.pipelines.config.explain import explain
from driftline.pipelines.config.schema import Config


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
    for change in changes:
        apply(values, change)
    _drop_other_sources(values, before, [setting_of(change)[0] for change in changes])
    _include_concepts(values, folder)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        changed = [setting_of(change)[0] for change in changes]
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
