"""Work for worker processes, which import it by name."""

import os
import signal
import time
from pathlib import Path

from driftline.curate.core.errors import BadInput


def square(n: int) -> int:
    """n times n."""
    return n * n


def complain(n: int) -> int:
    """Task 2 is refused."""
    if n == 2:
        raise BadInput("Row 2 is bad.", "Expected good.")
    return n


def complain_or_sleep(n: int) -> None:
    """Task 0 is refused, the others go on for ever."""
    if n == 0:
        raise BadInput("Row 0 is bad.", "Expected good.")
    time.sleep(600)


def die_once(task: tuple[Path, int]) -> int:
    """Task 3 kills its own process the first time."""
    mark, n = task
    if n == 3 and not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def die(n: int) -> int:
    """Kills its process every time."""
    os.kill(os.getpid(), signal.SIGKILL)
    return n


def crash(n: int) -> int:
    """Ends its process as a fault in a library does."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return n


def pid(_: int) -> int:
    """The process that does the work."""
    return os.getpid()


def sleep(path: str) -> None:
    """Leave the process's number in a file and go on for ever."""
    Path(f"{path}.tmp").write_text(str(os.getpid()))
    os.rename(f"{path}.tmp", path)
    time.sleep(600)


def gpu(seconds: float) -> tuple[str, int]:
    """Which GPU this process may use, and who it is."""
    time.sleep(seconds)
    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid()
