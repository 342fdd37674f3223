"""The manual as HTML: `make docs`. Pages are Markdown files; eight come from code and records."""

import gc
import re
import runpy
import tomllib
from importlib import import_module
from importlib.resources import files
from inspect import isclass
from pathlib import Path
from typing import Any

from docutils import nodes

import driftline

project, author = "driftline", "the driftline engineers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "driftline"
html_show_copyright = False
exclude_patterns = ["_build"]
myst_heading_anchors = 3
default_role = "code"  # docstrings name things in single backticks
autodoc_class_signature = "separated"  # fields are listed one by one below the class
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository, which tests/test_docs.py checks
ROOT = Path(driftline.__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
MANUAL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Documentation"]
PUBLISHED = re.compile(rf"{re.escape(MANUAL)}/en/latest/(reference/\w+)\.html")  # pages that a repository does not show
FACES = ("driftline", "driftline.ext")


def setup(app: Any) -> None:
    """Sphinx calls this."""
    gc.set_threshold(200_000, 20, 20)  # millions of nodes are made, and nearly all stay: a fifth of the time
    app.connect("builder-inited", lambda _: write_reference(Path(__file__).parent / "reference"))
    app.connect("source-read", lambda _, name, source: source.append(PUBLISHED.sub(r"/\1.md", source.pop())))
    app.connect("doctree-resolved", lambda _, page, name: unlink(page))


def unlink(page: Any) -> None:
    """A link to a file of the repository that the manual does not contain becomes text."""
    for link in [node for node in page.findall(nodes.reference) if str(node.get("refid", "")).endswith(".md")]:
        link.replace_self(link.children)


def write_reference(out: Path) -> None:
    """Write the pages that come from the code: those that `.gitignore` lists."""
    history = runpy.run_path(str(BENCHMARKS / "history.py"))
    board = (files("driftline.eval.leaderboard.baselines") / "leaderboard.md").read_text(encoding="utf-8")
    pages = {"commands": commands(), "python": python()}
    files_of = {"learners": "learner_page", "parts": "parts_page", "reasons": "reasons_page"}
    for name, file in (files_of | {"configuration": "run_file"}).items():
        pages[name] = runpy.run_path(str(Path(__file__).with_name(f"{file}.py")))["page"]()
    pages["ratios"] = history["page"](BENCHMARKS)
    for name, text in (pages | {"leaderboard": board}).items():
        (out / f"{name}.md").write_text(text, encoding="utf-8")


def commands() -> str:
    """`--help` of every command."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from driftline.pipelines.actions.makers import add_imports
    from driftline.pipelines.cli import app, called

    add_imports([])

    def paths(command: Any, path: list[str]) -> list[list[str]]:
        inner = getattr(command, "commands", {})
        return [path] if not inner else [p for name, sub in inner.items() for p in paths(sub, [*path, name])]

    parts = ["# Commands\n"]
    for path in [[], *paths(get_command(app), [])]:
        text = CliRunner().invoke(called(path), [*path, "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
        parts.append(f"## {' '.join(['driftline', *path])}\n\n```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def python() -> str:
    """The public names of `driftline` and `driftline.ext`, by their docstrings."""
    parts, seen = ["# Python\n"], []
    for face in map(import_module, FACES):
        ours = {name: thing for name in face.__all__ if is_ours(thing := getattr(face, name)) and thing not in seen}
        parts += [f"## {face.__name__}\n\n{face.__doc__}\n"]
        parts += [documented(f"{face.__name__}.{name}", thing) for name, thing in ours.items()]
        seen += ours.values()
    return "\n".join(parts)


def is_ours(thing: Any) -> bool:
    """Whether it is a class or function of driftline, no alias of a type."""
    return callable(thing) and str(getattr(thing, "__module__", "")).startswith("driftline.")


def documented(name: str, thing: Any) -> str:
    """A directive of sphinx.ext.autodoc."""
    kind, members = ("autoclass", "\n   :members:") if isclass(thing) else ("autofunction", "")
    return f"### {thing.__name__}\n\n```{{eval-rst}}\n.. {kind}:: {name}{members}\n```\n"
