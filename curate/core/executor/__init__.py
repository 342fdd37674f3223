"""Runs tasks in this process, in processes of this machine, as Ray tasks, or as a Slurm job array.

The work is a function of one plain task. It writes its result completely or not at all and may run twice, so a lost
worker or machine only costs time, and the result does not depend on where a task ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

from driftline.curate.core.executor.local import drain, run_in_processes, visible_gpus

T = TypeVar("T")
R = TypeVar("R")
Engine = Literal["local", "ray", "slurm"]
STARTS = 4.0  # seconds in which a new process imports torch and loads a small model
SAVES = 0.2  # share of the time that processes must save, since each takes memory and time of its own
FEW = 8  # items that are done to see how long all will take


@dataclass(frozen=True)
class Executor:
    """How tasks run."""

    kind: Engine = "local"
    workers: int = 1
    """number of tasks at a time on this machine; with Ray: cores of the local node that is started unless RAY_ADDRESS
    names a cluster, whose own cores then decide; with Slurm: jobs of the array that run at a time"""

    def for_items(self, count: int, do: Callable[[int], object]) -> Executor:
        """This executor, or one without processes where `count` items are done so soon that new processes with torch
        would not pay.

        do: does the first n items in this process, as a trial: the result is not used.
        """
        if self.kind != "local" or self.workers == 1:
            return self
        if not count:
            return Executor()
        for n in (FEW, 3 * FEW):  # the first time is longer
            clock = time.process_time()
            do(n)
            spent = time.process_time() - clock
        seconds = spent * count / min(count, 3 * FEW)
        return self if STARTS + seconds / self.workers < (1 - SAVES) * seconds else Executor()

    def run_tasks(
        self, work: Callable[[T], R], tasks: Sequence[T], threads: bool = False, gpus: int = 0
    ) -> Iterator[tuple[int, R]]:
        """Yield (position of the task, result) as tasks finish, in any order.

        work: a function at module level. threads: use threads instead of processes, for work that mostly releases the
        interpreter lock (Arrow, NumPy). gpus: GPUs per task. Ray reserves them; locally the workers are distributed
        over the visible GPUs in turn and share them if there are fewer GPUs than workers.
        Raises the exceptions of `work`, and DriftlineError if workers die repeatedly.
        """
        if self.kind == "ray":
            from driftline.curate.core.executor.ray import run_on_ray

            yield from run_on_ray(work, tasks, self.workers, gpus)
        elif self.kind == "slurm":
            from driftline.curate.core.executor.slurm import run_on_slurm

            yield from run_on_slurm(work, tasks, self.workers, gpus)
        elif self.workers == 1 or len(tasks) <= 1:
            yield from ((i, work(task)) for i, task in enumerate(tasks))
        elif threads:
            with ThreadPoolExecutor(self.workers) as pool:
                yield from drain({pool.submit(work, task): i for i, task in enumerate(tasks)})
        else:
            yield from run_in_processes(work, tasks, self.workers, visible_gpus() if gpus else [])
