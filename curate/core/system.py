"""Calls that differ between operating systems, or that Windows does not have."""

import gc
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO

from driftline.curate.core.errors import DriftlineError

try:
    import fcntl
except ImportError:  # Windows
    POSIX = False
else:
    POSIX = True

LINUX = sys.platform == "linux"
ATTEMPTS = 4  # after so many dead workers the task itself is the cause
_turn = threading.Lock()


class NotHere(DriftlineError):
    """This operating system cannot do it."""


def need_posix(what: str, way_out: str = "On Windows use WSL.") -> None:
    """Raise NotHere on Windows."""
    if not POSIX:
        raise NotHere(f"{what} does not work on {sys.platform}.", "Expected Linux or macOS.", way_out)


def lock(file: int | IO[str], wait: bool = True) -> bool:
    """Lock an open file; it ends when the file is closed, even by a crash. False if another process has it and `wait`
    is False. Raises NotHere."""
    need_posix("A lock between processes")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """A file, made if it is not there, that no process takes away with `remove_unclaimed` meanwhile."""
    if not POSIX:  # Windows removes no open file
        yield
        return
    while True:  # again, if it was taken away before it was claimed
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            if path.exists():
                yield
                return
        finally:
            os.close(handle)


def remove_unclaimed(path: Path) -> None:
    """Remove a file, unless a live process has claimed it or it is gone."""
    if not POSIX:
        with suppress(FileNotFoundError, PermissionError):
            path.unlink()
        return
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # a file system without locks
            pass
        path.unlink()


def open_folder(folder: Path) -> int:
    """A descriptor of a folder, to be locked. Raises NotHere."""
    need_posix("A lock of a folder")
    return os.open(folder, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable. Windows does it by itself."""
    if POSIX:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_at(file: int, size: int, offset: int) -> bytes:
    """At most `size` bytes of an open file from `offset` on; threads may read at the same time."""
    if POSIX:
        return os.pread(file, size, offset)
    with _turn:
        os.lseek(file, offset, os.SEEK_SET)
        return os.read(file, size)


def read_into(file: int, view: memoryview, offset: int) -> int:
    """Fill `view` from `offset` on; returns the number of bytes, which may be less."""
    if POSIX:
        return os.preadv(file, [view], offset)
    data = read_at(file, len(view), offset)
    view[: len(data)] = data
    return len(data)


def cores() -> int:
    """Cores that this process may use; systems other than Linux do not say, there all of the machine."""
    return len(os.sched_getaffinity(0)) if LINUX else os.cpu_count() or 1


def busy_cores() -> int:
    """Cores that had work in the last minute; 0 where the system does not say."""
    return round(os.getloadavg()[0]) if POSIX else 0


def memory() -> int | None:
    """Bytes of the machine's memory; None where the system does not say."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if POSIX else None


def is_planted(path: Path) -> bool:
    """Whether somebody else made what is there, in a folder like /tmp where everybody may: Linux's own rule for such
    files (protected_regular). False where the system has no owners."""
    if not POSIX or not os.path.lexists(path):
        return False
    folder = path.absolute().parent.stat()
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    return bool(shared) and path.lstat().st_uid not in (os.geteuid(), folder.st_uid)


def collect_rarely() -> None:
    """Look for cycles of garbage at every 100,000th new object, not at every 700th: imports make hundreds of thousands
    that stay, and to look at them again and again takes a fifth of the start."""
    gc.set_threshold(100_000, 20, 20)


def how_it_ended(code: int) -> str:
    """Why a process ended, by its exit code in `subprocess`.

    >>> how_it_ended(-9), how_it_ended(-11), how_it_ended(1)
    ('killed, most often for lack of memory', 'crashed (SIGSEGV)', 'ended with code 1')
    """
    if code >= 0:
        return f"ended with code {code}"
    name = next((one.name for one in signal.Signals if one == -code), f"signal {-code}")
    reasons = {"SIGKILL": "killed, most often for lack of memory", "SIGXCPU": "out of processor time",
               "SIGTERM": "stopped by somebody (SIGTERM)", "SIGXFSZ": "at the limit of a file's size"}  # fmt: skip
    return reasons.get(name, f"crashed ({name})")


@contextmanager
def children() -> Iterator[None]:
    """Processes that start here import neither the user's script, which would run all of it again, nor modules of the
    working directory: a json.py beside photos is not ours."""
    script, safe = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if safe is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe
