"""What a hostile run would like to do; called in the child process of `isolated`."""

from __future__ import annotations

import os
import socket
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


def rights(request: Mapping[str, Any]) -> list[str]:
    """Lines of what the kernel says of its capabilities, and of those that a program could give it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("CapEff", "CapPrm", "CapBnd", "NoNewPrivs"))]
