"""A stranger's settings run without network, environment, memory, disk and time beyond limits."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline.curate.core.errors import BadConfig, MissingFile
from driftline.eval.experiment.settings import check_settings, setting_names
from driftline.eval.leaderboard.isolation import ENVIRONMENT, Limits, Stopped, isolated, isolated_each
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS


def test_no_server_of_this_machine_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        assert isolated("support.prisoner:call", {"port": server.getsockname()[1]}) == "PermissionError"
        with pytest.raises(TimeoutError):
            server.accept()


def test_no_variable_of_the_environment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    seen = isolated("support.prisoner:environment", {})
    assert set(seen) <= {*ENVIRONMENT, "HOME", "TMPDIR", "LC_CTYPE"}


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are enforced on Linux")
def test_memory_is_limited() -> None:
    with pytest.raises(Stopped, match="1,073,741,824 bytes of memory"):
        isolated("support.prisoner:allocate", {"bytes": 2**31}, Limits(memory=2**30))


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_no_capability_is_left() -> None:
    rights = dict(line.split(":\t") for line in isolated("support.prisoner:rights", {}))
    assert rights == {"CapPrm": "0" * 16, "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}


def test_files_are_limited() -> None:
    with pytest.raises(Stopped, match="file size"):
        isolated("support.prisoner:fill", {"bytes": 2**21}, Limits(file=2**20))


def test_time_is_limited() -> None:
    with pytest.raises(Stopped, match="out of time"):
        isolated("support.prisoner:spin", {}, Limits(seconds=1))


def test_the_working_folder_is_new_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    place, *content = isolated("support.prisoner:folder", {})
    assert content == []
    assert not Path(place).exists()


def test_of_several_requests_each_has_its_own_process_folder_and_limits() -> None:
    big, *small = isolated_each("support.prisoner:folder", [{"bytes": 2**34}, {}, {}], Limits(memory=2**33))
    assert isinstance(big, Stopped)
    assert len({place for place, *_ in small}) == 2
    assert [content for _, *content in small] == [[], []]


def test_errors_of_driftline_come_back() -> None:
    request = {"archive": "/nowhere/a.zip", "streams": []}
    with pytest.raises(MissingFile, match=r"There is no submission /nowhere/a.zip\. Make one with driftline submit"):
        isolated("driftline.eval.leaderboard.verification:examined", request)


OUTSIDE = {"endpoint", "model", "weights", "key_env", "ledger", "folder", "path", "file", "url", "store"}
KINDS = {f"{kinds.kind} {name}": kinds[name] for kinds in (LEARNERS, PROTOCOLS) for name in kinds}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_setting_that_may_name_something_outside_is_declared(kind: Any) -> None:
    assert {name for name in setting_names(kind) if name in OUTSIDE and _any_text(kind, name)} <= set(kind.reaches)


def _any_text(kind: Any, name: str) -> bool:
    """Whether a setting takes any text, instead of one of its choices."""
    try:
        return bool(check_settings(kind, {name: "/etc/passwd"}))
    except BadConfig:
        return False
