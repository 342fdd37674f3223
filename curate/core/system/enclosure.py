"""A process of somebody else's code on Linux, and two pipes to it.

The code runs in namespaces: a network without an interface, no other process, and a root of its own with what it may
read, five devices, and /tmp and /run in a file system of bounded size. It can start threads, but no process; so the
limits of one process are those of the whole. Its parent is the first process of the namespace: with it all die, and
it dies with us. If we are root, the code is nobody.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.system import rights, seccomp
from driftline.curate.core.system.calls import as_one_process, die_with_parent, duplicate, map_user

USER, NAMESPACES = 0x10000000, 0x6E020000  # of unshare(2): mounts, processes, network, messages, names, cgroups
NO_SET_USER, NO_DEVICES, NO_PROGRAMS = 2, 4, 8  # of mount(2), and MOUNT_ATTR_… of mount_setattr(2)
BIND, RECURSIVE, PRIVATE, DETACH = 0x1000, 0x4000, 0x40000, 2
MOUNT_SETATTR, HERE, ALL_BELOW, READ_ONLY = 442, -100, 0x8000, 1
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
DEVICES = ("null", "zero", "full", "random", "urandom")
SYSTEM = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime",
          "/usr/share/zoneinfo", "/sys/devices/system")  # fmt: skip
OWN = ("tmp", "run")  # folders that the code may write
NOBODY = 65534
THREADS, FILES, INODES = 1024, 1024, 10_000
TAIL, PART = 2000, 65536  # bytes of the output that are remembered, and that are read at once
READY = b"ready\n"


class NotEnclosed(DriftlineError):
    """This system lacks a part of the enclosure, or does not allow it."""


@dataclass(frozen=True)
class Bounds:
    """What the code may use, all its threads together."""

    seconds: float
    """of the clock"""
    memory: int
    """bytes, files not included"""
    disk: int
    """bytes of its files, which are in memory, too"""


class Enclosed:
    """Runs `work(requests, answers)` on the other ends of two pipes until the block of `with` ends.

    readable: files and folders that it may read besides Python and its packages. anywhere: where namespaces are
    forbidden, as in most containers, do with less: the same process without its own root, network and /tmp, which
    Landlock keeps from every file that it may not read, and which writes none. Raises NotEnclosed, which says which
    part is missing.
    """

    def __init__(
        self, work: Callable[[BinaryIO, BinaryIO], None], bounds: Bounds, readable: Sequence[Path],
        anywhere: bool = False,
    ) -> None:  # fmt: skip
        if sys.platform != "linux":
            raise _refused(f"this system is {sys.platform}")
        self.bounds, self._tail, self.late = bounds, b"", False
        if problem := self._start(work, readable, _in_namespaces):
            if not anywhere:
                raise _refused(problem)
            if second := self._start(work, readable, _in_place):
                raise _refused(f"{problem}; and without namespaces: {second}")

    def _start(
        self, work: Callable[[BinaryIO, BinaryIO], None], readable: Sequence[Path],
        wall: Callable[[ctypes.CDLL, Sequence[Path], Bounds], None],
    ) -> str:  # fmt: skip
        """The part that is missing, or "" if the code runs."""
        (theirs, to_them), (from_them, answers), (printed, output) = (os.pipe() for _ in range(3))
        us = os.getpid()
        if not (process := os.fork()):
            try:
                die_with_parent(us)
                _become(theirs, answers, output, readable, self.bounds, wall)
                with os.fdopen(3, "rb") as requests, os.fdopen(4, "wb") as written:
                    work(requests, written)
                code = 0
            except BaseException as error:  # the code's own, whatever it is
                os.write(2, "".join(traceback.format_exception_only(error)).encode(errors="replace")[-TAIL:])
                code = 1
            os._exit(code)
        for handle in (theirs, answers, output):
            os.close(handle)
        self._process, self._said = process, printed
        self._requests, self._answers = os.fdopen(to_them, "wb"), os.fdopen(from_them, "rb")
        self._timer = threading.Timer(self.bounds.seconds, self._stop)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        if (line := self._answers.readline(500)) == READY:
            return ""
        self.close()
        return line.decode(errors="replace").strip() or "the process ended"

    def receive(self, size: int) -> bytes:
        """The next `size` bytes that the code writes; fewer if it ends before."""
        data = bytearray()
        while len(data) < size and (part := self._answers.read(min(size - len(data), PART))):
            data += part
        return bytes(data)

    def send(self, data: bytes | memoryview) -> None:
        """Raises BrokenPipeError if the code has ended."""
        self._requests.write(data)
        self._requests.flush()

    @property
    def output(self) -> str:
        """The end of what the code printed: one line, escaped, at most 200 characters. Complete after the block."""
        return ascii(self._tail.decode(errors="replace").strip()[-180:])[:200]

    def __enter__(self) -> Self:
        self._timer.start()
        self._listener.start()  # not before: a process with threads should not be forked
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()

    def close(self) -> None:
        """Kill all of it; a second call does nothing."""
        if self._answers.closed:
            return
        self._timer.cancel()
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        if self._listener.ident is None:
            os.close(self._said)
        else:
            self._listener.join()  # the pipe ends with the last process
        self._answers.close()
        with suppress(BrokenPipeError):
            self._requests.close()

    def _stop(self) -> None:
        self.late = True
        os.kill(self._process, signal.SIGKILL)

    def _listen(self) -> None:
        while data := os.read(self._said, PART):
            self._tail = (self._tail + data)[-TAIL:]
        os.close(self._said)


def _become(
    requests: int, answers: int, output: int, readable: Sequence[Path], bounds: Bounds,
    wall: Callable[[ctypes.CDLL, Sequence[Path], Bounds], None],
) -> None:  # fmt: skip
    """Everything between fork and code. Ends the process where a part cannot be had, with one line that says which."""
    try:
        os.setsid()  # no terminal whose keys could be typed
        nothing = os.open(os.devnull, os.O_RDONLY)
        *streams, requests, answers = duplicate([nothing, output, output, requests, answers])
        for number, handle in enumerate(streams):
            os.dup2(handle, number, inheritable=False)
        sys.stdout = sys.stderr = os.fdopen(1, "w", 1, errors="backslashreplace", closefd=False)
        libc = ctypes.CDLL(None, use_errno=True)
        paths = _existing(readable)
        wall(libc, paths, bounds)
        if unreadable := next((p for p in paths if not os.access(p, os.R_OK | (os.X_OK if p.is_dir() else 0))), None):
            raise OSError(f"{unreadable} cannot be read by the user {os.getuid()}")
        # not before the last fork: in each, Arrow and libuv (in torch) close their files by number, and Arrow may abort
        os.dup2(requests, 3, inheritable=False)
        answers = os.dup2(answers, 4, inheritable=False)
        os.closerange(5, 65536)
        as_one_process(bounds.memory, bounds.disk, THREADS, FILES)
        rights.drop_rights(libc)
        seccomp.forbid_calls(libc, seccomp.OF_FILES if wall is _in_place else {})
    except OSError as error:
        what = f"{error.filename or error}: {error.strerror}" if error.strerror else str(error)
        os.write(answers, what.encode()[:400] + b"\n")
        os._exit(1)
    os.environ.update(HOME="/tmp", TMPDIR="/tmp")
    os.write(answers, READY)


def _existing(readable: Sequence[Path]) -> list[Path]:
    """What the code may read: these, Python and the packages that are installed, driftline, and the system's libraries,
    by each of their names; none that is below another one. No other folder of the import path: it may be anything."""
    package = Path(__file__).absolute().parents[3]
    installed = [place for place in sys.path if {"site-packages", "dist-packages"} & {*Path(place).parts}]
    names = [*readable, *map(Path, installed), Path(sys.base_prefix, "lib"), *map(Path, SYSTEM), package]
    if (package / "curate").is_symlink():  # of a checkout
        names += [folder for folder in package.iterdir() if folder.is_dir()]
    both = {path for name in names for path in (name.absolute(), name.resolve()) if path.exists()}
    return sorted(path for path in both if not any(parent in both for parent in path.parents))


def _in_namespaces(libc: ctypes.CDLL, readable: Sequence[Path], bounds: Bounds) -> None:
    """Go on as the second process of new namespaces, in a root with nothing but `readable`."""
    root, user, group = os.geteuid() == 0, os.getuid(), os.getgid()
    rights.called(libc.unshare(NAMESPACES | (0 if root else USER)), "namespaces (unshare)")
    if not root:
        map_user(user, group)
    alive, holder = os.pipe()
    _parent_of(os.fork(), holder)
    die_with_parent(os.getppid())
    os.close(holder)
    os.set_blocking(alive, False)
    with suppress(BlockingIOError):  # an end: the parent died before the call took effect
        os._exit(len(os.read(alive, 1)))
    os.close(alive)
    _own_root(libc, readable, bounds)
    _parent_of(os.fork())
    if root:
        _become_nobody()
    os.chdir("/tmp")


def _parent_of(child: int, held: int = 0) -> None:
    """What a parent does until its child ends: hold one open file, and no other."""
    if child:
        os.closerange(0, held)
        os.closerange(held + 1, 65536)
        code = 1
        while True:
            try:
                process, status = os.wait()
            except ChildProcessError:
                os._exit(code)
            if process == child:
                code = abs(os.waitstatus_to_exitcode(status))


def _own_root(libc: ctypes.CDLL, readable: Sequence[Path], bounds: Bounds) -> None:
    """Replace the root by a small file system in memory, and forget the old one."""

    def mount(source: str, place: str, kind: str | None, flags: int, data: str = "") -> None:
        texts = [os.fsencode(text) if text else None for text in (source, place, kind, data)]
        rights.called(libc.mount(texts[0], texts[1], texts[2], flags, texts[3]), f"mount of {place}")

    def allow(place: str, attributes: int, below: int = ALL_BELOW) -> None:
        packed = struct.pack("QQQQ", attributes, 0, 0, 0)
        code = libc.syscall(MOUNT_SETATTR, HERE, os.fsencode(place), below, packed, len(packed))
        rights.called(code, f"mount_setattr of {place}")

    def bind(source: str, place: str, attributes: int) -> None:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_dir():
            Path(place).mkdir(exist_ok=True)
        else:
            Path(place).touch()
        mount(source, place, None, BIND | RECURSIVE)
        allow(place, attributes)

    sources = [(path.resolve(), path) for path in readable]
    os.umask(0o022)
    mount("none", "/", None, RECURSIVE | PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", NO_SET_USER | NO_DEVICES, f"size={bounds.disk},nr_inodes={INODES},mode=755")
    os.mkdir("/tmp/old")
    rights.called(libc.syscall(PIVOT_ROOT[platform.machine()], b"/tmp", b"/tmp/old"), "pivot_root")
    os.chdir("/")
    for source, path in sources:
        bind(f"/old{source}", str(path), READ_ONLY | NO_SET_USER | NO_DEVICES)
    for name in DEVICES:
        bind(f"/old/dev/{name}", f"/dev/{name}", NO_SET_USER | NO_PROGRAMS)
    os.mkdir("/proc")
    mount("proc", "/proc", "proc", NO_SET_USER | NO_DEVICES | NO_PROGRAMS)
    allow("/proc", READ_ONLY)
    for name in OWN:
        Path("/", name).mkdir(exist_ok=True)
        os.chmod(f"/{name}", 0o1777)
        mount(f"/{name}", f"/{name}", None, BIND | RECURSIVE)
    rights.called(libc.umount2(b"/old", DETACH), "umount2")
    os.rmdir("/old")
    allow("/", READ_ONLY, below=0)


def _in_place(libc: ctypes.CDLL, readable: Sequence[Path], bounds: Bounds) -> None:
    """Without namespaces: Landlock keeps the files, the filter of calls the rest."""
    if os.geteuid() == 0:
        _become_nobody()
    os.chdir("/")
    own = [Path("/proc", str(os.getpid())), Path("/proc/cpuinfo"), Path("/proc/meminfo"), Path("/dev/urandom")]
    rights.drop_rights(libc)
    rights.only_read(libc, [*readable, *own], [Path("/dev/null")])


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _refused(because: str) -> NotEnclosed:
    return NotEnclosed(
        f"Code of a submission cannot be enclosed here: {because}.",
        "Expected Linux 5.12 or later that allows namespaces.",
        "Verify without --run-code, or on a machine that allows unprivileged user namespaces.",
    )
