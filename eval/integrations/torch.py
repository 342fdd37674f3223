"""A torch module with an optimiser as a learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import PositiveInt

from driftline.curate.core.errors import Diverged
from driftline.eval.engine.seeded import seeded
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.training.budget import Budget, batches_of


@dataclass
class Torch(Learner):
    """Any torch.nn.Module with an optimiser, trained on cross-entropy. Images are (B, 3, H, W) float32 in 0 … 1."""

    name: str
    """name in the results"""
    module: Callable[[Task], Any]
    """task → module"""
    optimiser: Callable[[Any], Any]
    """parameters → optimiser, a new one for every call of `learn`"""
    epochs: PositiveInt = 1
    """passes over each batch of data; a budget of updates replaces them"""
    batch: PositiveInt = 64
    """samples per update"""
    budgeted = ("epochs",)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new module."""
        self.rng, self.gradient_steps = rng, 0
        self.cost, self.budget = task.cost_of(self.batch), Budget(task)
        with seeded(rng):
            self.net = self.module(task)

    def learn(self, x: Array, y: Labels) -> None:
        """Train on batches in random order. Raises Diverged if the loss is not finite."""
        import torch
        from torch.nn.functional import cross_entropy

        optimiser = self.optimiser(self.net.parameters())
        self.net.train()
        with seeded(self.rng):
            for rows in batches_of(len(y), self.batch, self.epochs, self.rng, self.budget.take(self.cost)):
                loss = cross_entropy(self.net(self._tensor(x[rows])), torch.from_numpy(np.asarray(y[rows])))
                if not bool(torch.isfinite(loss)):
                    raise Diverged(f"The loss of {self.name} is not finite.", "", "Lower its learning rate.")
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                self.gradient_steps += 1

    def scores(self, x: Array) -> Array:
        """Outputs of the module (N, C), in blocks of 1,024."""
        import torch

        self.net.eval()
        with torch.inference_mode():
            blocks = (self._tensor(x[low : low + 1024]) for low in range(0, max(1, len(x)), 1024))
            return np.concatenate([self.net(block).float().cpu().numpy() for block in blocks])

    @staticmethod
    def _tensor(x: Array) -> Any:
        import torch

        if x.dtype == np.uint8 and x.ndim == 4:
            return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).float() / 255
        return torch.from_numpy(np.ascontiguousarray(x, np.float32))

    def stored_bytes(self) -> int:
        """Bytes of the module's parameters and buffers."""
        return sum(t.nbytes for t in self.net.state_dict().values())

    def settings(self) -> dict[str, Any]:
        """Its name, epochs and batch."""
        return {"module": self.name, "epochs": self.epochs, "batch": self.batch}
