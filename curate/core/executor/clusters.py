"""Tasks on several machines: as Ray tasks, or as Slurm job arrays through submitit, one job a task.

Ray: on the cluster of RAY_ADDRESS or on a local node. Slurm: time, memory, partition and account are sbatch's own
variables (SBATCH_TIMELIMIT, SBATCH_PARTITION, …); a job that the cluster ends (time limit, lost node, preemption) is
submitted again; jobs that are done are not.
"""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.system import ATTEMPTS, children

T = TypeVar("T")
R = TypeVar("R")
OBJECT_STORE = 128 << 20  # bytes of Ray, enough: tasks and results are small, the data is in files
ARRAY = 1000  # jobs in one array: Slurm's default MaxArraySize is 1,001
POLL = 2.0  # seconds between looks for result files
ASK = 30.0  # seconds between calls of sacct
DAY = 24 * 60  # minutes; SBATCH_TIMELIMIT overrides it


def run_on_ray(work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: int) -> Iterator[tuple[int, R]]:
    """Like `Executor.run_tasks`, as Ray tasks."""
    ray = _ray(workers)
    # Ray repeats a task whose process or node was lost, but not one that raised. max_calls=0 keeps a GPU process alive
    # after its first task, because reloading the model is slow.
    remote = ray.remote(max_retries=ATTEMPTS, retry_exceptions=False, num_cpus=1, num_gpus=gpus, max_calls=0)(work)
    most = max(2, 2 * int(ray.cluster_resources().get("GPU" if gpus else "CPU", workers)))
    submitted: dict[Any, int] = {}
    remaining = iter(enumerate(tasks))
    try:
        while True:
            while len(submitted) < most and (following := next(remaining, None)) is not None:
                submitted[remote.remote(following[1])] = following[0]
            if not submitted:
                return
            done, _ = ray.wait(list(submitted), num_returns=1)
            for reference in done:
                position = submitted.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayError as error:
                    raise DriftlineError(
                        f"Ray lost a task more than {ATTEMPTS} times ({type(error).__name__}).",
                        "Expected each task to finish on some node.",
                        "See Ray's logs and run the same command again: finished work is kept.",
                    ) from None
                yield position, result
    finally:
        for reference in submitted:
            ray.cancel(reference, force=True)


def _ray(workers: int) -> Any:
    """The `ray` module, connected to RAY_ADDRESS or else to a local node that listens on loopback only."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine that nobody asked for
    try:
        import ray
    except ImportError:
        raise BadConfig(
            "--engine is ray, but Ray is not installed.", "", "pip install 'driftline[ray]', or use --engine local."
        ) from None
    if not ray.is_initialized():
        job = ray.job_config.JobConfig()
        job._py_driver_sys_path = _Places()
        given: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "job_config": job}
        if "RAY_ADDRESS" not in os.environ:
            given |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
            given |= {"object_store_memory": OBJECT_STORE, "_node_ip_address": "127.0.0.1"}
        with children():
            ray.init(**given)
    return ray


class _Places(list[str]):
    """Folders that Ray puts before all others in the import path of its workers: not the working folder, which it adds,
    and in which a json.py beside photos is not ours."""

    def extend(self, places: Iterable[str]) -> None:
        super().extend(place for place in places if place != os.getcwd())


def guarded(work: Callable[[T], R], task: T) -> tuple[R | None, Exception | None]:
    """Returns the error of the work instead of raising it: submitit keeps only the text of an exception."""
    try:
        return work(task), None
    except Exception as error:
        return None, error


def run_on_slurm(
    work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: int
) -> Iterator[tuple[int, R]]:  # fmt: skip
    """Like `Executor.run_tasks`, as Slurm jobs.

    Raises the exceptions of `work`, BadConfig without submitit or Slurm, DriftlineError if jobs are lost repeatedly or
    Slurm refuses them.
    """
    submitit = _submitit()
    folder = _shared_folder() / uuid.uuid4().hex
    executor = submitit.SlurmExecutor(folder)
    executor.update_parameters(
        job_name="driftline",
        time=DAY,
        array_parallelism=workers,
        use_srun=False,
        additional_parameters={"export": "ALL", **({"gpus-per-task": gpus, "ntasks": 1} if gpus else {})},
    )
    waiting = list(enumerate(tasks))
    attempts = [0] * len(tasks)
    jobs: dict[int, Any] = {}
    asked = time.monotonic()
    try:
        while waiting or jobs:
            if waiting and len(jobs) < workers:  # the next array waits, so that no cluster's limit of jobs is reached
                part, waiting = waiting[:ARRAY], waiting[ARRAY:]
                jobs |= dict(zip([i for i, _ in part], _submit(executor, work, [t for _, t in part]), strict=True))
            done = [i for i, job in jobs.items() if job.paths.result_pickle.exists()]
            for i in done:
                result, error = jobs.pop(i).result()
                if error is not None:
                    raise error
                yield i, result
            if done:
                continue
            if time.monotonic() - asked >= ASK:
                asked = time.monotonic()
                for i in _lost(jobs):
                    state = jobs.pop(i).state
                    attempts[i] += 1
                    if attempts[i] == ATTEMPTS:
                        raise DriftlineError(
                            f"Slurm ended one job {ATTEMPTS} times (the last time as {state}).",
                            "Expected each job to finish on some node.",
                            f"Logs: {folder}. Allow more by SBATCH_TIMELIMIT or SBATCH_MEM_PER_NODE and run the same "
                            "command again: finished work is kept.",
                        )
                    waiting.append((i, tasks[i]))
            time.sleep(POLL)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        if arrays := {job.job_id.partition("_")[0] for job in jobs.values()}:
            subprocess.run(["scancel", *sorted(arrays)], check=False, capture_output=True)


def _lost(jobs: dict[int, Any]) -> list[int]:
    """Positions of jobs that have ended without a result."""
    if not jobs:
        return []
    watcher = next(iter(jobs.values())).watcher
    watcher.update()  # one call of sacct for all jobs
    ended = [i for i, job in jobs.items() if watcher.is_done(job.job_id, mode="cache")]
    # A result may have come between the look for files and the answer of Slurm.
    return [i for i in ended if not jobs[i].paths.result_pickle.exists()]


def _submit(executor: Any, work: Callable[[T], R], tasks: Sequence[T]) -> list[Any]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        with children():  # sbatch hands this environment to the jobs
            submitted: list[Any] = executor.map_array(partial(guarded, work), tasks)
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError, OSError) as error:
        raise DriftlineError(
            f"Slurm did not accept {len(tasks):,} jobs: {' '.join(str(error).split())[:300]}",
            "Expected sbatch to answer 'Submitted batch job N'.",
            "Check SBATCH_PARTITION, SBATCH_ACCOUNT and the cluster's limits.",
        ) from None
    return submitted


def _submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise BadConfig(
            "--engine is slurm, but submitit is not installed.",
            "",
            "pip install 'driftline[slurm]', or --engine local.",
        ) from None
    missing = [name for name in ("sbatch", "srun", "sacct", "scancel") if shutil.which(name) is None]
    if missing:
        raise BadConfig(
            f"--engine is slurm, but {', '.join(missing)} is not on the PATH.",
            "Expected the login node of a Slurm cluster.",
            "Run the command there, or use --engine local.",
        )
    return submitit


def _shared_folder() -> Path:
    """Where submitit keeps tasks, results and logs while the jobs run; every node must see it."""
    folder = Path(os.environ.get("DRIFTLINE_SLURM_FOLDER") or Path.home() / ".cache" / "driftline" / "slurm").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadConfig(
            f"The folder of Slurm's jobs {folder} cannot be made: {error.strerror}.",
            "Expected a folder that all nodes share.",
            "Name one with DRIFTLINE_SLURM_FOLDER.",
        ) from None
    return folder
