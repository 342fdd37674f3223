"""A user with little: `python bare.py FOLDER COMMAND…` runs a command that has no network but loopback, can write below
FOLDER and nowhere else (not into its packages, not into its home), and finds no compiler. Linux only."""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

USER, MOUNTS, NETWORK = 0x10000000, 0x00020000, 0x40000000  # of unshare(2)
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000  # of mount(2)
MOUNT_SETATTR, HERE, ALL_BELOW, READ_ONLY = 442, -100, 0x8000, 1
SET_FLAGS, UP = 0x8914, 1  # of netdevice(7)


def leave(folder: Path) -> None:
    """Enter the namespaces. Raises OSError where the system does not allow them."""
    libc = ctypes.CDLL(None, use_errno=True)

    def done(code: int, what: str) -> None:
        if code:
            raise OSError(ctypes.get_errno(), what)

    user, group = os.getuid(), os.getgid()
    done(libc.unshare(USER | MOUNTS | NETWORK), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(text)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14x", b"lo", UP))
    root, place = b"/", str(folder).encode()
    done(libc.mount(b"none", root, None, RECURSIVE | PRIVATE, None), "mount")
    done(libc.mount(place, place, None, BIND, None), "mount")
    memory = [(b"/dev/shm", 0, 0, READ_ONLY)] if os.path.ismount("/dev/shm") else []  # locks of multiprocessing
    for path, flags, on, off in ((root, ALL_BELOW, READ_ONLY, 0), (place, 0, 0, READ_ONLY), *memory):
        attributes = struct.pack("QQQQ", on, off, 0, 0)
        done(libc.syscall(MOUNT_SETATTR, HERE, path, flags, attributes, len(attributes)), "mount_setattr")


if __name__ == "__main__":
    here, program = Path(sys.argv[1]), Path(sys.argv[2])
    leave(here)
    (here / "tmp").mkdir(exist_ok=True)
    os.chdir(here)
    os.environ |= {"PATH": str(program.parent), "TMPDIR": str(here / "tmp"), "HOME": "/", "MPLBACKEND": "agg"}
    os.execv(program, sys.argv[2:])
