"""What a hostile run would like to do; called in the child process of `isolated`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def call(request: Mapping[str, Any]) -> str:
    """Connect to a server of this machine."""
    try:
        socket.create_connection(("127.0.0.1", request["port"]), 2)
    except OSError as error:
        return type(error).__name__
    return "connected"


def environment(request: Mapping[str, Any]) -> list[str]:
    """Names of all environment variables."""
    return sorted(os.environ)


def allocate(request: Mapping[str, Any]) -> int:
    """Use memory."""
    return len(bytearray(request["bytes"]))


def fill(request: Mapping[str, Any]) -> int:
    """Write a large file."""
    return Path("large").write_bytes(bytes(request["bytes"]))


def spin(request: Mapping[str, Any]) -> None:
    """Never end."""
    while True:
        pass


def folder(request: Mapping[str, Any]) -> list[str]:
    """Where it runs, and what is there, after some memory was used."""
    allocate({"bytes": request.get("bytes", 0)})
    return [os.getcwd(), *os.listdir()]


def escape(request: Mapping[str, Any]) -> dict[str, str]:
    """What somebody's code can do that starts programs of its own, which no guard in Python sees."""
    tried = {
        "write": f"open({request['outside']!r}, 'w')",
        "change": f"open({request['file']!r}, 'a')",
        "network": f"import socket; socket.create_connection(('127.0.0.1', {request['port']}), 2)",
        "processes": f"open('/proc/{request['process']}/environ', 'rb')",
        "kill": f"import os; os.kill({request['process']}, 0)",
        "mount": f"import os; os.system('mount -o remount,rw,bind /'); open({request['outside']!r}, 'w')",
        "folder": "open('mine', 'w')",
    }
    done = {what: subprocess.run([sys.executable, "-c", code], capture_output=True) for what, code in tried.items()}
    last = {what: (run.stderr.decode().splitlines() or ["done"])[-1].partition(":")[0] for what, run in done.items()}
    return last
