"""Runs tasks in this process, in processes of this machine, as Ray tasks, or as a Slurm job array.

The work is a function of one plain task. It writes its result completely or not at all and may run twice, so a lost
worker or machine only costs time, and the result does not depend on where a task ran.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures as pools
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Literal, TypeVar

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.executor.clusters import run_on_ray, run_on_slurm
from driftline.curate.core.late import multiprocessing, torch
from driftline.curate.core.system import ATTEMPTS, LINUX, busy_cores, children, collect_rarely, cores, how_it_ended

T = TypeVar("T")
R = TypeVar("R")
Engine = Literal["local", "ray", "slurm"]
ENOUGH = 1000  # images for which new processes pay, each of which imports torch and loads a model


@dataclass(frozen=True)
class Executor:
    """How tasks run."""

    kind: Engine = "local"
    workers: int = 1
    """number of tasks at a time on this machine; with Ray: cores of the local node that is started unless RAY_ADDRESS
    names a cluster, whose own cores then decide; with Slurm: jobs of the array that run at a time"""

    def for_items(self, count: int) -> "Executor":
        """This executor, or one without processes for so few items that new processes with torch would not pay."""
        return self if self.kind != "local" or count >= ENOUGH else Executor()

    def run_tasks(
        self, work: Callable[[T], R], tasks: Sequence[T], threads: bool = False, gpus: int = 0
    ) -> Iterator[tuple[int, R]]:
        """Yield (position of the task, result) as tasks finish, in any order.

        work: a function at module level. threads: use threads instead of processes, for work that mostly releases the
        interpreter lock (Arrow, NumPy). gpus: GPUs per task. Ray reserves them; locally the workers are distributed
        over the visible GPUs in turn and share them if there are fewer GPUs than workers.
        Raises the exceptions of `work`, and DriftlineError if workers die repeatedly.
        """
        if self.kind != "local":
            run = run_on_ray if self.kind == "ray" else run_on_slurm
            yield from run(work, tasks, self.workers, gpus)
        elif self.workers == 1 or len(tasks) <= 1:
            yield from ((i, work(task)) for i, task in enumerate(tasks))
        elif threads:
            with pools.ThreadPoolExecutor(self.workers) as pool:
                yield from drain({pool.submit(work, task): i for i, task in enumerate(tasks)})
        else:
            yield from run_in_processes(work, tasks, self.workers, visible_gpus() if gpus else [])


MOST_WORKERS = 256
AHEAD = 2  # items that a thread prepares in advance
START = "forkserver" if LINUX else "spawn"  # from one small server, which stays: sooner than from nothing


def drain(futures: dict[Future[R], int]) -> Iterator[tuple[int, R]]:
    """(Position, result) of futures as they finish; the rest is cancelled when the caller stops."""
    try:
        while futures:
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            for future in done:
                yield futures.pop(future), future.result()
    finally:
        for future in futures:
            future.cancel()


def ahead(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """work(item) in order; a thread is two items ahead of the caller. For work that mostly releases the interpreter's
    lock, such as the decoding of images."""
    left = iter(items)
    with pools.ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(work, item) for item in islice(left, AHEAD))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in islice(left, 1))
            yield result


def default_workers() -> int:
    """One worker for each core that this process may use, unless the variable DRIFTLINE_WORKERS says how many. Raises
    BadConfig."""
    text = os.environ.get("DRIFTLINE_WORKERS", "")
    if not text:
        return cores()
    if not text.isdecimal() or not 1 <= int(text) <= MOST_WORKERS:
        raise BadConfig(f"The variable DRIFTLINE_WORKERS is {text!r}.", f"Expected a number from 1 to {MOST_WORKERS}.")
    return int(text)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, in the notation of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(i) for i in range(torch.cuda.device_count())]
    return [gpu.strip() for gpu in visible.split(",") if gpu.strip()]


def run_in_processes(
    work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: Sequence[str]
) -> Iterator[tuple[int, R]]:  # fmt: skip
    """Like `Executor.run_tasks`, in new processes. gpus: distributed over the workers in turn."""
    unfinished = dict(enumerate(tasks))
    processes: list[Any] = []
    ends: list[str] = []
    for _ in range(ATTEMPTS):
        context = multiprocessing.get_context(START)
        with children():  # the first semaphore starts a process, too
            gpu_queue = context.SimpleQueue()
            for i in range(workers if gpus else 0):
                gpu_queue.put(gpus[i % len(gpus)])
            begin = (dict(os.environ), gpu_queue if gpus else None)
        with pools.ProcessPoolExecutor(workers, context, _start_worker, begin) as pool:
            try:
                with children():
                    futures = {pool.submit(work, task): i for i, task in unfinished.items()}
                processes = list(pool._processes.values())
                for i, result in drain(futures):
                    del unfinished[i]
                    yield i, result
            except pools.BrokenExecutor:  # a worker was killed or ran out of memory: restart what is unfinished
                pool.shutdown(wait=True, cancel_futures=True)
                codes = {process.exitcode for process in processes}  # the pool stops the others by SIGTERM
                ends = sorted(how_it_ended(code) for code in codes - {0, None, -signal.SIGTERM})
                continue
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return
    raise DriftlineError(
        f"Worker processes died {ATTEMPTS} times in a row ({' or '.join(ends) or 'it is not known why'}); "
        f"{len(unfinished):,} tasks are not done.",
        "Expected every worker to finish.",
        "If memory is short, lower --workers. Finished work is kept.",
    )


def _start_worker(environment: dict[str, str], gpu_queue: Any) -> None:
    """environment: as it is now; a process forked from a server has that of the server's start."""
    collect_rarely()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    if gpu_queue is not None:  # torch reads the variable once, so set it before torch is imported
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu_queue.get()


def _end_with_parent() -> None:
    """The server outlives a killed parent as long as its processes do, so each looks for itself."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def one_thread() -> AbstractContextManager[int]:
    """Run torch on one thread, so that results do not depend on the number of cores."""
    return _threads(1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run products of NumPy and SciPy on one thread: those of small matrices would mostly wait for one another (four
    times the processor time on two cores), and last bits would depend on the number of cores."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  its BLAS is another than NumPy's, and only one that is loaded is found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def idle_cores() -> AbstractContextManager[int]:
    """Run torch on the cores that nothing else uses now: threads beyond them wait for each other, and a step takes many
    times as long. Yields their number. The last bits of results depend on it."""
    return _threads(max(1, cores() - busy_cores()))


@contextmanager
def _threads(number: int) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield number
    finally:
        torch.set_num_threads(before)
