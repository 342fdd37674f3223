"""How many threads torch uses: one where the order of summation counts, the idle cores where it does not."""

from collections.abc import Iterator
from contextlib import contextmanager

from driftline.curate.core.system.calls import busy_cores, cores


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, so that results do not depend on the number of cores."""
    with _threads(1):
        yield


@contextmanager
def idle_cores() -> Iterator[int]:
    """Run torch on the cores that nothing else uses now: threads beyond them wait for each other, and a step takes many
    times as long. Yields their number. The last bits of results depend on it."""
    with _threads(max(1, cores() - busy_cores())) as number:
        yield number


@contextmanager
def _threads(number: int) -> Iterator[int]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield number
    finally:
        torch.set_num_threads(before)
