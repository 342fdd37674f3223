"""A budget of updates, as `Task.updates` grants it, and the batches that it pays for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.learner import Task


@dataclass
class Budget:
    """Updates that each batch of a stream pays for; what is left is carried over to the next."""

    task: Task
    """what the protocol grants"""
    credit: float = 0.0
    """updates of plain SGD on a whole batch that are left"""

    def take(self, cost: float = 1.0, batch_cost: float = 0.0) -> int | None:
        """Updates that are paid for now; None without a budget. Call it once for each batch of the stream.

        cost: of one update, as `Learner.cost`. batch_cost: of a batch beside its updates; it is due if there are any.
        """
        if self.task.updates is None:
            return None
        self.credit += self.task.updates
        whole = max(0, int((self.credit - batch_cost) / cost + 1e-9))
        self.credit -= whole * cost + batch_cost if whole else 0.0
        return whole

    def check_anchor(self, cost: float = 1.0, batch_cost: float = 0.0) -> None:
        """Raise IncompatibleStream if a batch pays for one update only: a pull towards the weights from before the
        batch is zero there, and the method would be plain finetuning. cost, batch_cost: as of `take`."""
        least = batch_cost + 2 * cost
        if self.task.updates is not None and self.task.updates < least:
            raise IncompatibleStream(
                f"It pulls towards the weights from before a batch, which the first update of a batch cannot feel; "
                f"a batch pays for {self.task.updates:g} updates.",
                f"Expected at least {least:.3g}, of which it makes two.",
                "Set near-future.updates, or take finetune, which it would be.",
            )


def batches_of(
    n: int, size: int, epochs: int, rng: np.random.Generator, updates: int | None = None
) -> Iterator[npt.NDArray[np.int64]]:
    """Positions of samples for one update after the other: `epochs` passes over n samples, in a new order each, in
    batches of `size`; or, if there is a budget, as many batches as `updates`.

    >>> [len(rows) for rows in batches_of(5, 2, 1, np.random.default_rng(0))]
    [2, 2, 1]
    >>> [len(rows) for rows in batches_of(5, 2, 1, np.random.default_rng(0), updates=4)]
    [2, 2, 1, 2]
    """
    left = epochs * -(-n // size) if updates is None else updates
    while left > 0 and n:
        order = rng.permutation(n)
        for low in range(0, n, size)[:left]:
            yield order[low : low + size]
        left -= -(-n // size)
