"""Runs tasks in this process, in processes of this machine, or as Ray tasks on several machines.

The work is a function of one plain task. It writes its result completely or not at all and may run twice, so a lost
worker or machine only costs time, and the result does not depend on where a task ran.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeVar

from curate.core.errors import BadConfig, DriftlineError

T = TypeVar("T")
R = TypeVar("R")
ATTEMPTS = 4  # after so many dead workers the task itself is the cause
PR_SET_PDEATHSIG = 1  # Linux: prctl option "send a signal when the parent dies"
OBJECT_STORE = 128 << 20  # bytes


@dataclass(frozen=True)
class Executor:
    """How tasks run."""

    kind: Literal["local", "ray"] = "local"
    workers: int = 1
    """number of tasks at a time on this machine; with Ray: cores of the local node that is started unless RAY_ADDRESS
    names a cluster, whose own cores then decide"""

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
            yield from _ray(work, tasks, self.workers, gpus)
        elif self.workers == 1 or len(tasks) <= 1:
            yield from ((i, work(task)) for i, task in enumerate(tasks))
        elif threads:
            with ThreadPoolExecutor(self.workers) as pool:
                yield from _drain({pool.submit(work, task): i for i, task in enumerate(tasks)})
        else:
            yield from _processes(work, tasks, self.workers, visible_gpus() if gpus else [])


def _drain(futures: dict[Future[R], int]) -> Iterator[tuple[int, R]]:
    try:
        while futures:
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            for future in done:
                yield futures.pop(future), future.result()
    finally:
        for future in futures:
            future.cancel()


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, in the notation of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch

        return [str(i) for i in range(torch.cuda.device_count())]
    return [gpu.strip() for gpu in visible.split(",") if gpu.strip()]


def _processes(
    work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: Sequence[str]
) -> Iterator[tuple[int, R]]:  # fmt: skip
    unfinished = dict(enumerate(tasks))
    for _ in range(ATTEMPTS):
        context = multiprocessing.get_context("spawn")
        gpu_queue = context.SimpleQueue()
        for i in range(workers if gpus else 0):
            gpu_queue.put(gpus[i % len(gpus)])
        with ProcessPoolExecutor(workers, context, _start_worker, (os.getpid(), gpu_queue if gpus else None)) as pool:
            try:
                with children():
                    futures = {pool.submit(work, task): i for i, task in unfinished.items()}
                for i, result in _drain(futures):
                    del unfinished[i]
                    yield i, result
            except BrokenProcessPool:  # a worker was killed or ran out of memory: restart what is unfinished
                continue
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return
    raise DriftlineError(
        f"Worker processes died {ATTEMPTS} times in a row; {len(unfinished):,} tasks are not done.",
        "Expected every worker to finish.",
        "The usual cause is a lack of memory: lower --workers. Finished work is kept.",
    )


@contextmanager
def children() -> Iterator[None]:
    """Processes that start here import neither the user's script, which would run all of it again, nor modules of the
    working directory: a json.py beside photos is not ours."""
    script, safe = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if safe is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe


def _start_worker(parent: int, gpu_queue: Any) -> None:
    die_with_parent(parent)
    if gpu_queue is not None:  # torch reads the variable once, so set it before torch is imported
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu_queue.get()


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call took effect
        os._exit(1)


def _ray(work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: int) -> Iterator[tuple[int, R]]:
    ray = connect(workers)
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


def connect(workers: int) -> Any:
    """The `ray` module, connected to RAY_ADDRESS or else to a local node that listens on loopback only."""
    try:
        import ray
    except ImportError:
        raise BadConfig(
            "--engine is ray, but Ray is not installed.", "", "pip install 'driftline[ray]', or use --engine local."
        ) from None
    if not ray.is_initialized():
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if "RAY_ADDRESS" in os.environ:
            ray.init(**quiet)
        else:
            ray.init(
                address="local",
                num_cpus=workers,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE,  # enough: tasks and results are small, the data is in files
                _node_ip_address="127.0.0.1",
                **quiet,
            )
    return ray
