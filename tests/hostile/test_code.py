"""Code of a submission: 70 attacks as root's and as a user's, each in an enclosure of its own. None gets anything,
nothing outside changes, and no process is left."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import termios
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.prisoners import ATTACKS, World, run
from support.users import USERS, as_user, forbidden, open_folder

from driftline.curate.core.system import enclosure
from driftline.curate.core.system.enclosure import Bounds, Enclosed, NotEnclosed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
BOUNDS = Bounds(seconds=0.7, memory=2**28, disk=2**24)
SUBREAPER = 36
LASTING = {"never_end", "outlive_the_judge", "print_without_end"}


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
        with Enclosed(partial(_work, name, outside.world), BOUNDS, [outside.stream], anywhere) as code:
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


def _work(name: str, world: World, requests: Any, answers: Any) -> None:
    run(name, world, answers)


@pytest.fixture(scope="module", params=[*USERS, "without namespaces"])
def results(request: pytest.FixtureRequest) -> Any:
    user = USERS.get(request.param, USERS["user"])
    with open_folder() as place:
        return as_user(user, partial(attacked, place, request.param not in USERS))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_nothing_and_changes_nothing(name: str, results: dict[str, dict[str, Any]]) -> None:
    result = results[name]
    assert result["got"] == "" or result["got"].startswith(("[null, ", "[[], ", "[[[[["))
    assert result["changed"] == []
    assert not result["left"]
    assert result["late"] >= (name in LASTING)
    assert result["seconds"] < 10


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_nothing_outlives_a_judge_that_is_killed(user: int) -> None:
    def killed() -> list[bool]:
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        end, mine = os.pipe()
        if not (judge := os.fork()):
            Enclosed(partial(_work, "outlive_the_judge", {}), BOUNDS, [])
            os.write(mine, b"begun")
            time.sleep(60)
        begun = os.read(end, 5) == b"begun"
        os.kill(judge, signal.SIGKILL)
        return [begun, left()]

    assert as_user(user, killed) == [True, False]


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_a_library_of_the_judge_finds_its_open_file_in_each_fork(user: int) -> None:
    def answered() -> str:
        file = os.open(__file__, os.O_RDONLY)
        facts = os.fstat(file)

        def find() -> None:  # Arrow aborts if its pipe is closed, once it has handled signals
            with suppress(OSError):
                if os.path.samestat(os.fstat(file), facts):
                    return
            os._exit(1)

        os.register_at_fork(after_in_child=find)
        with Enclosed(_echo, BOUNDS, []) as code:
            code.send(b"asked")
            return code.receive(5).decode()

    assert as_user(user, answered) == "asked"


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_a_system_without_a_part_refuses_and_names_it(user: int, tmp_path: Path) -> None:
    def refusals() -> list[str]:
        answers = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(enclosure.os, "access", lambda path, mode: False)
            answers.append(_refusal())
        os.setgroups([]) if os.getuid() == 0 else None
        ctypes.CDLL(None).unshare(0x10000000)  # a user of nowhere, who may have no namespaces
        return [*answers, _refusal()]

    unreadable, forbidden = as_user(user, refusals)
    assert "cannot be read by the user" in unreadable
    assert "namespaces (unshare): Operation not permitted" in forbidden


def _echo(requests: Any, answers: Any) -> None:
    answers.write(requests.read(5))


def _refusal() -> str:
    try:
        Enclosed(partial(_work, "fork", {}), BOUNDS, [])
    except NotEnclosed as error:
        return str(error)
    return ""
