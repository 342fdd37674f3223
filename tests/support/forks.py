"""One process has imported what commands need, which takes seconds; those that tests start are forked from it. Workers
of pytest-xdist share it: each stays connected, and it ends with the last of them."""

import atexit
import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

NEEDED = (
    "torch", "open_clip", "duckdb", "pandas", "pyarrow.parquet", "scipy.stats", "faiss",
    *(f"driftline.pipelines.{name}" for name in ("cli", "run.runner", "config.loader")),
    "driftline.curate.release.format", "driftline.stream_builder.builders.shift_sequence",
    *(f"driftline.eval.{name}" for name in ("run", "leaderboard.verification", "reporting.report")),
    "driftline.eval.protocols.seq_to_final.protocol",
)  # fmt: skip
SESSION = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
PLACE = Path(tempfile.gettempdir()) / f"driftline-{SESSION}.socket"


class Running:
    """A forked process: the part of `subprocess.Popen` that tests need."""

    def __init__(self, job: Callable[..., Any], *given: Any) -> None:
        _kept()
        self._server = _connected()
        self._server.send((job, given))
        self.pid: int = self._server.recv()
        self._code: int | None = None

    def poll(self) -> int | None:
        """Exit code, minus the signal that ended it; None while it runs."""
        if self._code is None and self._server.poll():
            self._code = self._server.recv()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Exit code. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            self._server.poll(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("driftline", timeout or 0)
        return code

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@cache
def _kept() -> Connection:
    """The connection that this process keeps to its end. The first one starts the server."""
    with suppress(OSError, EOFError):
        return _connected()
    code = f"import sys; sys.path[:] = {sys.path!r}; from support.forks import serve; serve({str(PLACE)!r})"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    large_pages = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # there is less to copy for a fork
    server = subprocess.Popen([sys.executable, "-c", code], **quiet, env=large_pages, start_new_session=True)
    assert server.stdout is not None
    server.stdout.readline()  # it listens, or it has ended because another does
    return _connected()


def _connected() -> Connection:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(PLACE))
        server = Connection(one.detach())
    assert server.recv() == "welcome"
    return server


def serve(place: str) -> None:
    """Fork a process for each request, until nobody is connected. Where another server listens, nothing is done."""
    global PLACE  # forks ask here, too
    PLACE = Path(place)
    own = f"{place}{os.getpid()}"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(own)
    listening.listen(1024)
    try:
        os.link(own, place)
    except FileExistsError:
        return
    finally:
        os.unlink(own)
    print("listening", flush=True)
    gc.disable()
    needless = ("wandb", "transformers")  # timm and open_clip would import them, and do without: two seconds
    sys.modules.update(dict.fromkeys(needless))  # type: ignore[arg-type]
    for name in NEEDED:
        import_module(name)
    for name in needless:
        del sys.modules[name]
    gc.freeze()  # what the imports made stays: to look at it would copy all of it into each process
    gc.enable()
    fork = multiprocessing.get_context("fork")
    connected: set[Connection] = set()
    running: dict[int, tuple[Any, Connection]] = {}
    while True:
        for one in wait([listening, *connected, *running]):
            if isinstance(one, socket.socket):
                connected.add(asker := Connection(listening.accept()[0].detach()))
                _tell(asker, "welcome")
            elif isinstance(one, Connection):
                try:
                    request = one.recv()
                except (OSError, EOFError):
                    connected.remove(one)
                    one.close()
                    continue
                process = fork.Process(target=_call, args=(*request, [listening, *connected]))
                process.start()
                running[process.sentinel] = (process, one)
                _tell(one, process.pid)
            elif isinstance(one, int):
                process, asked = running.pop(one)
                process.join()
                _tell(asked, process.exitcode)
        if not connected:
            os.unlink(place)
            os._exit(0)  # without taking apart what is imported


def _tell(asker: Connection, what: object) -> None:
    with suppress(OSError):  # who asked may be gone
        asker.send(what)


def _call(job: Callable[..., Any], given: Iterable[Any], others: Iterable[socket.socket | Connection]) -> None:
    for one in others:
        one.close()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined] # the server's, and none of this process's
    os.setsid()
    try:
        job(*given)
    finally:
        atexit._run_exitfuncs()
