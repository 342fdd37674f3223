"""The manual as HTML: `make docs`. Pages are Markdown files; commands, settings and Python names come from the code."""

from __future__ import annotations

import gc
import shutil
from importlib import import_module
from inspect import isclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from driftline.curate.core.registry import Registry

project, author = "driftline", "the driftline engineers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "driftline"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
default_role = "code"  # docstrings name things in single backticks
autodoc_class_signature = "separated"  # fields are listed one by one below the class
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository, which tests/test_docs.py checks
FACES = ("driftline", "driftline.ext")
PARTS = tuple(
    f"driftline.{name}"
    for name in (
        "curate.core.registry:Registry", "curate.encoders:Encoder", "curate.sources.base:Source",
        "curate.export:Exporter", "stream_builder.datasets:Dataset", "stream_builder.datasets:Samples",
        "stream_builder.shifts.base:Shift", "stream_builder.export:Exporter", "eval.protocol:Protocol",
        "eval.protocol:Score", "eval.protocol:Result", "eval.rows:Row", "eval.nets.chain:Blocks",
        "pipelines.run.stage:Stage", "pipelines.run.stage:Counts", "curate.sources:SOURCES", "curate.encoders:ENCODERS",
        "curate.export:EXPORTS", "eval.learners:LEARNERS", "eval.protocol:PROTOCOLS",
    )
)  # fmt: skip


def setup(app: Any) -> None:
    """Sphinx calls this."""
    gc.set_threshold(200_000, 20, 20)  # millions of nodes are made, and nearly all stay: a fifth of the time
    app.connect("builder-inited", lambda _: write_reference(Path(__file__).parent / "reference"))


def write_reference(out: Path) -> None:
    """Write the pages that come from the code."""
    from driftline.pipelines.config.reference import reference

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for name, text in (("commands", commands()), ("configuration", reference()), ("python", python())):
        (out / f"{name}.md").write_text(text, encoding="utf-8")


def commands() -> str:
    """`--help` of every command."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from driftline.pipelines.cli.app import app, called

    def paths(command: Any, path: list[str]) -> list[list[str]]:
        inner = getattr(command, "commands", {})
        return [path] if not inner else [p for name, sub in inner.items() for p in paths(sub, [*path, name])]

    parts = ["# Commands\n"]
    for path in paths(get_command(app), []):
        text = CliRunner().invoke(called(path), [*path, "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
        parts.append(f"## driftline {' '.join(path)}\n\n```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def python() -> str:
    """The public names of every package, by their docstrings, and what the parts of other people derive from."""
    faces = [
        (face.__name__, face.__doc__, [getattr(face, name) for name in face.__all__])
        for face in map(import_module, FACES)
    ]
    sections = [*faces, ("Your own parts", "See the guide Extend.", [resolve_name(name) for name in PARTS])]
    parts, seen = ["# Python\n"], []
    for title, text, things in sections:
        ours = [thing for thing in things if str(getattr(thing, "__module__", "")).startswith("driftline.")]
        new = [thing for thing in ours if callable(thing) and thing not in seen]
        parts += [f"## {title}\n\n{text}\n", *map(documented, new)]
        parts += [listed(thing) for thing in things if isinstance(thing, Registry)]
        seen += new
    return "\n".join(parts)


def documented(thing: Any) -> str:
    """A directive of sphinx.ext.autodoc."""
    kind, members = ("autoclass", "\n   :members:") if isclass(thing) else ("autofunction", "")
    name = f"{thing.__module__}.{thing.__qualname__}"
    return f"### {thing.__name__}\n\n```{{eval-rst}}\n.. {kind}:: {name}{members}\n```\n"


def listed(registry: Registry) -> str:
    """A table of what is registered, and the settings of learners and protocols."""
    rows = [f"| `{name}` | {registry.summary(name)} |" for name in registry]
    parts = [f"| {registry.kind} | |", "|---|---|", *rows, ""]
    if registry.kind in ("learner", "protocol"):
        parts += [settings(name, registry[name]) for name in registry if not registry.problem(name)]
    return "\n".join(parts)


def settings(name: str, kind: Any) -> str:
    """A table of the settings of a learner or protocol: as on its page in a report."""
    from driftline.eval.experiment.settings import described

    rows = [f"| `{s.name}` | {s.default} | {s.meaning} |".replace("*", r"\*") for s in described(kind)]
    table = ["| setting | default | meaning |", "|---|---|---|", *rows] if rows else ["No settings."]
    return "\n".join([f"### {name}", "", *table, ""])
