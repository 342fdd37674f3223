"""The `driftline` command in a process of its own, forked from one that has its imports: three seconds less a call."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

NEEDED = [
    "torch",
    "duckdb",
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
    "pipelines.cli.app",
    "eval.run",
    "eval.reporting.report",
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
    with TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        child = FORKS.Process(target=_called, args=(words, here or Path.cwd(), said, dict(os.environ)))
        child.start()
        child.join()
        assert child.exitcode is not None
        return CompletedProcess(words, child.exitcode, *(one.read_text(encoding="utf-8") for one in said))


def _called(words: tuple[str, ...], here: Path, said: list[Path], environment: Mapping[str, str]) -> None:
    for number, file in enumerate(said, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(here)
    sys.argv = ["driftline", *words]
    from pipelines.cli.app import main

    main()
