"""What the kernel forbids one process for good: capabilities (capset(2)), and files (Landlock).

Landlock: Linux's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path

NO_NEW_PRIVILEGES, CAPABILITIES = 38, 24  # of prctl(2): PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP
RULESET, RULE, RESTRICT, VERSION = 444, 445, 446, 1  # calls of Landlock
READ_FILE, READ_FOLDER, WRITE_FILE = 4, 8, 2
BY_VERSION = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)  # kinds of access that Landlock's versions know


def drop_rights(libc: ctypes.CDLL) -> None:
    """No capability, and none to be had from a program. Raises OSError."""
    for capability in range(64):
        libc.prctl(CAPABILITIES, capability, 0, 0, 0)  # fails for those that the kernel does not know
    called(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    called(libc.capset(header, none), "capset")


def only_read(libc: ctypes.CDLL, readable: Sequence[Path], writable: Sequence[Path] = ()) -> None:
    """Open these files and what is below these folders, and no other. Raises OSError where Landlock is not there."""
    version = libc.syscall(RULESET, None, 0, VERSION)
    if version < 1:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "Landlock")
    handled = BY_VERSION[min(version, len(BY_VERSION) - 1)]
    ruleset = libc.syscall(RULESET, struct.pack("Q", handled), 8, 0)
    called(min(ruleset, 0), "Landlock")
    for path in [*readable, *writable]:
        access = READ_FILE | (READ_FOLDER if path.is_dir() else 0) | (WRITE_FILE if path in writable else 0)
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        called(libc.syscall(RULE, ruleset, 1, struct.pack("=Qi", access, handle), 0), f"Landlock for {path}")
        os.close(handle)
    called(libc.syscall(RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)


def called(code: int, what: str) -> None:
    """Raise OSError if a call of libc failed."""
    if code:
        raise OSError(number := ctypes.get_errno(), os.strerror(number), what)
