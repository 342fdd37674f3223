"""Progress that a person can watch and a script can read.

On a terminal: a rich bar with time left. Elsewhere: a plain line every ten seconds. Always: one JSON object
a line in the log file beside the work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Tick = Callable[[int], None]


class RunLog:
    """Appends one JSON object a line to `path`; `None` writes nowhere."""

    def __init__(self, path: Path | None = None, quiet: bool = False) -> None:
        self.path, self.quiet = path, quiet

    def write(self, event: str, **facts: Any) -> None:
        """Append an event with its time (seconds since the epoch, UTC)."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"time": round(time.time(), 3), "event": event, **facts}, sort_keys=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    def say(self, text: str, **facts: Any) -> None:
        """A line for the person who watches (stderr), and for the log."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)
        self.write("said", text=text, **facts)

    @contextmanager
    def progress(self, what: str, total: int | None, unit: str = "records") -> Iterator[Tick]:
        """Yield a function that advances the display by n of `total` units."""
        begun = time.monotonic()
        self.write("begin", what=what, total=total, unit=unit)
        done = 0
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn())
            with Progress(*columns, TextColumn(unit), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
                task = bar.add_task(what, total=total)

                def tick(n: int) -> None:
                    nonlocal done
                    done += n
                    bar.advance(task, n)

                yield tick
        else:
            last = begun
            of = f" of {total:,}" if total is not None else ""

            def tick(n: int) -> None:
                nonlocal done, last
                done += n
                now = time.monotonic()
                if not self.quiet and now - last >= 10:
                    last = now
                    left = f", about {(total - done) * (now - begun) / done:.0f} s left" if total and done else ""
                    print(f"{what}: {done:,}{of} {unit}{left}", file=sys.stderr, flush=True)

            yield tick
        self.write("end", what=what, done=done, seconds=round(time.monotonic() - begun, 3))
