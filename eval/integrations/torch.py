"""A torch module with an optimiser as a learner."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from pydantic import PositiveInt

from driftline.curate.core.errors import BadPlugin, Diverged
from driftline.eval.engine.seeded import seeded
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.training.budget import Budget, batches_of
from driftline.eval.training.sgd_learner import Device, place

ANSWERED = 1024  # samples that are predicted at once


@dataclass
class Torch(Learner):
    """Any torch.nn.Module with an optimiser. Images are (B, 3, H, W) float32 in 0 … 1, other samples float32.

    The record of a run names the optimiser and the loss. For a schedule, augmentation or a loop of your own derive a
    class from `Learner`.
    """

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
    loss: Callable[[Any, Any, Any], Any] | None = None
    """(module, x, y) → loss of a batch; None: cross-entropy of the module's outputs"""
    device: Device = "cpu"
    """cpu, cuda or auto"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new module. Raises BadPlugin if `module` makes none."""
        self.rng, self.gradient_steps, self.place = rng, 0, place(self.device)
        self.cost, self.budget = task.cost_of(self.batch), Budget(task)
        with seeded(rng):
            self.net = self.module(task)
        if not hasattr(self.net, "state_dict"):
            problem = f"module of {self.name} made {type(self.net).__name__}."
            raise BadPlugin(problem, "Expected a function from a Task to a torch.nn.Module.")
        self.net.to(self.place)

    def unused(self, task: Task) -> dict[str, str]:
        """Epochs under a budget of updates."""
        return task.budgeted("epochs")

    def learn(self, x: Array, y: Labels) -> None:
        """Train on batches in random order: as many updates as are paid for; without a budget `epochs` passes. Raises
        Diverged if the loss is not finite."""
        import torch

        optimiser, updates = self.optimiser(self.net.parameters()), self.budget.take(self.cost)
        self.net.train()
        with seeded(self.rng):
            for rows in batches_of(len(y), self.batch, self.epochs, self.rng, updates):
                labels = torch.from_numpy(np.array(y[rows], np.int64))
                self._update(optimiser, tensor_of(x[rows]).to(self.place), labels.to(self.place))

    def _update(self, optimiser: Any, x: Any, y: Any) -> None:
        import torch
        from torch.nn.functional import cross_entropy

        loss = cross_entropy(self.net(x), y) if self.loss is None else self.loss(self.net, x, y)
        if not bool(torch.isfinite(loss)):
            raise Diverged(f"The loss of {self.name} is not finite.", "", "Lower its learning rate.")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        self.gradient_steps += 1

    def scores(self, x: Array) -> Array:
        """Outputs of the module (N, C), in blocks of 1,024."""
        import torch

        self.net.eval()
        with torch.inference_mode():
            blocks = (tensor_of(x[low : low + ANSWERED]).to(self.place) for low in range(0, max(1, len(x)), ANSWERED))
            return np.concatenate([self.net(block).float().cpu().numpy() for block in blocks])

    def stored_bytes(self) -> int:
        """Bytes of the module's parameters and buffers."""
        return sum(t.nbytes for t in self.net.state_dict().values())

    def settings(self) -> dict[str, Any]:
        """Its name and settings, functions by their names."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("name", "module")}
        named = {name: text_of(value) if callable(value) else value for name, value in own.items()}
        return {"module": self.name, **{name: value for name, value in named.items() if value is not None}}


def tensor_of(x: Array) -> Any:
    """A copy of samples: images (B, H, W, 3) uint8 → (B, 3, H, W) float32 in 0 … 1, others float32."""
    import torch

    if x.dtype == np.uint8 and x.ndim == 4:
        return torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).float() / 255
    return torch.from_numpy(np.array(x, np.float32))


def text_of(function: Any) -> str:
    """A function as its record shows it.

    >>> text_of(partial(int, base=2)), text_of(len), text_of(lambda x: x)
    ('int(base=2)', 'len', '<lambda>')
    """
    if isinstance(function, partial):
        arguments = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in function.keywords.items())]
        return f"{text_of(function.func)}({', '.join(arguments)})"
    return str(getattr(function, "__name__", type(function).__name__))
