"""Presets: what differs from the defaults, in one YAML file each. `driftline init` writes every setting, commented."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel

from curate.core.errors import UnknownName
from pipelines.config.schema import Config


def names() -> list[str]:
    """All presets."""
    return sorted(
        p.name.removesuffix(".yaml") for p in files("pipelines.config.presets").iterdir() if p.name.endswith(".yaml")
    )


def summary(name: str) -> str:
    """The preset's first comment line."""
    return _text(name).partition("\n")[0].lstrip("# ")


def values(name: str) -> dict[str, Any]:
    """A preset as plain data. Raises UnknownName."""
    found: dict[str, Any] = yaml.safe_load(_text(name))
    return found


def _text(name: str) -> str:
    if name not in names():
        raise UnknownName(f"There is no preset {name!r}.", f"Known: {', '.join(names())}.")
    return files("pipelines.config.presets").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def full_text(given: dict[str, Any], head: str) -> str:
    """Every setting of `given` and every default, each with its comment."""
    config = Config.model_validate(given)
    lines = [
        f"# {head}",
        "# Change any of it: driftline checks this file and names line and key of what is wrong.",
        "",
    ]
    for name, field in Config.model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            lines += [f"# {(type(value).__doc__ or '').strip()}", f"{name}:"]
            lines += _section(value, 1)
            lines.append("")
        else:
            lines += [f"{name}: {_plain(value)}  # {field.description}", ""]
    return "\n".join(lines)


def _section(section: BaseModel, depth: int) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, list) and value and isinstance(value[0], BaseModel):
            lines.append(f"{pad}{name}:  # {field.description}")
            for item in value:
                entry = item.model_dump(exclude_defaults=True)
                lines.append(f"{pad}  - {_plain(entry)}")
        else:
            shown = section.model_dump(mode="json")[name]
            lines.append(f"{pad}{field.alias or name}: {_plain(shown)}  # {field.description}")
    return lines


def _plain(value: Any) -> str:
    """A value as one line of YAML (JSON is YAML)."""
    return json.dumps(value, ensure_ascii=False)
