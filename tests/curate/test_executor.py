"""The executor: the same results in this process, in several processes and on Ray, also if workers die."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from support.helpers import drifting, few_of
from support.work import complain, complain_or_sleep, crash, die, die_once, gpu, pid, square

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError
from driftline.curate.core.executor import AHEAD, Executor, ahead, default_workers


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    """One node of two cores and two GPUs that are not there; to start it takes six seconds of a processor."""
    import ray

    ray.shutdown()  # another test file may have started it without the path
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATH)
        ray.init(
            address="local", num_cpus=2, num_gpus=2, include_dashboard=False, _node_ip_address="127.0.0.1",
            log_to_driver=False, logging_level="ERROR",
        )  # fmt: skip
        yield
    ray.shutdown()


TESTS = Path(__file__).resolve().parents[1]
PATH = os.pathsep.join(map(str, (TESTS, TESTS.parent)))  # Ray's workers import `support.work` by name, too
RAY = pytest.param(Executor("ray", 2), marks=pytest.mark.proof("processes"))
EXECUTORS = [Executor(), Executor(workers=2), RAY, Executor("slurm", 2)]
SLURM = TESTS / "support" / "slurm"  # sbatch, sacct, scancel, srun: stand-ins that run jobs on this machine


@pytest.fixture(autouse=True)
def cluster(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """The stand-in's folder: jobs, their states, what was cancelled."""
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{SLURM}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    if request.node.get_closest_marker("proof"):
        request.getfixturevalue("_ray")
    monkeypatch.setenv("DRIFTLINE_SLURM_FOLDER", str(folder.parent / "jobs"))
    monkeypatch.setenv("PYTHONPATH", PATH)
    monkeypatch.setattr("driftline.curate.core.executor.clusters.POLL", 0.05)
    monkeypatch.setattr("driftline.curate.core.executor.clusters.ASK", 0.2)
    return folder


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_task_has_its_result(executor: Executor) -> None:
    assert dict(executor.run_tasks(square, range(6))) == {n: n * n for n in range(6)}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_error_of_the_work_is_raised_unchanged(executor: Executor) -> None:
    with pytest.raises(BadInput, match=r"Row 2 is bad\. Expected good\."):
        list(executor.run_tasks(complain, range(4)))


@pytest.mark.parametrize("executor", EXECUTORS[1:])
def test_a_killed_worker_only_costs_time(executor: Executor, tmp_path: Path) -> None:
    tasks = [(tmp_path / "mark", n) for n in range(8)]
    assert sorted(result for _, result in executor.run_tasks(die_once, tasks)) == list(range(8))
    assert (tmp_path / "mark").exists()


def test_a_task_that_always_kills_its_worker_ends_in_a_clear_error() -> None:
    with pytest.raises(DriftlineError, match=r"row \(killed, most.* memory\); 2 tasks are not done.*lower --workers"):
        list(Executor(workers=2).run_tasks(die, [1, 2]))


def test_a_crash_is_not_called_a_lack_of_memory() -> None:
    with pytest.raises(
        DriftlineError, match=r"Worker processes died 4 times in a row \(crashed \(SIGSEGV\)\); 2 tasks"
    ):
        list(Executor(workers=2).run_tasks(crash, [1, 2]))


def test_a_slurm_job_that_always_ends_without_a_result_is_named_and_the_others_are_cancelled(cluster: Path) -> None:
    with pytest.raises(DriftlineError, match=r"Slurm ended one job 4 times \(the last time as FAILED\).*Logs: "):
        list(Executor("slurm", 2).run_tasks(die, [1, 2]))


def test_slurm_runs_as_many_jobs_at_a_time_as_workers(cluster: Path) -> None:
    list(Executor("slurm", 3).run_tasks(square, range(5)))
    assert [path.read_text() for path in cluster.glob("*.parallel")] == ["3"]
    assert not list((cluster.parent / "jobs").iterdir())  # tasks, results and logs are removed at the end


def test_what_slurm_refuses_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLURM_REFUSE", "1")
    with pytest.raises(DriftlineError, match=r"did not accept 2 jobs.*Invalid account.*SBATCH_ACCOUNT"):
        list(Executor("slurm", 2).run_tasks(square, [1, 2]))


def test_unfinished_slurm_jobs_are_cancelled(cluster: Path) -> None:
    with pytest.raises(BadInput, match="Row 0 is bad"):
        list(Executor("slurm", 2).run_tasks(complain_or_sleep, range(3)))
    (nodes,) = cluster.glob("*.pid")
    assert nodes.with_suffix(".cancelled").exists()


def test_without_slurm_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadConfig, match="sbatch, srun, sacct, scancel is not on the PATH"):
        list(Executor("slurm").run_tasks(square, [1]))
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(BadConfig, match=r"pip install 'driftline\[slurm\]'"):
        list(Executor("slurm").run_tasks(square, [1]))


def test_new_processes_are_for_many_items() -> None:
    assert [Executor(workers=4).for_items(count).workers for count in (24, 999, 1000)] == [1, 1, 4]


def test_threads_stay_in_this_process() -> None:
    assert {r for _, r in Executor(workers=2).run_tasks(pid, [1, 2], threads=True)} == {os.getpid()}
    assert os.getpid() not in {r for _, r in Executor(workers=2).run_tasks(pid, [1, 2])}


def test_a_thread_works_ahead_of_the_caller_by_a_few_items_and_in_order() -> None:
    begun: list[int] = []
    far = threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item == AHEAD:
            far.set()
        return item * item

    results = ahead(work, range(9))
    assert next(results) == 0
    assert far.wait(60), "nobody works while the caller uses the first result"
    assert begun == [*range(AHEAD + 1)]
    assert list(results) == [n * n for n in range(1, 9)]


def test_an_error_ahead_of_the_caller_comes_in_its_turn() -> None:
    results = ahead(complain, [1, 2, 3])
    assert next(results) == 1
    with pytest.raises(BadInput):
        next(results)


@pytest.mark.proof("kills")
def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from support import work as t; from driftline.curate.core.executor import Executor\n"
        "list(Executor(workers=2).run_tasks(t.sleep, [sys.argv[2] + '/a', sys.argv[2] + '/b']))\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code, str(TESTS), str(tmp_path)])
    for _ in range(200):
        if len(list(tmp_path.iterdir())) == 2:
            break
        time.sleep(0.1)
    workers = [int(path.read_text()) for path in tmp_path.iterdir()]
    run.kill()
    run.wait()
    for _ in range(100):
        if not any(Path(f"/proc/{n}").exists() for n in workers):
            return
        time.sleep(0.1)
    pytest.fail("the workers are still alive")


def test_a_script_needs_no_guard_around_its_work(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(TESTS)!r})\n"
        "from support.work import square; from driftline.curate.core.executor import Executor\n"
        "print(sorted(r for _, r in Executor(workers=2).run_tasks(square, range(4))))\n"
    )
    env = os.environ | {"PYTHONPATH": str(TESTS.parent)}
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=env).stdout
    assert printed == "[0, 1, 4, 9]\n"


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And Ray would report no usage unless the user wants it."""
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadConfig, match=r"pip install 'driftline\[ray\]'"):
        list(Executor("ray").run_tasks(square, [1]))
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_local_workers_are_distributed_over_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")

    found = dict(Executor(workers=2).run_tasks(gpu, [0.5] * 4, gpus=1))

    assert {gpus for gpus, _ in found.values()} == {"4", "7"}


@pytest.mark.proof("processes")
def test_ray_gives_each_task_a_gpu_of_its_own() -> None:
    found = dict(Executor("ray", 2).run_tasks(gpu, [0.5] * 4, gpus=1))
    assert {gpus for gpus, _ in found.values()} == {"0", "1"}
    assert len({pid for _, pid in found.values()}) == 2  # processes are reused, with the models that they have loaded


RUN = "from driftline.curate.core.executor import Executor; from support.work import square; "
RUN += "print(sorted(Executor({}).run_tasks(square, range(3))))"
EVAL = ["eval", "S", "--protocol", "clear-iid", "--learners", "majority", "--seeds", "0-1", "--workers", "2"]


WORDS = {
    "console": [Path(sys.executable).with_name("driftline"), *EVAL, "--out", "rows"],
    "module": [sys.executable, "-m", "driftline", "list", "protocols"],
    "processes": [sys.executable, RUN.format("workers=2")],
    "ray": [sys.executable, RUN.format("'ray', 2")],
}


@pytest.mark.parametrize("way", few_of(WORDS, ["module", "processes"], "processes"))
def test_nothing_beside_the_photos_is_imported(way: str, tmp_path: Path) -> None:
    """A file for every module of Python and of the packages here, by name."""
    words: list[Any] = WORDS[way]
    if words[1].startswith("from "):
        (tmp_path / "scripts").mkdir()
        (tmp_path / "scripts" / "script.py").write_text(words[1])
        words = [words[0], "scripts/script.py"]
    environment = os.environ | {"PYTHONPATH": PATH}
    environment.pop("PYTHONSAFEPATH", None)
    given: dict[str, Any] = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    drifting(steps=2, n=8).save(tmp_path / "S")
    names = {*sys.stdlib_module_names, *packages_distributions(), *(name.partition(".")[0] for name in sys.modules)}
    names -= {"driftline"}  # `python -m driftline` takes that one from here, which only -P prevents
    for name in filter(str.isidentifier, names):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path)!r} + '/imported-{name}', 'w')\n")
    done = subprocess.run(words, check=False, **given)
    assert [path.name for path in tmp_path.glob("imported-*")] == []
    assert done.returncode == 0, done.stderr


def test_a_variable_says_how_many_workers_there_are_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTLINE_WORKERS", "3")
    assert default_workers() == 3
    monkeypatch.delenv("DRIFTLINE_WORKERS")
    assert default_workers() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("given", ["0", "many", "-1", "257"])
def test_another_number_of_workers_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTLINE_WORKERS", given)
    with pytest.raises(BadConfig, match=f"DRIFTLINE_WORKERS is '{given}'. Expected a number from 1 to 256"):
        default_workers()
