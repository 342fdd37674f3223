"""Work on a stranger's settings in a child process: no network, few environment variables, limits."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from curate.core.atomic_io import write_json
from curate.core.errors import DriftlineError
from curate.core.registry import Registry
from eval.leaderboard.enclosure import NotEnclosed, enclose

NEW_NETWORK = 0x10000000 | 0x40000000  # CLONE_NEWUSER | CLONE_NEWNET of Linux's unshare(2)
ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
GUARDED = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")
BOOT = (
    "import json, sys; asked = json.load(sys.stdin); sys.path += asked['path']; "
    "from eval.leaderboard.isolation import child; child(asked)"
)


@dataclass(frozen=True)
class Limits:
    """What the child process may use."""

    seconds: int = 3600
    """time of the clock and of the processor, each"""
    memory: int = 32 * 2**30
    """bytes of data"""
    file: int = 4 * 2**30
    """bytes of one file"""


class Stopped(DriftlineError):
    """A child process exceeded a limit or died."""


def isolated(task: str, request: Mapping[str, Any], limits: Limits | None = None, enclosed: bool = False) -> Any:
    """The answer of a function of driftline, called in a child process. Its working folder is new and empty, and is
    removed afterwards.

    task: `module:function`, which takes the request and returns plain data. enclosed: in namespaces as well, for code
    of somebody else. Raises what the task raises, if that is an error of driftline, NotEnclosed, and else Stopped.
    """
    limits = limits or Limits()
    here = Path.cwd()
    # The working folder could hold a json.py: neither it nor "" is on the child's path; driftline itself always is.
    path = [entry for entry in sys.path if entry and Path(entry).is_absolute() and Path(entry) != here]
    asked = {"task": task, "request": request, "limits": asdict(limits), "enclosed": enclosed}
    asked["path"] = [*path, str(_home())]
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="driftline-") as folder:
        environment |= {"HOME": folder, "TMPDIR": folder}
        command = [sys.executable, "-I", "-c", BOOT]
        try:
            done = subprocess.run(
                command, input=json.dumps(asked).encode(), cwd=folder, env=environment, timeout=limits.seconds + 60,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Stopped(f"It took more than {limits.seconds} seconds.") from None
        answer = Path(folder) / "answer.json"
        if done.returncode or not answer.is_file():
            raise Stopped(f"Its process ended with code {done.returncode}: out of time, memory or file size.")
        value = json.loads(answer.read_bytes())
    if "error" in value:
        errors = {"NotEnclosed": NotEnclosed, **vars(importlib.import_module("curate.core.errors"))}
        kind = errors.get(value["error"], Stopped)
        raise kind(*value["parts"])
    return value["answer"]


def child(asked: Mapping[str, Any]) -> None:
    """The child's side: close everything, then do the task."""
    limits = asked["limits"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, value in (
        (resource.RLIMIT_CPU, limits["seconds"]),
        (resource.RLIMIT_DATA, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
    ):
        resource.setrlimit(kind, (value, value))
    close_network(own_namespace=not asked["enclosed"])
    Registry.by_path = False
    module, _, function = asked["task"].partition(":")
    try:
        if asked["enclosed"]:
            enclose(Path.cwd())
        answer = {"answer": getattr(importlib.import_module(module), function)(asked["request"])}
    except DriftlineError as error:
        answer = {"error": type(error).__name__, "parts": [error.given, error.expected, error.way_out]}
    except MemoryError:
        answer = {"error": "Stopped", "parts": [f"It needed more than {limits['memory']:,} bytes of memory.", "", ""]}
    write_json(Path("answer.json"), answer)


def close_network(own_namespace: bool = True) -> None:
    """No network for the rest of this process: an empty network namespace where the system allows one (Linux), and in
    any case a guard that refuses sockets, those of this machine included. Cannot be undone. own_namespace: False if
    `enclose` makes one."""
    if sys.platform == "linux" and own_namespace:
        ctypes.CDLL(None).unshare(NEW_NETWORK)

    def guard(event: str, _: object) -> None:
        if event in GUARDED:
            raise PermissionError(f"{event} in a process without network.")

    sys.addaudithook(guard)


def _home() -> Path:
    """The folder of driftline's packages."""
    return Path(__file__).resolve().parents[2]
