"""What only Linux or only POSIX has is used in the files that are named here, and nowhere else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from test_imports import FILES, ROOT

ONLY_POSIX = {"fcntl", "resource", "pwd", "grp", "termios", "pty"}
ONLY_LINUX = {"sched_getaffinity", "sched_setaffinity", "fork", "unshare", "setns", "memfd_create", "prctl"}
ALLOWED = {
    "pipelines/runner.py": {"fcntl"},  # one process works on a run folder
    "eval/memory/correction_ledger.py": {"fcntl"},  # one process writes a ledger
    "eval/finetuning/fit_cache.py": {"fcntl"},  # one process fits what several need
    "eval/leaderboard/isolation.py": {"resource", "fork", "unshare"},  # a stranger's submission, in Linux's namespaces
    "eval/leaderboard/enclosure.py": {"fork", "prctl", "unshare"},
    "curate/core/executor/local.py": {"sched_getaffinity", "prctl"},  # each behind a question for the system
}


def used(path: Path) -> set[str]:
    """Modules and names of one system only that a file uses."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & ONLY_POSIX
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} & ONLY_POSIX
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & ONLY_LINUX
    return found


def test_one_systems_calls_are_where_they_may_be() -> None:
    found = {str(path.relative_to(ROOT)): used(path) for path in FILES}
    strays = {name: sorted(names - ALLOWED.get(name, set())) for name, names in found.items()}
    assert {name: names for name, names in strays.items() if names} == {}
    assert {name for name, names in ALLOWED.items() if names - found[name]} == set(), "no longer needed there"


def test_cores_are_counted_where_the_system_has_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    from curate.core.executor import local

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert local.cores() == 8
