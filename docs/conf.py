"""The manual as HTML: `make docs`. Pages are the Markdown files here; the reference is written from the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
from pathlib import Path
from typing import Any

project, author = "driftline", "the driftline engineers"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "driftline"
exclude_patterns = ["_build", "usda/judgement.md", "prompts"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.xref_missing",
    "misc.highlighting_failure",
]  # links to files of the repository, checked by tests
HERE = Path(__file__).parent
PACKAGES = ("curate", "stream_builder", "eval", "pipelines")


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("builder-inited", lambda _: reference(HERE / "reference"))


def reference(out: Path) -> None:
    """Write a page for each package and one for the commands."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "commands.md").write_text(commands(), encoding="utf-8")
    for package in PACKAGES:
        (out / f"{package}.md").write_text(package_page(package), encoding="utf-8")
    names = "\n".join(["commands", *PACKAGES])
    told = "What stands in the code, as it stands there: commands by their `--help`, functions by their docstrings."
    (out / "index.md").write_text(f"# Reference\n\n{told}\n\n```{{toctree}}\n{names}\n```\n", encoding="utf-8")


def commands() -> str:
    """`--help` of every command."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from pipelines.cli.app import app

    def walk(command: Any, path: list[str]) -> list[list[str]]:
        inner = getattr(command, "commands", {})
        return [path] if not inner else [p for name, sub in inner.items() for p in walk(sub, [*path, name])]

    parts = ["# Commands\n"]
    for path in walk(get_command(app), []):
        told = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
        parts.append(f"## driftline {' '.join(path)}\n\n```text\n{told.rstrip()}\n```\n")
    return "\n".join(parts)


def package_page(package: str) -> str:
    """Public functions and classes of a package, module by module."""
    found = importlib.import_module(package)
    modules = (m.name for m in pkgutil.walk_packages(found.__path__, f"{package}."))
    names = [package, *(name for name in modules if not name.endswith(("._kernel", "__main__")))]
    parts = [f"# {package}\n"]
    for name in sorted(names):
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{prose(module.__doc__)}\n")
        for key, one in vars(module).items():
            own = getattr(one, "__module__", "") == name and not key.startswith("_")
            if own and (inspect.isfunction(one) or inspect.isclass(one)):
                parts.append(f"### {key}\n\n```python\n{signature(key, one)}\n```\n\n{prose(one.__doc__)}\n")
    return "\n".join(parts)


def signature(name: str, one: Any) -> str:
    """As one would call it."""
    try:
        told = str(inspect.signature(one))
    except (TypeError, ValueError):
        told = "(…)"
    told = re.sub(r" at 0x[0-9a-f]+", "", told)
    return f"{'class ' if inspect.isclass(one) else ''}{name}{told}"


def prose(text: str | None) -> str:
    """A docstring as Markdown: doctests fenced, the rest as it is."""
    paragraphs = []
    for part in inspect.cleandoc(text or "").split("\n\n"):
        code = part.lstrip().startswith((">>>", "    ")) or part.startswith(" ")
        if code or any(re.match(r"\s*>>> |\S+ {3,}\S|    ", line) for line in part.splitlines()):
            paragraphs.append(f"```text\n{part}\n```")
        else:
            paragraphs.append(re.sub(r"([<*_\[\]$])", r"\\\1", part) if "`" not in part else _spared(part))
    return "\n\n".join(paragraphs)


def _spared(part: str) -> str:
    """Escape what Markdown would read, outside of code."""
    pieces = re.split(r"(`+[^`]*`+)", part)
    return "".join(p if p.startswith("`") else re.sub(r"([<*_\[\]$])", r"\\\1", p) for p in pieces)
