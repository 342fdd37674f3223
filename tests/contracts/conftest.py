"""The package of somebody else, and small runs: for the tests of plug-ins."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.plugins import importable, install_mybench
from support.small_runs import unpacked


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that holds the package; it is installed while the tests of a file run."""
    folder = install_mybench(tmp_path_factory.mktemp("site-packages"))
    with importable(folder):
        yield folder


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one that waits for answers, and a stream of features."""
    folder = tmp_path_factory.mktemp("fixtures")
    for name in ("finished", "waiting", "finished-stream"):
        unpacked(name, folder)
    return folder
