"""Shared helpers: a small journey that several tests look at, the real data, and hand-made inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from support.helpers import drifting

from curate.core.run_log import RunLog
from pipelines.demo.journey import Scale, demo
from stream_builder.stream import Stream

settings.register_profile("driftline", deadline=None)  # times say nothing on a shared machine
settings.load_profile("driftline")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: begun last, one would keep one worker busy while the other has nothing."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture
def shared() -> Path:
    """The folder of real data; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the real data of ../shared/data is not on this machine")
    return SHARED


@pytest.fixture(scope="session")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished demo run folder on a tiny photo world; read only."""
    out = tmp_path_factory.mktemp("journey") / "demo"
    demo(out, Scale(records=1600, asked=14, published=4, seeds=2), RunLog(quiet=True))
    return out


@pytest.fixture
def stream() -> Stream:
    """Four steps, three classes, eight features."""
    return drifting()


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Write lines into a file of the test's own folder."""

    def write(*lines: str, name: str = "dataset.tsv") -> Path:
        path = tmp_path / name
        path.write_bytes("".join(line + "\n" for line in lines).encode())
        return path

    return write
