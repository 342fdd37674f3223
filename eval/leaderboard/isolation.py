"""Work on a stranger's settings in a child process: no network, few environment variables, limits."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.registry import Registry
from driftline.curate.core.system.calls import (
    collect_rarely,
    die_with_parent,
    forked,
    leave_network,
    leave_rights,
    limit,
)
from driftline.curate.core.system.enclosure import NotEnclosed
from driftline.eval.protocol import protocol_named

ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
HEAVY = ("torch", "pandas", "scipy.stats")  # imported once for several runs
GUARDED = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")
TRUSTED: list[str] = []  # protocols of the user's own, as `package.module:Name`, which child processes import, too
BOOT = (
    "import json, sys; asked = json.load(sys.stdin); sys.path += asked['path']; "
    "from driftline.eval.leaderboard.isolation import child; child(asked)"
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


def isolated(task: str, request: Mapping[str, Any], limits: Limits | None = None) -> Any:
    """The answer of a function of driftline, called in a child process. Its working folder is new and empty, and is
    removed afterwards.

    task: `module:function`, which takes the request and returns plain data. Raises what the task raises, if that is an
    error of driftline, and else Stopped.
    """
    (answer,) = isolated_each(task, [request], limits)
    if isinstance(answer, DriftlineError):
        raise answer
    return answer


def isolated_each(task: str, requests: Sequence[Mapping[str, Any]], limits: Limits | None = None) -> list[Any]:
    """Like `isolated` for several requests, each in a process of its own with all limits; in place of an answer stands
    the error. The processes are forked from one that has the imports, because those take longer than a small run."""
    limits = limits or Limits()
    here = Path.cwd()
    # The working folder could hold a json.py: neither it nor "" is on the child's path; driftline itself always is.
    path = [entry for entry in sys.path if entry and Path(entry).is_absolute() and Path(entry) != here]
    home = Path(__file__).absolute().parents[3]  # the folder that holds the package driftline
    asked = {"task": task, "requests": list(requests), "limits": asdict(limits), "parent": os.getpid()}
    asked |= {"path": [*path, str(home), *([str(here)] if TRUSTED else [])], "trusted": TRUSTED}
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="driftline-") as folder:
        environment |= {"HOME": folder, "TMPDIR": folder}
        subprocess.run(
            [sys.executable, "-I", "-c", BOOT], input=json.dumps(asked).encode(), cwd=folder, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, start_new_session=True,
        )  # fmt: skip
        return [_answer(Path(folder, str(number)), limits) for number in range(len(requests))]


def _answer(folder: Path, limits: Limits) -> Any:
    """What a process left in its folder: its answer, or an error."""
    answer, code = folder / "answer.json", folder.with_suffix(".code")
    ended = code.read_text() if code.is_file() else "unknown"
    if ended == "late":
        return Stopped(f"It took more than {limits.seconds} seconds.")
    if ended != "0" or not answer.is_file():
        return Stopped(f"Its process ended with code {ended}: out of time, memory or file size.")
    value = json.loads(answer.read_bytes())
    if "error" not in value:
        return value["answer"]
    errors = {"NotEnclosed": NotEnclosed, **vars(importlib.import_module("driftline.curate.core.errors"))}
    return errors.get(value["error"], Stopped)(*value["parts"])


def trust(plugin: str) -> None:
    """Admit a protocol of the user's own, as `package.module:Name`, here and in child processes: rows then may name it.
    Raises UnknownName and BadPlugin."""
    protocol_named(protocol_named(plugin)[1])  # rows name the class or, from a command line, package.module:Name
    TRUSTED.append(plugin)


def child(asked: Mapping[str, Any]) -> None:
    """The child's side: close everything, then fork a process for each request."""
    die_with_parent(asked["parent"])
    collect_rarely()
    limits = asked["limits"]
    limit(limits["seconds"], limits["memory"], limits["file"])
    close_network()
    for plugin in asked["trusted"]:
        trust(plugin)
    Registry.by_path = False
    module, _, name = asked["task"].partition(":")
    function = getattr(importlib.import_module(module), name)
    if len(asked["requests"]) > 1:
        for heavy in HEAVY:
            importlib.import_module(heavy)
    for number, request in enumerate(asked["requests"]):
        folder = Path.cwd() / str(number)
        folder.mkdir()
        ended = forked(partial(_do, folder, function, request, asked), limits["seconds"] + 60)
        folder.with_suffix(".code").write_text(ended)


def _do(
    folder: Path, function: Callable[[Mapping[str, Any]], Any], request: Mapping[str, Any], asked: Mapping[str, Any]
) -> None:
    """What a forked process does: its own folder is its home, into which it writes the answer, or the error. Any other
    error ends the process."""
    os.chdir(folder)
    os.environ |= {"HOME": str(folder), "TMPDIR": str(folder)}
    tempfile.tempdir = None
    if not request.get("code"):  # which only root can enclose as nobody
        leave_rights()
    try:
        answer = {"answer": function(request)}
    except DriftlineError as error:
        answer = {"error": type(error).__name__, "parts": [error.given, error.expected, error.way_out]}
    except MemoryError:
        memory = asked["limits"]["memory"]
        answer = {"error": "Stopped", "parts": [f"It needed more than {memory:,} bytes of memory.", "", ""]}
    except BaseException:
        os._exit(1)
    write_json(Path("answer.json"), answer)


def close_network() -> None:
    """No network for the rest of this process: an empty network namespace where the system allows one (Linux), and in
    any case a guard that refuses sockets, those of this machine included. Cannot be undone."""
    leave_network()

    def guard(event: str, _: object) -> None:
        if event in GUARDED:
            raise PermissionError(f"{event} in a process without network.")

    sys.addaudithook(guard)
