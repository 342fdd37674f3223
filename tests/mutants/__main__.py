"""Changes one line of the source at a time and runs the nearest tests: a wrong line that no test sees is a gap in them.

    python -m mutants [WORD …] [--workers 2]        (make mutants; PYTHONPATH=.:tests)

`table.toml` has the lines. Each worker has a copy of the tree in a temporary folder, and forks a process with the
large libraries imported for each mutant. Real data of `../shared` is not beside the copies. Fails if fewer than 95 %
are killed, and at once if a module comes from another tree than the copy: its wrong lines would never run.
"""

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from mutants.table import ROOT, Mutant, problems, read

LEAST = 0.95  # share that must be killed
SECONDS = 300  # of one mutant's tests; one that takes longer is killed by the clock
LARGE = ("torch", "pandas", "scipy.stats", "scipy.optimize", "pyarrow.parquet", "duckdb", "faiss", "hypothesis")
LEFT_OUT = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "_build")
ELSEWHERE = 70  # status of tests that ran against another tree
FORK = multiprocessing.get_context("fork")
TIMES = count(10**9)  # seconds; no file of a tree is so old
place = Path()  # the copy of this worker


@dataclass(frozen=True)
class Outcome:
    """What the tests said of a mutant."""

    name: str
    by: str
    """the first test that failed; "": none, the mutant survives"""
    seconds: float


def prepare(trees: Any, root: Path) -> None:
    """Begin a worker: take a folder, and copy the tree into it."""
    global place
    place = Path(trees.get()) / "tree"
    shutil.copytree(root, place, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)


def judge(mutant: Mutant) -> Outcome:
    """Run the tests of one mutant in this worker's copy, whose file is put back."""
    path, start = place / mutant.file, time.monotonic()
    aside = place.parent / "aside"
    shutil.copy2(path, aside)
    path.write_text(mutant.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
    os.utime(path, (next(TIMES),) * 2)  # Python knows its compiled file by time in seconds and size
    try:
        status, said = run_tests(mutant.tests)
    finally:
        shutil.copy2(aside, path)  # with its time
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
    if status not in (0, 1, None) or (status == 1 and failed is None):
        raise RuntimeError(f"{mutant.name}: the tests could not run.\n{said[-2000:]}")
    by = "" if status == 0 else "the clock" if status is None else failed[1] if failed else ""
    return Outcome(mutant.name, by, time.monotonic() - start)


def run_tests(tests: Sequence[str]) -> tuple[int | None, str]:
    """(status of pytest or None after SECONDS, what it printed) of test files of this worker's copy."""
    log = place.parent / "log"
    process = FORK.Process(target=_pytest, args=(tests, log))
    process.start()
    process.join(SECONDS)
    with suppress(ProcessLookupError):  # and what its tests have started
        os.killpg(process.pid or 0, signal.SIGKILL)
    late = process.is_alive()
    process.join()
    return None if late else process.exitcode, log.read_text(encoding="utf-8", errors="replace")


def _pytest(tests: Sequence[str], log: Path) -> None:
    """In a process of its own."""
    os.setsid()
    sys.stdout = sys.stderr = log.open("w", buffering=1)
    os.dup2(sys.stdout.fileno(), 1)  # of processes that tests start
    os.dup2(sys.stdout.fileno(), 2)
    os.chdir(place)
    ours = {"", str(ROOT), str(ROOT / "tests")}
    sys.path[:] = [str(place), str(place / "tests"), *(path for path in sys.path if path not in ours)]
    os.environ.pop("PYTEST_ADDOPTS", None)  # of a run that this one is a test of
    os.environ["PYTHONPATH"] = f"{place}{os.pathsep}{place / 'tests'}"
    import pytest

    # An editable install would serve what the copy lacks from the tree that is installed.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
    options = ["-xq", "-m=", "-rfE", "--tb=line", "-p", "no:cacheprovider", f"--basetemp={place.parent / 'temporary'}"]
    status: int = pytest.main([*options, *tests])
    if elsewhere := foreign():
        print("Imported from elsewhere, not from the copy:", *elsewhere, sep="\n")
        status = ELSEWHERE
    sys.stdout.flush()
    os._exit(int(status))


def foreign() -> list[str]:
    """Imported modules of a name that the copy has, too, from another place: \"name: file\"."""
    return [
        f"{name}: {module.__file__}"
        for name, module in sorted(sys.modules.items())
        if getattr(module, "__file__", None)
        and any((place / top).exists() for top in (name.partition(".")[0], name.partition(".")[0] + ".py"))
        and not Path(str(module.__file__)).is_relative_to(place)
    ]


def run(
    mutants: Sequence[Mutant], workers: int, root: Path = ROOT, say: Callable[[str], object] = print
) -> list[Outcome]:
    """Every mutant's outcome, in order. Raises RuntimeError if tests fail without a mutant, too."""
    for name in LARGE:
        with suppress(ImportError):
            import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = FORK.SimpleQueue()
        for worker in range(workers):
            (Path(folder) / str(worker)).mkdir()
            trees.put(str(Path(folder) / str(worker)))
        with ProcessPoolExecutor(workers, FORK, prepare, (trees, root)) as pool:
            files = sorted({test for mutant in mutants for test in mutant.tests})
            for status, said in pool.map(run_tests, [[file] for file in files]):
                if status != 0:
                    raise RuntimeError(f"Tests fail without a mutant.\n{said[-3000:]}")
            outcomes = []
            for outcome in pool.map(judge, mutants):
                outcomes.append(outcome)
                say(f"{outcome.seconds:5.1f} s  {outcome.name} → {outcome.by or 'SURVIVES'}")
    return outcomes


def main() -> int:
    """0 if enough are killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants with one of these words in their name or file")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    mutants = [m for m in read() if not options.words or any(word in f"{m.name} {m.file}" for word in options.words)]
    if wrong := problems(mutants):
        print("\n".join(wrong))
        return 2
    outcomes = run(mutants, options.workers, say=lambda line: print(line, flush=True))
    killed = sum(bool(outcome.by) for outcome in outcomes)
    print(f"{killed} of {len(outcomes)} mutants are killed ({killed / max(1, len(outcomes)):.1%}).")
    print("".join(f"survives: {outcome.name}\n" for outcome in outcomes if not outcome.by), end="")
    return 0 if killed >= LEAST * len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
