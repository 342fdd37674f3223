"""Presets: one YAML file each with what differs from the defaults. `driftline init` writes every setting, commented."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from driftline.curate.core.atomic_io import write_text
from driftline.curate.core.errors import BadConfig, UnknownName, available, did_you_mean
from driftline.curate.core.registry import first_sentence
from driftline.curate.core.settings import Section, key_of
from driftline.pipelines.config.loader import Config, check


def names() -> list[str]:
    """All presets."""
    folder = files("driftline.pipelines.config.presets")
    return sorted(p.name.removesuffix(".yaml") for p in folder.iterdir() if p.name.endswith(".yaml"))


def summary(name: str) -> str:
    """The preset's first comment line."""
    return _text(name).partition("\n")[0].lstrip("# ")


def values(name: str) -> dict[str, Any]:
    """A preset as plain data. Raises UnknownName."""
    settings: dict[str, Any] = yaml.safe_load(_text(name))
    return settings


def _text(name: str) -> str:
    if name not in names():
        raise UnknownName(f"Unknown preset {name!r}.", did_you_mean(name, names()), available(name, names()))
    return files("driftline.pipelines.config.presets").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def write_run_file(folder: Path, preset: str, changes: Sequence[str] = (), force: bool = False) -> Path:
    """Write `folder`/driftline.yaml, every setting with a comment; returns its path.

    changes: `KEY=VALUE` of `--set`. force: replace an existing file. Raises UnknownName for a preset, BadConfig for a
    bad key or value and for an existing file; then nothing is written.
    """
    path = folder / "driftline.yaml"
    if path.exists() and not force:
        raise BadConfig(f"{path} already exists.", "", "Edit it, or replace it with --force (force=True).")
    settings = values(preset)
    check(settings, f"preset {preset}", changes, folder=folder)
    write_text(path, full_text(settings, f"preset {preset}: {summary(preset)}"))
    return path


def full_text(settings: dict[str, Any], head: str) -> str:
    """The run file of `given`: every setting with its comment, of the collection those of its source."""
    config = Config.model_validate(settings)
    lines = [f"# {head}", "# Change any of it: driftline checks this file and names line and key of an error.", ""]
    for name, field in Config.model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Section):
            comment = first_sentence(type(value).__doc__)
            lines += [f"# {comment}", f"{name}:", *_section(value), ""]
        else:
            lines += [f"{name}: {_yaml(value)}  # {field.description}", ""]
    return "\n".join(lines)


def _section(section: Section) -> list[str]:
    values = section.model_dump(mode="json")
    lines: list[str] = []
    for name, field in type(section).model_fields.items():
        key, comment = key_of(name, field), " ".join((field.description or "").split())
        entries = getattr(section, name)
        if isinstance(entries, tuple) and entries and isinstance(entries[0], Section):
            lines.append(f"  {key}:  # {comment}")
            lines += [f"    - {_yaml(entry.model_dump(mode='json', exclude_defaults=True))}" for entry in entries]
        else:
            lines.append(f"  {key}: {_yaml(values[name])}  # {comment}")
    return lines


def _yaml(value: Any) -> str:
    """A value as one line of YAML (JSON is YAML)."""
    return json.dumps(value, ensure_ascii=False)
