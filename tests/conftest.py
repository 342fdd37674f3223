"""Shared helpers: a small journey that several tests look at, the real data, and hand-made inputs."""

import fcntl
import gc
import multiprocessing
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from support.faults import FaultServer
from support.helpers import drifting
from support.pages import chromium_browser

from driftline.curate.core.run_log import RunLog
from driftline.curate.core.system import collect_rarely
from driftline.pipelines.demo.journey import QUICK, demo
from driftline.stream_builder.stream import Stream

# times say nothing on a shared machine; the same examples each time: what is new is found by `make fuzz`
settings.register_profile("driftline", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
# `make fuzz`: other examples each time; failing ones stay in a folder, are tried first, and their seed is printed
settings.register_profile(
    "fuzz",
    deadline=None,
    derandomize=False,
    print_blob=True,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("DRIFTLINE_EXAMPLES", "driftline"))
with suppress(ImportError):  # older versions do not read all our source for values to try: seconds in each process
    from hypothesis.internal.conjecture import providers

    providers._get_local_constants = lambda: providers._local_constants
sys.dont_write_bytecode = False  # hundreds of processes would each compile all our source again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("DRIFTLINE_WORKERS", "1")  # of tests that do not say: to start another takes seconds
os.fsync = lambda file: None  # no test cuts the power, and each call waits for the disk
typer.main.get_command = cache(typer.main.get_command)  # it would make all commands again for each call
multiprocessing.set_forkserver_preload(  # or each worker process imports them: seconds
    ["torch", "pandas", "scipy.stats", "driftline.eval.run", "driftline.pipelines.run.runner"]
)
gc.disable()  # while modules are imported and tests collected: half of that time, and nothing of it is ever freed
PROOFS = (
    "browser", "build", "docs", "fuzz", "journey", "kills", "matrix", "paper", "processes", "real data", "server",
    "statistics",
)  # fmt: skip
MOST_PROOFS = 500
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _scripts_import_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command in this process says to its children (PYTHONSAFEPATH) is taken back after the test."""
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.delenv("PYTHONSAFEPATH")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with closing(FaultServer()) as faulty:
        yield faulty


# Files of the most seconds, most first (pytest --durations=0). Of the first three, one alone needs the journey.
LONGEST = tuple(
    f"tests/{name}.py"
    for name in (
        "test_docs", "test_wheel", "test_usda", "contracts/test_protocols", "contracts/test_learners", "test_recipes",
        "eval/test_near_future", "papers/test_seq_to_final", "eval/test_submission", "eval/test_finetuning",
        "eval/test_finetuning_analysis", "test_manual", "test_project_files",
    )
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each proof has a known reason and ten minutes, as what waits for the demo; others have one. The longest files
    first, then files with proofs: begun last, one would keep one worker busy while the other has nothing."""
    proofs = [item for item in items if item.get_closest_marker("proof")]
    for item in proofs:
        if (reason := " ".join(item.get_closest_marker("proof").args)) not in PROOFS:
            raise pytest.UsageError(f"{item.nodeid}: proof({reason!r}). Expected one of {', '.join(PROOFS)}")
    for item in items:
        if item.get_closest_marker("proof") or "journey" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(600))
    if len(proofs) > MOST_PROOFS:
        raise pytest.UsageError(f"{len(proofs)} tests are proofs. Expected at most {MOST_PROOFS}: make some cheaper")
    if seed := os.environ.get("DRIFTLINE_ORDER"):  # files, and the tests of each, in any order
        rng = random.Random(seed)
        place = {path: rng.random() for path in sorted({item.path for item in items})}
        rng.shuffle(items)
        items.sort(key=lambda item: place[item.path])
        return
    slow = {item.path for item in proofs}
    rank = {Path(__file__).parents[1] / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (rank.get(item.path, len(rank)), item.path not in slow))


def pytest_collection_finish() -> None:
    """What stays to the end is not looked at by the garbage collector again: modules and tests are millions of
    objects. Modules that tests import later, and with them a tenth of the time, are looked at rarely."""
    gc.freeze()
    collect_rarely()
    gc.enable()


def pytest_unconfigure() -> None:
    """Else DuckDB ends with a list of functions that nobody freed, below the line that says how many tests passed."""
    gc.unfreeze()


@pytest.fixture
def shared() -> Path:
    """The folder of real data; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the real data of ../shared/data is not on this machine")
    return SHARED


@pytest.fixture
def home() -> None:
    """Of tests with Avalanche, which writes a file there when it is imported."""
    if not os.access(Path.home(), os.W_OK):
        pytest.skip("a home folder that Avalanche can write into is not on this machine")


@pytest.fixture(scope="session")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished demo run folder on a tiny photo world; read only. Made once: workers of pytest-xdist copy it."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "journey"
    made.mkdir(exist_ok=True)
    with (made / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "demo" / "demo.json").is_file():  # written last
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("driftline.pipelines.demo.journey.LEARNERS", ["majority", "ridge", "nap", "finetune"])
                demo(made / "demo", replace(QUICK, seeds=1, draws=0), RunLog(quiet=True), workers=1)
    return Path(shutil.copytree(made / "demo", tmp_path_factory.mktemp("journey") / "demo"))


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


@pytest.fixture
def croissant_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder for what mlcroissant extracts: it keeps that by the name of a tar alone, in a folder that it read
    from the environment when it was imported."""
    from mlcroissant._src.operation_graph.operations import extract

    monkeypatch.setattr(extract, "EXTRACT_PATH", type(extract.EXTRACT_PATH)(tmp_path / "extracted"))
