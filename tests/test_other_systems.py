"""What Linux or POSIX has and Windows has not is called in one room, which says so where it cannot work."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from test_imports import FILES, ROOT

from driftline.curate.core import system as calls
from driftline.curate.core.atomic_io import locked

ROOM = ROOT / "curate" / "core" / "system.py"
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "msvcrt", "winreg"}
NAMES = {
    *("fork", "forkpty", "waitpid", "WNOHANG", "killpg", "setsid", "setpgid", "getpgid", "nice", "prctl"),
    *("getuid", "geteuid", "getgid", "getegid", "setuid", "setgid", "chown", "fchown", "chroot", "mkfifo", "mknod"),
    *("pread", "preadv", "pwrite", "pwritev", "sendfile", "posix_fadvise", "posix_fallocate", "copy_file_range"),
    *("sched_getaffinity", "sched_setaffinity", "unshare", "setns", "memfd_create", "getloadavg", "sysconf"),
    *("statvfs", "fchdir", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "add_signal_handler", "tzset"),
    *("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGPIPE", "SIGALRM", "AF_UNIX", "preexec_fn"),
}
PLACES = ("/proc", "/dev/", "/sys/", "/etc/", "/usr/", "/tmp", "/var/", "/home/")
NAMED = {"curate/sources/yfcc/__init__.py"}  # a part of an address


def used(path: Path) -> set[str]:
    """Modules, names and places of one system only that a file uses."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} & MODULES
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & NAMES
        elif isinstance(node, ast.keyword):
            found |= {str(node.arg)} & NAMES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value} if node.value.startswith(PLACES) else set()
    return found


def test_calls_of_one_system_are_in_one_room() -> None:
    found = {str(path.relative_to(ROOT)): used(path) for path in FILES if path != ROOM}
    assert {name: names for name, names in found.items() if names} == {}
    assert {"fcntl", "pread"} <= used(ROOM)


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: none of the modules and names above. pytest itself needs them to make tmp_path."""
    monkeypatch.setattr(calls, "POSIX", False)
    monkeypatch.setattr(calls, "LINUX", False)
    monkeypatch.setattr(sys, "platform", "win32")
    for name in NAMES:
        monkeypatch.delattr(f"os.{name}", raising=False)
    monkeypatch.delattr(calls, "fcntl")


def test_what_windows_cannot_do_says_so(windows: None, tmp_path: Path) -> None:
    with pytest.raises(calls.NotHere, match=r"does not work on win32\. Expected Linux or macOS\. On Windows use WSL\."):
        locked(tmp_path).__enter__()


def test_what_windows_does_another_way(windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert (calls.cores(), calls.busy_cores(), calls.memory()) == (8, 0, None)
    (tmp_path / "a").write_bytes(b"0123456789")
    with (tmp_path / "a").open("rb") as file:
        assert calls.read_at(file.fileno(), 3, 4) == b"456"
        view = memoryview(bytearray(4))
        assert (calls.read_into(file.fileno(), view, 8), bytes(view[:2])) == (2, b"89")
    calls.sync_folder(tmp_path)


def test_a_module_of_one_system_is_asked_for_and_not_needed() -> None:
    """The room can be imported where neither module exists."""
    text = ROOM.read_text(encoding="utf-8")
    space: dict[str, Any] = {"__name__": "calls"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fcntl", None)
        exec(compile(text, "calls.py", "exec", dont_inherit=True), space)
    assert space["POSIX"] is False
