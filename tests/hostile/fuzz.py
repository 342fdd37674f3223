"""Attacks every reader with mutated input: each ends with a value or with one of driftline's own sentences, in time.

    python -m hostile.fuzz [READER …] [--times 10000] [--seed 0]        (make fuzz; PYTHONPATH=tests)

A crash is stored below `crashers/`, which the tests read again.
"""

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import hostile.imported  # noqa: F401, enters its readers
import pyarrow as pa
from hostile.mutations import mutate
from hostile.readers import READERS

from driftline.curate.core.errors import BadConfig, DriftlineError

CRASHERS = Path(__file__).parent / "crashers"
SECONDS, MEMORY = 10, 1 << 30  # of one input: processor time, and bytes beyond those in use

pa.allocate_buffer(64)  # at its first use Arrow's allocator takes 1 GB of addresses: no input is to blame


@dataclass
class Found:
    """What the mutations of one reader's input led to."""

    name: str
    times: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    """seconds"""
    crashes: dict[str, str] = field(default_factory=dict)
    """what went wrong, with its place → where the input is stored"""


class TooSlow(BaseException):
    """One input took more than SECONDS."""


@contextmanager
def limits() -> Iterator[None]:
    """SECONDS of the processor, ten times as many by the clock, and MEMORY for what is done inside."""

    def stop(*_: object) -> None:
        raise TooSlow(f"more than {SECONDS} seconds")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    # a busy machine makes nothing slow; what waits for something that never comes is
    timers = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, 10 * SECONDS)}
    handlers = {name: signal.signal(name, stop) for name in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for name, handler in handlers.items():
            signal.signal(name, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def judged(name: str, folder: Path, sound: Any) -> tuple[str, str]:
    """(accepted, refused or crashed; the message or what went wrong) for the input in a folder. sound: the value of the
    sound input, which a sealed reader may not exchange for another."""
    reader = READERS[name]
    try:
        with limits(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = reader.read(folder)
        if reader.sealed and repr(value) != repr(sound):
            return "crashed", "changed content was not noticed"
        return "accepted", ""
    except DriftlineError as error:
        text = str(error)
        several = "\n" in text and not isinstance(error, BadConfig)  # of a run file, every fault has a line
        if several or not text.strip() or "\0" in text:
            return "crashed", f"no sentence: {text[:100]!r}, {_place(error)}"
        return "refused", text
    except (Exception, TooSlow) as error:
        return "crashed", f"{type(error).__name__}: {str(error)[:160]!r}, {_place(error)}"


def _place(error: BaseException) -> str:
    """The innermost line of driftline in a traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in frame.filename]
    ours = [frame for frame in frames if "/tests/" not in frame.filename and "/lib/python" not in frame.filename]
    frame = (ours or frames)[-1]
    return f"{'/'.join(Path(frame.filename).parts[-3:])}, line {frame.lineno}"


def _kind(problem: str) -> str:
    """The error and its place, without what it says."""
    return re.sub(r": .*, ", " ", problem)


@contextmanager
def watched(place: Path) -> Iterator[tuple[Path, Callable[[], bool]]]:
    """A folder for inputs, below others with a file in each, and whether all of these are as they were."""
    folder = place / "a" / "b" / "c"
    folder.mkdir(parents=True)
    around = [place, place / "a", place / "a" / "b"]
    for above in around:
        (above / "x").write_text("ours")
    before = {path: sorted(path.iterdir()) for path in around}
    yield (
        folder,
        lambda: all(
            sorted(above.iterdir()) == names and (above / "x").read_text() == "ours" for above, names in before.items()
        ),
    )


def attack(name: str, times: int, seed: int = 0, keep: Path = CRASHERS) -> Found:
    """Mutate the input of one reader `times` times. keep: folder for the inputs that it does not withstand."""
    found, rng = Found(name), random.Random(f"{name} {seed}")
    memory = next(filter(os.path.isdir, ("/dev/shm",)), None)  # a disk would be most of the time
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as place,
        watched(Path(place)) as (folder, is_untouched),
    ):
        content = sound_input(name)
        _restore(folder, content)
        sound = READERS[name].read(folder)
        for _ in range(times):
            changed = rng.choice(sorted(content))
            data = mutate(content[changed], changed.name, rng)
            _restore(folder, {changed: data} if READERS[name].each else content | {changed: data})
            start = time.monotonic()
            outcome, problem = judged(name, folder, sound)
            if not is_untouched():
                outcome, problem = "crashed", f"a file outside was written or deleted: {problem}, by line 0"
            found.slowest = max(found.slowest, round(time.monotonic() - start, 2))
            found.times += 1
            found.accepted += outcome == "accepted"
            found.refused += outcome == "refused"
            if outcome == "crashed" and _kind(problem) not in map(_kind, found.crashes):
                found.crashes[problem] = str(_kept(keep / name, changed, data))
    return found


def again(path: Path) -> tuple[str, str]:
    """`judged` for a stored crasher: crashers/READER/DIGEST~FOLDER~FILE."""
    name, changed = path.parent.name, Path(*path.name.split("~")[1:])
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(place)
        _restore(folder, sound_input(name))
        sound = READERS[name].read(folder) if READERS[name].sealed else None
        (folder / changed).parent.mkdir(parents=True, exist_ok=True)  # names of runs change with their settings
        (folder / changed).write_bytes(path.read_bytes())
        return judged(name, folder, sound)


@cache
def sound_input(name: str) -> dict[Path, bytes]:
    """The files that a reader's `make` writes."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(place)
        READERS[name].make(folder)
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _restore(folder: Path, content: dict[Path, bytes]) -> None:
    """The sound input again, and nothing else."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _kept(folder: Path, changed: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "~".join((hashlib.sha256(data).hexdigest()[:8], *changed.parts))
    path.write_bytes(data)
    return path


def main() -> None:
    """Each reader in a process of its own, because a library may crash as a whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER", help=", ".join(READERS))
    parser.add_argument("--times", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(asdict(attack(asked.readers[0], asked.times, asked.seed))))
        return
    crashes = 0
    print(f"{'reader':<18}{'inputs':>8}{'accepted':>10}{'refused':>9}{'crashes':>9}{'slowest':>9}")
    for name in asked.readers or READERS:
        command = [
            sys.executable,
            "-m",
            "hostile.fuzz",
            name,
            "--inside",
            f"--times={asked.times}",
            f"--seed={asked.seed}",
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            found = Found(name, crashes={f"its process ended with code {done.returncode}": ""})
        else:
            found = Found(**json.loads(done.stdout.splitlines()[-1]))
        crashes += len(found.crashes)
        numbers = f"{found.times:>8,}{found.accepted:>10,}{found.refused:>9,}{len(found.crashes):>9,}"
        print(f"{name:<18}{numbers}{found.slowest:>7.1f} s", flush=True)
        for problem, path in found.crashes.items():
            print(f"  {problem}\n    {path}", flush=True)
    sys.exit(1 if crashes else 0)


if __name__ == "__main__":
    main()
