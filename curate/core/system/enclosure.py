"""A process that can run somebody else's code: Linux namespaces without network, with a read-only view of the files."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path

from driftline.curate.core.errors import DriftlineError

USER, MOUNTS = 0x10000000, 0x00020000  # of unshare(2)
NETWORK, MESSAGES, PROCESSES = 0x40000000, 0x08000000, 0x20000000
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000  # of mount(2)
MOUNT_SETATTR, HERE, ALL_BELOW, READ_ONLY = 442, -100, 0x8000, 1  # its number, AT_FDCWD, AT_RECURSIVE, its first bit
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class NotEnclosed(DriftlineError):
    """This system has no namespaces, or does not allow them."""


def enclose(folder: Path) -> None:
    """Go on in a new process that has no network, sees no other process, and can write below `folder` only. The process
    that called waits for it and ends with its exit code. The programs of this machine can still be read and started.

    Raises NotEnclosed where the system does not allow it (not Linux, before 5.12, or a container that forbids it).
    """
    if sys.platform != "linux":
        raise _refused(f"this system is {sys.platform}")
    libc = ctypes.CDLL(None, use_errno=True)
    root, place = b"/", str(folder).encode()
    _enter(libc, USER | MOUNTS | NETWORK | MESSAGES | PROCESSES)
    if child := os.fork():
        os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL)
    _done(libc.mount(b"none", root, None, RECURSIVE | PRIVATE, None), "mount")
    _done(libc.mount(b"proc", b"/proc", b"proc", 0, None), "mount of /proc")
    _done(libc.mount(place, place, None, BIND, None), "mount")
    for path, flags, on, off in (
        (root, ALL_BELOW, READ_ONLY, 0),
        (place, 0, 0, READ_ONLY),
        (b"/proc", 0, 0, READ_ONLY),
    ):
        attributes = struct.pack("QQQQ", on, off, 0, 0)
        _done(libc.syscall(MOUNT_SETATTR, HERE, path, flags, attributes, len(attributes)), "mount_setattr")
    os.chdir(folder)
    _enter(libc, USER | MOUNTS)  # a user of these owns none of the mounts above, and cannot undo them


def _enter(libc: ctypes.CDLL, namespaces: int) -> None:
    """Enter new namespaces, as the root of them that has this process's rights outside."""
    user, group = os.getuid(), os.getgid()
    _done(libc.unshare(namespaces), "unshare")
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path("/proc/self", name).write_text(text)
    except OSError as error:
        raise _refused(str(error)) from None


def _done(code: int, what: str) -> None:
    if code:
        raise _refused(f"{what}: {os.strerror(ctypes.get_errno())}")


def _refused(because: str) -> NotEnclosed:
    return NotEnclosed(
        f"Code of a submission runs in namespaces of Linux only, which are not to be had here ({because}).",
        "",
        "Verify without --run-code, or on a machine that allows unprivileged user namespaces.",
    )
