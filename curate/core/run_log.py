"""The log of a run: progress for people on stderr, events for scripts in a JSON Lines file.

On a terminal progress is a bar with the remaining time, elsewhere a plain line every ten seconds.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import without_secrets

Tick = Callable[[int], None]


class RunLog:
    """Appends one JSON object per line to `path`, if any. quiet: prints nothing. verbose: prints every event."""

    def __init__(self, path: Path | None = None, quiet: bool = False, verbose: bool = False) -> None:
        self.path, self.quiet, self.verbose = path, quiet, verbose

    def write(self, event: str, **fields: Any) -> None:
        """Append an event with its time (seconds since the epoch, UTC)."""
        line = without_secrets(json.dumps({"time": round(time.time(), 3), "event": event, **fields}, sort_keys=True))
        if self.verbose and (event != "said" or self.quiet):
            about = ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
            print(without_secrets(f"{time.strftime('%H:%M:%S')} {event}: {about}"), file=sys.stderr, flush=True)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def say(self, text: str, **fields: Any) -> None:
        """Print a line to stderr and append it to the log."""
        if not self.quiet:
            print(without_secrets(text), file=sys.stderr, flush=True)
        self.write("said", text=text, **fields)

    @contextmanager
    def progress(self, what: str, total: int | None, unit: str = "records") -> Iterator[Tick]:
        """Yield a function that advances the progress of `what` by n of `total` units (None: unknown)."""
        started = last = time.monotonic()
        done = 0
        self.write("begin", what=what, total=total, unit=unit)
        terminal = not self.quiet and sys.stderr.isatty()
        with _bar(what, total, unit) if terminal else nullcontext() as advance:

            def tick(n: int) -> None:
                nonlocal done, last
                done += n
                now = time.monotonic()
                if advance is not None:
                    advance(n)
                elif not self.quiet and now - last >= 10:
                    last, of_total = now, f" of {total:,}" if total is not None else ""
                    left = f", about {(total - done) * (now - started) / done:.0f} s left" if total and done else ""
                    print(f"{what}: {done:,}{of_total} {unit}{left}", file=sys.stderr, flush=True)

            yield tick
        self.write("end", what=what, done=done, seconds=round(time.monotonic() - started, 3))


@contextmanager
def _bar(what: str, total: int | None, unit: str) -> Iterator[Tick]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn(unit), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)
