"""The help of commands: Typer's own, with panels of options and commands, and an example that is not wrapped."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from typer.core import TyperCommand, TyperGroup

Panel = Literal["Start", "Build", "Label", "Keep", "Release", "Stream", "Evaluate", "Share"]  # in this order
OF_OPTIONS = ("Arguments", "Input", "Sampling", "Paper", "Output", "Options")  # panels, in this order
EXAMPLE = "Example: "


def _write(formatter: Any, panels: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for name, rows in panels.items():
        if rows:
            with formatter.section(name):
                formatter.write_dl(rows)


class _Panels:
    """What a command and a group share."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """Arguments as their help names them."""
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        words = [param.metavar if param.required else f"[{param.metavar}]" for param in arguments]
        return [*words, *(["COMMAND"] if isinstance(self, TyperGroup) else []), "[OPTIONS]"]

    def format_help_text(self: Any, ctx: Any, formatter: Any) -> None:
        """The paragraphs of the help; a line of \\b keeps Typer from wrapping the one after it."""
        for paragraph in self.help.split("\n\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"\b\n{paragraph}" if paragraph.startswith(EXAMPLE) else paragraph)

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Arguments and options, by panel."""
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in OF_OPTIONS}
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                panels["Arguments"].append((param.metavar, param.help))
            elif row := param.get_help_record(ctx):
                panels[getattr(param, "rich_help_panel", None) or "Options"].append(row)
        _write(formatter, panels)


class PlainCommand(_Panels, TyperCommand):
    """A command with such a help."""


class PlainGroup(_Panels, TyperGroup):
    """A group of commands with such a help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Also the commands, by panel; each with its whole summary."""
        super().format_options(ctx, formatter)
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in get_args(Panel)}
        for name, command in self.commands.items():
            summary = (command.short_help or command.help or "").partition("\n\n")[0]
            panels.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append((name, summary))
        _write(formatter, panels)
