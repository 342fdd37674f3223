"""Where work is done: in this process, in processes of this machine, or as Ray tasks on many.

Work is a function of one plain task that writes its own result whole or not at all, and may be done twice: so a worker
or a machine that is lost costs time only, and what is written does not depend on where it was done.
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
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from curate.core.errors import BadConfig, DriftlineError

T = TypeVar("T")
R = TypeVar("R")
ATTEMPTS = 4  # a task whose worker dies this often is at fault itself
PR_SET_PDEATHSIG = 1
STORE = 128 << 20  # bytes


@dataclass(frozen=True)
class Executor:
    """kind: "local" or "ray". workers: tasks at a time on this machine; with Ray the cluster's cores decide, and
    `workers` is the number of cores of the node that is started where RAY_ADDRESS names none."""

    kind: Literal["local", "ray"] = "local"
    workers: int = 1

    def run_tasks(
        self, work: Callable[[T], R], tasks: Sequence[T], light: bool = False, gpus: int = 0
    ) -> Iterator[tuple[int, R]]:
        """Yield (position of the task, result) as tasks finish, in no order.

        work: a function at the top of a module. light: work that holds no lock of the interpreter for long (Arrow,
        NumPy) and is not worth a process of its own. gpus: how many each task needs for itself: Ray sees to it; with
        one, processes of this machine take turns among its GPUs, and several share one where they are more.
        Raises what `work` raises; DriftlineError for lost workers.
        """
        if self.kind == "ray":
            yield from _ray(work, tasks, self.workers, gpus)
        elif self.workers == 1 or len(tasks) <= 1:
            yield from ((i, work(task)) for i, task in enumerate(tasks))
        elif light:
            with ThreadPoolExecutor(self.workers) as pool:
                yield from _drain({pool.submit(work, task): i for i, task in enumerate(tasks)})
        else:
            yield from _processes(work, tasks, self.workers, cards() if gpus else [])


def _drain(futures: dict[Future[R], int]) -> Iterator[tuple[int, R]]:
    try:
        while futures:
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            for future in done:
                yield futures.pop(future), future.result()
    finally:
        for future in futures:
            future.cancel()


def cards() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        import torch

        return [str(i) for i in range(torch.cuda.device_count())]
    return [card.strip() for card in told.split(",") if card.strip()]


def _processes(
    work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: Sequence[str]
) -> Iterator[tuple[int, R]]:  # fmt: skip
    left = dict(enumerate(tasks))
    for _ in range(ATTEMPTS):
        context = multiprocessing.get_context("spawn")
        turns = context.SimpleQueue()
        for i in range(workers if gpus else 0):
            turns.put(gpus[i % len(gpus)])
        with ProcessPoolExecutor(workers, context, _begin, (os.getpid(), turns if gpus else None)) as pool:
            try:
                for i, result in _drain({pool.submit(work, task): i for i, task in left.items()}):
                    del left[i]
                    yield i, result
            except BrokenProcessPool:  # killed from outside, or out of memory: what is left is begun again
                continue
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return
    raise DriftlineError(
        f"Worker processes died {ATTEMPTS} times in a row; {len(left):,} tasks are not done.",
        "Expected them to end by themselves.",
        "This is nearly always a lack of memory: lower --workers. What is done is kept.",
    )


def _begin(parent: int, turns: Any) -> None:
    die_with_parent(parent)
    if turns is not None:  # before torch is imported, which looks once
        os.environ["CUDA_VISIBLE_DEVICES"] = turns.get()


def die_with_parent(parent: int) -> None:
    """Let the kernel end this process when its parent is killed (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call took effect
        os._exit(1)


def _ray(work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: int) -> Iterator[tuple[int, R]]:
    ray = connect(workers)
    # A task runs again when its process or node is lost, never because it raised. max_calls: a process with a GPU
    # would end after one task, and with it the model it has loaded.
    remote = ray.remote(max_retries=ATTEMPTS, retry_exceptions=False, num_cpus=1, num_gpus=gpus, max_calls=0)(work)
    ahead = max(2, 2 * int(ray.cluster_resources().get("GPU" if gpus else "CPU", workers)))
    waiting: dict[Any, int] = {}
    todo = iter(enumerate(tasks))
    try:
        while True:
            while len(waiting) < ahead and (following := next(todo, None)) is not None:
                waiting[remote.remote(following[1])] = following[0]
            if not waiting:
                return
            done, _ = ray.wait(list(waiting), num_returns=1)
            for reference in done:
                position = waiting.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayError as error:
                    raise DriftlineError(
                        f"Ray lost a task more than {ATTEMPTS} times ({type(error).__name__}).",
                        "Expected each task to end on some node.",
                        "See Ray's logs; what is done is kept, run the same command again.",
                    ) from None
                yield position, result
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)


def connect(workers: int) -> Any:
    """The `ray` module, connected: to RAY_ADDRESS, else to a node of its own that listens on loopback."""
    try:
        import ray
    except ImportError:
        raise BadConfig(
            "--engine is ray, and Ray is not installed.", "", "pip install 'driftline[ray]', or use --engine local."
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
                object_store_memory=STORE,  # tasks and results are small: the work itself goes through files
                _node_ip_address="127.0.0.1",
                **quiet,
            )
    return ray
