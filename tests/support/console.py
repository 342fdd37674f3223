"""The `driftline` command, or a script, in a process of its own, forked from one that has its imports: three seconds
less a call."""

import atexit
import inspect
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
import typer.main
from support.forks import Running

from driftline.pipelines import cli
from driftline.pipelines.actions.makers import add_imports


def answer(*words: str) -> Any:
    """The JSON that a command prints. Raises CalledProcessError where it fails."""
    done = driftline(*words)
    done.check_returncode()
    return json.loads(done.stdout)


def driftline(*words: str, here: Path | None = None) -> CompletedProcess[str]:
    """Exit code, and what it wrote to stdout and stderr."""
    return _done(_called, words, here or Path.cwd())


def python(code: str, here: Path) -> CompletedProcess[str]:
    """The same of `python -c CODE`."""
    return _done(_executed, (code,), here)


def _done(target: Any, words: tuple[str, ...], here: Path) -> CompletedProcess[str]:
    with TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        code = _started(target, words, here, said).wait()
        return CompletedProcess(words, code, *(one.read_text(encoding="utf-8") for one in said))


def inside(*words: object) -> CompletedProcess[str]:
    """The same in this process, with what the test has replaced in it; a server ends as soon as it runs."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["driftline", *map(str, words)])
        patch.setenv("PYTHONSAFEPATH", "1")  # as the command sets it, but taken back
        patch.setattr("uvicorn.Server.run", lambda *given: None)
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return CompletedProcess(words, code, out.getvalue(), err.getvalue())


def document(*words: object) -> Any:
    """The JSON that a command prints in this process, which must not fail."""
    done = inside(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def handed(place: str, *words: object) -> dict[str, Any]:
    """What a command gives to the function at `package.module.name`, by parameter; the function does not run."""
    module, _, name = place.rpartition(".")
    function, found = getattr(import_module(module), name), dict[str, Any]()

    def stop(*values: object, **named: object) -> None:
        found.update(inspect.signature(function).bind(*values, **named).arguments)
        raise SystemExit(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, stop)
        done = inside(*words)
    assert found, done.stderr
    return found


def command_tree(groups: bool = False) -> dict[str, Any]:
    """Words → command of the whole command line, also those of importers; with groups, and "" for the application."""

    def walk(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", {})
        if groups or not inner:
            yield words, command
        for name, one in inner.items():
            yield from walk(one, f"{words} {name}".strip())

    add_imports([])
    return dict(walk(typer.main.get_command(cli.app), ""))


def start(*words: object, said: Path | None = None) -> Running:
    """A command that goes on while the test does something else, in a session (and process group) of its own; `said`
    gets its stdout and stderr."""
    running = _started(_called, tuple(map(str, words)), Path.cwd(), [said or Path(os.devnull)] * 2)
    atexit.register(running.kill)  # a test that fails leaves no server behind
    return running


def start_python(*words: object) -> Running:
    """The same of `python -c CODE WORD…`."""
    return _started(_executed, tuple(map(str, words)), Path.cwd(), [Path(os.devnull)] * 2)


def _started(target: Any, words: tuple[str, ...], here: Path, said: list[Path]) -> Running:
    return Running(target, words, here, said, dict(os.environ), list(sys.path))


def _called(words: tuple[str, ...], *place: Any) -> None:
    _prepare(*place)
    sys.argv = ["driftline", *words]
    from driftline.pipelines.cli import main

    main()


def _executed(words: tuple[str, ...], *place: Any) -> None:
    _prepare(*place)
    sys.argv = ["-c", *words[1:]]
    sys.path.insert(0, "")
    script = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(words[0], "<string>", "exec", dont_inherit=True), script.__dict__)


def _prepare(here: Path, said: list[Path], environment: Mapping[str, str], path: list[str]) -> None:
    """The place, environment and packages of the worker that asks: another one may have started the server."""
    for number, file in enumerate(said, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    os.fsync = lambda file: None  # no test cuts the power, and each call waits for the disk
    os.chdir(here)
