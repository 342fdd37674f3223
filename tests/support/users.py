"""Work in a forked process as root or as another user, with a terminal of its own."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import sys
import tempfile
import termios
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOUNTS, RECURSIVE, PRIVATE, BIND = 0x00020000, 0x4000, 0x40000, 0x1000
ROOT = Path(__file__).resolve().parents[2]
IS_ROOT = sys.platform == "linux" and os.getuid() == 0
USERS = {"root": 0, "user": 4321} if IS_ROOT else {"user": os.getuid() if sys.platform == "linux" else 0}


@contextmanager
def open_folder() -> Iterator[Path]:
    """One that every user can reach and change: permissions keep nothing there."""
    with tempfile.TemporaryDirectory(prefix="driftline-open-", dir="/tmp") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def forbidden(*given: object) -> None:
    """What namespaces say in most containers."""
    raise OSError(1, "Operation not permitted", "namespaces (unshare)")


def as_user(user: int, work: Callable[[], Any]) -> Any:
    """The plain data that `work` returns in a process of this user, whose session has a terminal. Raises
    AssertionError with its traceback if it fails."""
    end, mine = os.pipe()
    terminal, theirs = os.openpty()
    if not (process := os.fork()):
        try:
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
            os.dup2(theirs, 0)
            if user != os.getuid():
                _reach([sys.base_prefix, sys.prefix, str(ROOT)])
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is its own again
            answer = json.dumps([work(), ""])
        except BaseException:
            answer = json.dumps([None, traceback.format_exc()])
        with os.fdopen(mine, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(mine)
    os.close(theirs)
    with os.fdopen(end) as file:
        text = file.read()
    os.waitpid(process, 0)
    os.close(terminal)
    result, problem = json.loads(text)
    assert not problem, problem
    return result


def _reach(places: list[str]) -> None:
    """Let everybody get to these folders, in mounts of this process only: Python may be in the home of root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(MOUNTS) or libc.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None):
        raise OSError(ctypes.get_errno(), "unshare")
    for place in {os.path.realpath(place) for place in places}:
        closed = [parent for parent in reversed(Path(place).parents) if not parent.stat().st_mode & 0o001]
        if closed:
            handle = os.open(place, os.O_PATH)
            libc.mount(b"none", os.fsencode(closed[0]), b"tmpfs", 0, b"mode=755")
            os.makedirs(place)
            libc.mount(f"/proc/self/fd/{handle}".encode(), os.fsencode(place), None, BIND | RECURSIVE, None)
            os.close(handle)
