"""The attacks of `support.prisoners`, one after another, and what each of them changed outside of its enclosure."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
import sys
import termios
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from support.prisoners import ATTACKS, World, run
from support.users import forbidden

from driftline.curate.core.system import enclosure
from driftline.curate.core.system.enclosure import Bounds, Enclosed

BOUNDS = Bounds(seconds=0.7, memory=2**28, disk=2**24)
SUBREAPER = 36


class Outside:
    """What must not change: files, sockets, the terminal, this process, memory that outlives processes."""

    def __init__(self, folder: Path) -> None:
        self.kept, self.stream = folder / "kept", folder / "stream"
        self.kept.write_text("ours")
        self.stream.mkdir()
        (self.stream / "a.bin").write_bytes(b"data")
        self.file, self.abstract, self.port = (
            socket.socket(socket.AF_UNIX),
            socket.socket(socket.AF_UNIX),
            socket.socket(),
        )
        self.packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.file.bind(str(folder / "socket"))
        self.abstract.bind(f"\0{folder.name}")
        self.port.bind(("127.0.0.1", 0))
        self.packets.bind(self.port.getsockname())
        for listener in (self.file, self.abstract, self.port):
            listener.listen()
            listener.setblocking(False)
        self.packets.setblocking(False)
        for path in folder.rglob("*"):
            path.chmod(0o777)
        self.world: World = {
            "judge": os.getpid(), "folder": str(folder), "kept": str(self.kept), "stream": str(self.stream),
            "socket": str(folder / "socket"), "abstract": folder.name, "port": self.port.getsockname()[1],
            "terminal": os.ttyname(0),
        }  # fmt: skip
        self.before = self.state()

    def state(self) -> dict[str, Any]:
        """Plain data that an attack could change."""
        typed = struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4)))
        places = [self.kept, self.stream, self.stream / "a.bin", Path(os.__file__)]
        return {
            "files": [(path.stat().st_mode, path.stat().st_mtime_ns, path.stat().st_ino) for path in places],
            "content": [self.kept.read_text(), (self.stream / "a.bin").read_bytes().hex()],
            "modules": [name for name in filter(None, sys.path) if Path(name, "sitecustomize.py").exists()],
            "typed": typed,
            "calls": [self.asked(listener) for listener in (self.file, self.abstract, self.port)],
            "packets": self.received(),
            "segments": [Path("/proc/sysvipc", name).read_text() for name in ("shm", "sem", "msg")],
            "shared": [name for name in os.listdir("/dev/shm") if name.startswith(("mine", "x"))],
            "judge": [
                os.getpriority(os.PRIO_PROCESS, 0),
                resource.getrlimit(resource.RLIMIT_CPU),
                socket.gethostname(),
            ],
        }

    def asked(self, listener: socket.socket) -> bool:
        with suppress(BlockingIOError):
            listener.accept()
            return True
        return False

    def received(self) -> bool:
        with suppress(BlockingIOError):
            return bool(self.packets.recv(1))
        return False


def left() -> bool:
    """Whether a process that this one is the last parent of still lives after a second."""
    late = time.monotonic() + 1
    with suppress(ChildProcessError):
        while time.monotonic() < late:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.005)
        return True
    return False


def attacked(folder: Path, anywhere: bool = False) -> dict[str, dict[str, Any]]:
    """What each attack got, what it changed outside, and whether a process was left."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    outside, results = Outside(folder), {}
    if anywhere:
        enclosure._in_namespaces = forbidden  # type: ignore[assignment]
    for name in ATTACKS:
        begun = time.monotonic()
        with Enclosed(partial(enclosed_work, name, outside.world), BOUNDS, [outside.stream], anywhere) as code:
            data = code.receive(5000)
        seconds, after = time.monotonic() - begun, outside.state()
        results[name] = {
            "got": data.decode(errors="replace"),
            "changed": [key for key, value in outside.before.items() if after[key] != value],
            "left": left(),
            "late": code.late,
            "seconds": seconds,
            "output": code.output,
        }
    return results


def enclosed_work(name: str, world: World, requests: Any, answers: Any) -> None:
    run(name, world, answers)
