"""The runner of mutants in a process of its own: it forks, which the threads of the libraries of other tests forbid."""

import importlib
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from mutants import __main__ as runner
from mutants.table import Mutant


def run(mutants: list[Mutant], root: Path, imported: Path | None = None) -> list[runner.Outcome]:
    """Outcomes of one worker. imported: a folder whose module `pieces` the process has before it forks."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_judged, mutants, root, imported).result()


def _judged(mutants: list[Mutant], root: Path, imported: Path | None) -> list[runner.Outcome]:
    runner.LARGE = ()
    if imported is not None:
        sys.path.insert(0, str(imported))
        importlib.import_module("pieces")
    return runner.run(mutants, 1, root, say=list)
