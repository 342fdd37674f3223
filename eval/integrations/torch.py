"""A torch module with an optimiser as a learner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from driftline.curate.core.errors import BadPlugin, Diverged
from driftline.eval.engine.seeded import seeded
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.training.budget import Budget, batches_of
from driftline.eval.training.sgd_learner import Device, place
from driftline.stream_builder.step import Split, Step

ANSWERED = 1024  # samples that are predicted at once


@dataclass
class Torch(Learner):
    """Any torch.nn.Module with an optimiser. Images are (B, 3, H, W) float32 in 0 … 1, other samples float32.

    Loss, schedule, augmentation, loader and early stopping are yours to give; the record of a run names them.
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
    scheduler: Callable[[Any, int], Any] | None = None
    """(optimiser, number of updates of this call of `learn`) → scheduler, which steps after each update"""
    loss: Callable[[Any, Any, Any], Any] | None = None
    """(module, x, y) → loss of a batch; None: cross-entropy of the module's outputs"""
    augment: Callable[[Any], Any] | None = None
    """a training batch (B, …) → the same, changed at random by torch's generator"""
    loader: Callable[[Array, Labels], Iterable[tuple[Any, Any]]] | None = None
    """(x, y) of the stream → batches of one pass, as a torch DataLoader; it decides their order and size"""
    patience: NonNegativeInt = 0
    """on steps with validation data: stop after so many passes without a gain in accuracy there, and keep the best
    weights; 0: never"""
    device: Device = "cpu"
    """cpu, cuda or auto"""

    budgeted = ("epochs", "patience")

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

    def learn(self, x: Array, y: Labels) -> None:
        """Train on batches in random order. Raises Diverged if the loss is not finite."""
        self._train(x, y, self.budget.take(self.cost))

    def learn_step(self, step: Step) -> None:
        """`learn`, with early stopping where the step has validation data."""
        train, val = step["train"], step.splits.get("val")
        self._train(train.x, train.y, self.budget.take(self.cost), val if self.patience else None)

    def _train(self, x: Array, y: Labels, updates: int | None, val: Split | None = None) -> None:
        """As many updates as are paid for; without a budget `epochs` passes."""
        total = self.epochs * -(-len(y) // self.batch) if updates is None else updates
        optimiser = self.optimiser(self.net.parameters())
        schedule = None if self.scheduler is None else self.scheduler(optimiser, total)
        best, weights, since, left = -1.0, None, 0, updates
        with seeded(self.rng):
            for _ in range(self.epochs) if updates is None else count():
                self.net.train()
                taken = 0
                for xs, ys in islice(self._batches(x, y), left):
                    self._update(optimiser, xs, ys)
                    taken += 1
                    if schedule is not None:
                        schedule.step()
                if left is not None and (left := left - taken) == 0:
                    break
                if not taken:
                    raise BadPlugin(f"The loader of {self.name} gave no batch.", "Expected batches of a pass.")
                if val:
                    right = float((self.scores(val.x).argmax(1) == val.y).mean())
                    since = 0 if right > best else since + 1
                    if right > best:
                        best, weights = right, deepcopy(self.net.state_dict())
                    if since == self.patience:
                        break
        if weights is not None:
            self.net.load_state_dict(weights)

    def _batches(self, x: Array, y: Labels) -> Iterator[tuple[Any, Any]]:
        """Of one pass."""
        if self.loader is not None:
            yield from ((xs.to(self.place), ys.to(self.place)) for xs, ys in self.loader(x, y))
            return
        import torch

        for rows in batches_of(len(y), self.batch, 1, self.rng):
            xs, ys = tensor_of(x[rows]).to(self.place), torch.from_numpy(np.array(y[rows], np.int64)).to(self.place)
            yield xs if self.augment is None else self.augment(xs), ys

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
