"""How the help of commands is written: 80 columns, panels, words for types, an example that is not wrapped."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

from typer.core import TyperCommand, TyperGroup

Panel = Literal["Start", "Build", "Label", "Keep", "Release", "Stream", "Evaluate", "Share"]  # in this order
FIRST = ("Input", "Draws", "Paper")  # panels of options
WIDTH = 80  # columns of every help, whatever the terminal
TERM = 26  # columns of a term at most; a longer one has a line of its own
EXAMPLE = "Example: "
WORDS = {int: "N", float: "N", Path: "PATH", str: "TEXT"}  # of values whose option has no metavar


def filled(text: str, indent: int, first: str = "") -> str:
    """One paragraph; no name or value is broken at its hyphens. first: begin of the first line, instead of spaces."""
    lines = textwrap.wrap(" ".join(text.split()), WIDTH - indent, break_on_hyphens=False, break_long_words=False)
    text = textwrap.indent("\n".join(lines), " " * indent)
    return first.ljust(indent) + text[indent:] if first else text


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Terms with their meanings beside them."""
    pairs = list(rows)
    indent = 4 + max(len(term) for term, _ in pairs if len(term) <= TERM or len(pairs) == 1)
    lines = []
    for term, text in pairs:
        if len(term) + 4 > indent:
            lines += [f"  {term}", filled(text, indent)]
        else:
            lines.append(filled(text, indent, f"  {term}"))
    return "\n".join(lines)


def value_word(param: Any) -> str:
    """What a value looks like: its metavar, its choices, or a word for its type."""
    kind = param.type_descriptor
    if param.metavar:
        return str(param.metavar)
    if kind.choices is not None:
        return "|".join(map(str, kind.choices))
    inner = [one for one in get_args(kind.annotation) if one is not type(None)]
    return next((word for one in (kind.annotation, *inner) if (word := WORDS.get(one))), "TEXT")


def limits(param: Any) -> str:
    """The range of a number, in words; "" for any."""
    low, high = (f"{value:,}" if value is not None else None for value in (param.min, param.max))
    if low is None or high is None:
        return f"at least {low}" if low else f"at most {high}" if high else ""
    return f"{low} to {high}"


def _row(param: Any) -> tuple[str, str]:
    """An argument or option, and what it means."""
    term = param.metavar or param.name.upper()
    if param.param_type_name == "option":
        names = " / ".join(", ".join(sorted(opts, key=len)) for opts in (param.opts, param.secondary_opts) if opts)
        term = names if param.is_flag else f"{names} {value_word(param)}"
    default = param.default if param.show_default and not callable(param.default) else None
    if isinstance(default, bool):
        default = param.opts[0] if default and param.secondary_opts else None
    facts = [f"default: {default}"] if default not in (None, "", ()) and "default:" not in param.help else []
    facts += [limits(param)] if limits(param) else []
    facts += ["required"] if param.required and param.param_type_name == "option" else []
    return term, param.help + (f" [{'; '.join(facts)}]" if facts else "")


def _place_of_panel(param: Any) -> int:
    """The panels of FIRST, then others, then what is written, then the options without a panel."""
    places: dict[str | None, int] = {name: i for i, name in enumerate(FIRST)}
    places |= {"Output": len(FIRST) + 1, None: len(FIRST) + 2}
    return places.get(param.rich_help_panel, len(FIRST))


class _Plain:
    """What a command and a group share."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """All of it."""
        shown = [param for param in self.get_params(ctx) if not getattr(param, "hidden", False)]
        arguments = [param for param in shown if param.param_type_name == "argument"]
        words = [param.metavar if param.required else f"[{param.metavar}]" for param in arguments]
        words += ["COMMAND"] if isinstance(self, TyperGroup) else []
        parts = [filled(" ".join([ctx.command_path, *words, "[OPTIONS]"]), 7, "Usage: ")]
        for paragraph in (self.help or "").split("\n\n"):
            raw = paragraph.startswith(EXAMPLE)
            parts.append(textwrap.indent(paragraph, "  ") if raw else filled(paragraph, 2))
        panels: dict[str, list[Any]] = {"Arguments": arguments}
        options = [param for param in shown if param.param_type_name == "option"]
        for param in sorted(options, key=_place_of_panel):
            panels.setdefault(param.rich_help_panel or "Options", []).append(param)
        parts += [f"{name}:\n{table(map(_row, params))}" for name, params in panels.items() if params]
        commands: dict[str, Any] = getattr(self, "commands", {})
        width = max(map(len, commands), default=0)
        members: dict[str, list[tuple[str, str]]] = {panel: [] for panel in get_args(Panel)}
        for name, command in commands.items():
            summary = (command.short_help or command.help).partition("\n\n")[0]
            members.setdefault(command.rich_help_panel or "Commands", []).append((f"{name:<{width}}", summary))
        parts += [f"{name}:\n{table(rows)}" for name, rows in members.items() if rows]
        formatter.write("\n\n".join(parts) + "\n")


class PlainCommand(_Plain, TyperCommand):
    """A command with such a help."""


class PlainGroup(_Plain, TyperGroup):
    """A group of commands with such a help."""
