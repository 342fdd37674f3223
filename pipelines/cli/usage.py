"""Wrong words on the command line, said as all other errors: what was given, what was expected, the way out."""

from typing import Any

from typer.exceptions import TyperException

from driftline.curate.core.errors import did_you_mean
from driftline.pipelines.cli.help import limits, value_word


def usage_text(error: TyperException) -> str:
    """One paragraph; for a group without a command its help."""
    ctx: Any = getattr(error, "ctx", None)
    name = getattr(error, "option_name", "")
    if type(error).__name__ == "NoArgsIsHelpError":
        return error.format_message()
    if ctx is None:
        has, expected = ("a", "none") if "not take" in error.message else ("no", "one after it")
        return f"driftline: {name} has {has} value. Expected {expected}." if name else f"driftline: {error.message}"
    command = ctx.command_path.partition(" ")[2]
    sentences = _sentences(error, command, ctx, name)
    return f"driftline: {' '.join(filter(None, sentences))} Help: {ctx.command_path} --help."


def _sentences(error: Any, command: str, ctx: Any, name: str) -> list[str]:
    """What was given, what was expected, and the nearest name. name: of an option, if the error is about one."""
    of_command, param = f" of {command}" if command else "", getattr(error, "param", None)
    if name:
        options = [opt for param in ctx.command.params for opt in param.opts]
        return [f"There is no option {name}{of_command}.", did_you_mean(name, options)]
    if param is None:
        word = error.message.partition("'")[2].partition("'")[0]
        if error.message.startswith("No such command"):
            return [f"There is no command {word!r}{of_command}.", did_you_mean(word, list(ctx.command.commands))]
        words = error.message.rpartition("(")[2].rpartition(")")[0]
        return [f"{command} got {words!r}, too.", "Expected quotes around a text with spaces."]
    shown = param.metavar or param.name.upper() if param.param_type_name == "argument" else param.opts[0]
    if type(error).__name__ == "MissingParameter":
        return [f"{shown} is missing.", _expected(param)]
    problems: list[Any] = getattr(error.__cause__, "errors", list)()
    typed = str(problems[0]["input"]) if problems else error.message
    choices = [str(choice) for choice in param.type_descriptor.choices or ()]
    return [f"{shown} is {typed!r}.", _expected(param), did_you_mean(typed, choices)]


def _expected(param: Any) -> str:
    """What a parameter takes, in a sentence."""
    if choices := param.type_descriptor.choices:
        return f"Expected one of {', '.join(map(str, choices))}."
    word = {"N": "a number", "TEXT": "a text", "PATH": "a path"}.get(value_word(param), value_word(param))
    if text := limits(param):
        return f"Expected a number, {text}."
    about = param.help.partition(". ")[0].rstrip(".")
    return f"Expected {word}: {about}."
