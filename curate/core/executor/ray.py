"""Tasks as Ray tasks, on the cluster of RAY_ADDRESS or on a local node."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.system import ATTEMPTS, children

T = TypeVar("T")
R = TypeVar("R")
OBJECT_STORE = 128 << 20  # bytes, enough: tasks and results are small, the data is in files


def run_on_ray(work: Callable[[T], R], tasks: Sequence[T], workers: int, gpus: int) -> Iterator[tuple[int, R]]:
    """Like `Executor.run_tasks`, as Ray tasks."""
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
