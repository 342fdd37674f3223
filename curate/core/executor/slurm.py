"""Tasks as Slurm job arrays, one job a task, through submitit.

Time, memory, partition and account are sbatch's own variables (SBATCH_TIMELIMIT, SBATCH_PARTITION, …). A job that the
cluster ends (time limit, lost node, preemption) is submitted again; jobs that are done are not.
"""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.system import ATTEMPTS, children

T = TypeVar("T")
R = TypeVar("R")
ARRAY = 1000  # jobs in one array: Slurm's default MaxArraySize is 1,001
POLL = 2.0  # seconds between looks for result files
ASK = 30.0  # seconds between calls of sacct
DAY = 24 * 60  # minutes; SBATCH_TIMELIMIT overrides it


@dataclass(frozen=True)
class Guarded(Generic[T, R]):
    """Returns the error of the work instead of raising it: submitit keeps only the text of an exception."""

    work: Callable[[T], R]

    def __call__(self, task: T) -> tuple[R | None, Exception | None]:
        try:
            return self.work(task), None
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
            submitted: list[Any] = executor.map_array(Guarded(work), tasks)
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
