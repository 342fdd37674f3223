"""The `driftline` command, or a script, in a process of its own, forked from one that has its imports: three seconds
less a call."""

from __future__ import annotations

import atexit
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

NEEDED = [
    "torch",
    "open_clip",
    "duckdb",
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
    "pipelines.cli.app",
    "pipelines.runner",
    "pipelines.config.loader",
    "stream_builder.builders.shift_sequence",
    "eval.run",
    "eval.reporting.report",
    "eval.protocols.seq_to_final.protocol",
]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(NEEDED)


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


def start(*words: object, said: Path | None = None) -> Running:
    """A command that goes on while the test does something else, in a session (and process group) of its own; `said`
    gets its stdout and stderr."""
    running = _started(_called, tuple(map(str, words)), Path.cwd(), [said or Path(os.devnull)] * 2)
    atexit.register(running.kill)  # a test that fails leaves no server behind
    return running


class Running:
    """The part of `subprocess.Popen` that tests need."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.pid: int = process.pid

    def poll(self) -> int | None:
        """Exit code, minus the signal that ended it; None while it runs."""
        code: int | None = self.process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Exit code. Raises subprocess.TimeoutExpired."""
        self.process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("driftline", timeout or 0)
        return code

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _started(target: Any, words: tuple[str, ...], here: Path, said: list[Path]) -> Running:
    child = FORKS.Process(target=target, args=(words, here, said, dict(os.environ)))
    child.start()
    return Running(child)


def _called(words: tuple[str, ...], here: Path, said: list[Path], environment: Mapping[str, str]) -> None:
    _prepare(here, said, environment)
    sys.argv = ["driftline", *words]
    from pipelines.cli.app import main

    main()


def _executed(words: tuple[str, ...], here: Path, said: list[Path], environment: Mapping[str, str]) -> None:
    _prepare(here, said, environment)
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    script = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(words[0], "<string>", "exec", dont_inherit=True), script.__dict__)


def _prepare(here: Path, said: list[Path], environment: Mapping[str, str]) -> None:
    os.setsid()
    gc.freeze()  # what the imports made stays: to look at it would copy all of it into this process
    for number, file in enumerate(said, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    os.fsync = lambda file: None  # no test cuts the power, and each call waits for the disk
    os.chdir(here)
