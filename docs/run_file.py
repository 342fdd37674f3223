"""The reference of the run file, made from the settings themselves: `docs/conf.py` writes it into the manual."""

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from driftline.curate.core.settings import Section, expected, keys_of
from driftline.curate.sources import SOURCES
from driftline.curate.sources.base import Source
from driftline.pipelines.config.loader import Config

HEAD = """# The run file

Every setting of `driftline.yaml`, by section, with what it accepts and its default. `driftline init` writes the file,
`--set SECTION.KEY=VALUE` overrides one setting of it.
"""


SOURCE = Source.model_fields["source"]


def page() -> str:
    """Markdown: a table for each section and each source, and for each kind of entry in them."""
    parts = [HEAD, _table({key: field for key, field in keys_of(Config).items() if not _sections_in(field.annotation)})]
    for key, field in keys_of(Config).items():
        if field.annotation is Source:
            parts.append(f"## {key}\n\nThe keys depend on `source`: {inspect.cleandoc(SOURCE.description or '')}.\n")
            usable = {name: SOURCES[name] for name in SOURCES if not SOURCES.problem(name)}
            parts += [_section(f"### source: {name}", section) for name, section in usable.items()]
            parts += [f"### source: {name}\n\n{SOURCES.problem(name)}\n" for name in SOURCES if name not in usable]
            parts += _entries(usable.values())
        elif _sections_in(field.annotation):
            parts += [_section(f"## {key}", field.annotation), *_entries([field.annotation])]
    return "\n".join(parts)


def _entries(sections: Iterable[Any]) -> list[str]:
    """The sections within some sections, each once."""
    inner = {key: one for s in sections for key, f in keys_of(s).items() for one in _sections_in(f.annotation)}
    return [_section(f"### {key}", section) for key, section in inner.items()]


def _section(title: str, section: Any) -> str:
    fields = {key: field for key, field in keys_of(section).items() if key != "source"}
    return f"{title}\n\n{inspect.cleandoc(section.__doc__ or '')}\n\n{_table(fields)}"


def _table(fields: Mapping[str, FieldInfo]) -> str:
    rows = ["| key | accepts | default | meaning |", "|---|---|---|---|"]
    for key, field in fields.items():
        accepts, default = expected(field.annotation, field.metadata), "required"
        if _sections_in(field.annotation):
            accepts = f"the keys of [{key}](#{key})"
        if not field.is_required():
            value = field.get_default(call_default_factory=True)
            default = "" if isinstance(value, Section) else f"`{json.dumps(value, ensure_ascii=False)}`"
        cells = [f"`{key}`", accepts, default, " ".join((field.description or "").split())]
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _sections_in(annotation: Any) -> list[Any]:
    """The section that a type is, or those within it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for inner in get_args(annotation) for section in _sections_in(inner)]
