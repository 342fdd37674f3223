"""Faults of the disk at every system call that changes a file: full, short writes, EIO, and kills between two calls.

    python -m hostile.faults [JOB …] [--kind kill …] [--points 250]        (make fuzz; PYTHONPATH=tests)

`faults.c` is loaded by LD_PRELOAD. Each point forks a process that does the job until its fault, and one that does the
same job again without a fault: that must end in the bytes of an undisturbed job, and say nothing but sentences.
"""

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hostile import living

from driftline.curate.core.errors import DriftlineError

KINDS = {"kill": 1, "full": 2, "short": 3, "eio": 4}
SECONDS = 120  # of one job
ASIDE = {"log.jsonl", "verified.json", "digests.sqlite", "digests.sqlite-journal"}  # times, and memories of digests
SHORTCUT = re.compile(r"store/files/(.*\.parquet|\.partial-.*)")  # gc removes what nothing names
OF_CLOCKS = {"seconds", "spent"}


@dataclass(frozen=True)
class Job:
    """Something that writes files."""

    do: Callable[[Path], Any]
    """in a folder; again, if it was stopped"""
    prepare: Callable[[Path], Any] = lambda folder: None
    """what is there before"""
    kept: Callable[[Path], Any] | None = None
    """what the folder says in the end (default: the bytes of its files)"""


def tree(folder: Path) -> dict[str, str]:
    """Name → SHA-256 of each file, without clocks."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in ASIDE):
        data = path.read_bytes()
        if path.name == "done.json":
            data = json.dumps({k: v for k, v in json.loads(data).items() if k not in OF_CLOCKS}).encode()
        found[path.relative_to(folder).as_posix()] = hashlib.sha256(data).hexdigest()
    return found


def _photos(folder: Path) -> None:
    """A run file for photos that are outside the folder, because their paths are in its tables."""
    from support.helpers import photo_config

    from driftline.curate.core.seeding import rng_for
    from driftline.pipelines.demo.draw import photo

    photos = folder.parents[1] / "photos"
    for thing in ("car", "bus"):
        if not (photos / thing).is_dir():
            (photos / thing).mkdir(parents=True)
            for i in range(4):
                photo([thing], 0.2, rng_for(i, thing)).save(photos / thing / f"201{i % 2}-05-0{i + 1}.jpg")
    source = f"{{source: folder, path: {photos}, label: parent, dates: [path]}}"
    (folder / "driftline.yaml").write_text(photo_config("  per_class: 4", collection=source))


def _run(folder: Path, until: str | None = None, start: str | None = None) -> None:
    from driftline.pipelines.run.runner import run

    run(living.context(folder), start, until)


def _stream(folder: Path) -> None:
    from support.helpers import drifting

    drifting(2, 2, 6).save(folder / "S")


def _rows(folder: Path) -> None:
    from support.helpers import drifting

    from driftline.eval.run import evaluate

    evaluate(drifting(2, 2, 6), "clear-iid", ["majority", "nearest-mean"], seeds=[0, 1], out=folder / "rows")


def _counts(folder: Path) -> Any:
    from driftline.eval.rows import digest, find

    left = [path for path in folder.rglob("*") if path.name.startswith(".partial-")]
    return [sorted(digest(run) for run in find([folder])), len(left)]


def _ledger(folder: Path) -> None:
    """Six corrections, in a new ledger each time; each acknowledged one is noted outside the folder, where no fault
    happens."""
    from driftline.eval.memory.correction_ledger import Ledger

    noted, path = folder.with_name("acknowledged"), folder / f"{len(list(folder.glob('*.ledger')))}.ledger"
    with Ledger(path) as ledger:
        for i in range(6):
            number = ledger.append({"correction": i})
            with noted.open("a") as file:
                file.write(f"{path.name} {number}\n")


def _corrections(folder: Path) -> Any:
    """All corrections of the last ledger, in order; and whether each ledger has all that it acknowledged."""
    from driftline.curate.core.errors import IntegrityError
    from driftline.eval.memory.correction_ledger import entries

    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*.ledger")):
        found[path.name] = []
        with contextlib.suppress(IntegrityError):  # the record that a crash tore
            found[path.name] += (entry.content[0] for entry in entries(path))
    noted = [line.split() for line in folder.with_name("acknowledged").read_text().splitlines()]
    return [found[max(found)], all(int(number) < len(found[name]) for name, number in noted)]


def _stages_and_store(folder: Path) -> Any:
    """All files but the store's index, whose pages depend on its history, and files of the store by which a finished
    shard is found at once: without one, its photos are found one by one. And whether the store is sound."""
    from driftline.curate.store.database import open_store, verify

    with open_store(folder / "store") as store:
        damaged = verify(store)["damaged"]
    files = {name: digest for name, digest in tree(folder).items() if "index.sqlite" not in name}
    return {name: d for name, d in files.items() if not SHORTCUT.fullmatch(name)} | {"damaged": damaged}


def _asked_once(folder: Path) -> Any:
    """The same, and how often each address was asked."""
    return _stages_and_store(folder) | living.attempts(folder)


JOBS = {
    "grow": Job(living.grow, partial(living.prepare, "grow"), kept=_asked_once),
    "heal": Job(living.heal, partial(living.prepare, "heal"), kept=_stages_and_store),
    "gc": Job(living.gc, partial(living.prepare, "gc"), kept=_stages_and_store),
    "withdraw": Job(living.withdraw, partial(living.prepare, "withdraw"), kept=_asked_once),
    "forget": Job(living.forget, living.annotated, kept=living.left_of_people),
    "annotate": Job(living.annotate, lambda folder: folder.with_name("acknowledged").touch(), kept=living.answers),
    "run": Job(partial(_run, until="bucket"), _photos, kept=_stages_and_store),
    "whole-run": Job(_run, _photos, kept=_stages_and_store),
    "stream": Job(_stream),
    "rows": Job(_rows, kept=_counts),
    "ledger": Job(_ledger, kept=_corrections),
}


def swept(name: str, kinds: Sequence[str], points: int, library: Path) -> Iterator[dict[str, Any]]:
    """Faults at `points` of the calls of a job, as evenly as possible. Yields calls, points and problems of each
    kind."""
    job, faults = JOBS[name], ctypes.CDLL(str(library))
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        warm, calm = (Path(place).resolve() / part / "x" for part in ("warm", "calm"))
        _fresh(job, warm)
        job.do(warm)  # forks then have its imports
        _fresh(job, calm)
        count = Path(place) / "count"

        def counted() -> None:
            faults.fault_arm(str(calm).encode(), 0, 0)
            job.do(calm)
            count.write_text(str(faults.fault_count()))

        code, said = forked(counted, place)
        assert not code, said
        calls, expected = int(count.read_text()), (job.kept or tree)(calm)
        chosen = sorted({calls * i // points for i in range(points)}) if points < calls else list(range(calls))
        for kind in kinds:
            problems, clock = [], time.monotonic()
            for point in chosen:
                folder = Path(place).resolve() / f"{kind}-{point}" / "x"
                _fresh(job, folder)

                def faulty(folder: Path = folder, point: int = point, kind: str = kind) -> None:
                    faults.fault_arm(str(folder).encode(), KINDS[kind], point)
                    job.do(folder)

                code, said = forked(faulty, place)
                if code == TRACEBACK or (kind == "kill" and code == 0):
                    problems.append(f"call {point} of {calls}: {said or 'the job did not meet its fault'}")
                code, said = forked(partial(job.do, folder), place)
                if code:
                    problems.append(f"call {point} of {calls}, once again: {said}")
                elif (found := (job.kept or tree)(folder)) != expected:
                    problems.append(f"call {point} of {calls}: other output: {_differ(expected, found)}")
                shutil.rmtree(folder.parent)
            seconds = round(time.monotonic() - clock, 1)
            known = {"job": name, "kind": kind, "calls": calls, "points": len(chosen)}
            yield known | {"problems": problems, "seconds": seconds}


SENTENCE, TRACEBACK = 1, 2  # exit codes of a fork


def forked(do: Callable[[], Any], place: str) -> tuple[int, str]:
    """(exit code, what went wrong) of a function in a process of its own; a killed one has a negative code."""
    said = Path(place) / "said"
    said.unlink(missing_ok=True)
    process = os.fork()
    if not process:
        code = 0
        try:
            signal.alarm(SECONDS)
            do()
        except (DriftlineError, OSError) as error:  # the command line explains errors of the operating system
            code, text = SENTENCE, str(error)
        except BaseException as error:
            code, text = TRACEBACK, "".join(traceback.format_exception(error)[-3:])
        if code:
            said.write_text(text)
        os._exit(code)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return code, said.read_text() if said.is_file() else f"exit code {code}" if code else ""


def _fresh(job: Job, folder: Path) -> None:
    folder.mkdir(parents=True)
    job.prepare(folder)


def _differ(expected: Any, found: Any) -> Any:
    if isinstance(expected, dict):
        return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))[:5]
    return found


def compiled(folder: Path) -> Path | None:
    """The library; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def begun(library: Path, jobs: Sequence[str], kinds: Sequence[str], points: int) -> Iterator[dict[str, Any]]:
    """`swept` for each job, in a process with the library."""
    command = [sys.executable, "-m", "hostile.faults", *jobs, "--points", str(points), "--library", str(library)]
    command += [word for kind in kinds for word in ("--kind", kind)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # PIPE
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise ChildProcessError(f"The process of {', '.join(jobs)} ended with code {process.returncode}.")


def main() -> None:
    """The jobs and kinds that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--points", type=int, default=250)
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    jobs, kinds = asked.jobs or list(JOBS), asked.kind or list(KINDS)
    if asked.library:
        for name in jobs:
            for found in swept(name, kinds, asked.points, asked.library):
                print(json.dumps(found), flush=True)
        return
    problems = 0
    print(f"{'job':<11}{'kind':<7}{'calls':>7}{'points':>8}{'problems':>10}{'seconds':>9}")
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        if library is None:
            sys.exit("There is no C compiler for Linux.")
        for found in begun(library, jobs, kinds, asked.points):
            numbers = f"{found['calls']:>7,}{found['points']:>8,}{len(found['problems']):>10,}{found['seconds']:>9,}"
            print(f"{found['job']:<11}{found['kind']:<7}{numbers}", flush=True)
            for problem in found["problems"]:
                print(f"  {problem}", flush=True)
            problems += len(found["problems"])
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
