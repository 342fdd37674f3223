"""The linear head: softmax regression by mini-batch SGD with momentum, gradient written out.

No autograd and no DataLoader: for a 2,048 × 11 head these cost ten times the arithmetic. One thread: with
torch's default, spinning threads on a shared machine made this 24 times slower (measured; spec of performance).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.ground.errors import Diverged

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LinearSettings:
    """CLEAR's linear probe [supplement 5; Avalanche baselines]: SGD, momentum 0.9, batch 256, 100 epochs, learning
    rate 1 and a tenth of it after epoch 60."""

    lr: float = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch: int = 256  # samples
    epochs: int = 100
    decay_after: int = 60  # epochs
    decay: float = 0.1


@dataclass
class Head:
    """weights (C, D), bias (C,), and their momentum; float32 torch tensors."""

    weights: Any
    bias: Any
    weights_velocity: Any
    bias_velocity: Any

    @classmethod
    def new(cls, n_classes: int, width: int, rng: np.random.Generator, device: str = "cpu") -> Head:
        """torch.nn.Linear's initialisation, U(±1/√D), drawn from `rng` on the CPU: the same on every device."""
        import torch

        bound = 1 / np.sqrt(width)
        weights = torch.from_numpy(rng.uniform(-bound, bound, (n_classes, width)).astype(np.float32))
        bias = torch.from_numpy(rng.uniform(-bound, bound, n_classes).astype(np.float32))
        weights, bias = weights.to(device), bias.to(device)
        return cls(weights, bias, torch.zeros_like(weights), torch.zeros_like(bias))

    def copy(self) -> Head:
        """A copy that further training does not touch."""
        return Head(*(t.clone() for t in (self.weights, self.bias, self.weights_velocity, self.bias_velocity)))

    @property
    def nbytes(self) -> int:
        """Bytes kept between training runs: weights and bias; momentum is forgotten."""
        return int(self.weights.nbytes + self.bias.nbytes)

    def rest(self) -> None:
        """Forget momentum, as a new optimiser does."""
        self.weights_velocity.zero_()
        self.bias_velocity.zero_()


class Rule:
    """What a method adds to plain SGD; the default adds nothing. Tensors are float32, shapes of the head's own."""

    def gradient(self, head: Head, dw: Any, db: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """The data's gradient dw (C, D), db (C,) on the batch x (B, D), y (B,) → the gradient to descend."""
        return dw, db

    def moved(self, dw: Any, db: Any, step_w: Any, step_b: Any) -> None:
        """Called after each step with the data's gradient and the step that the weights took."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit(
    head: Head,
    x: Floats,
    y: Labels,
    settings: LinearSettings,
    rng: np.random.Generator,
    memory: tuple[Floats, Labels] | None = None,
    rule: Rule | None = None,
) -> int:
    """Train `head` in place on x (N, D), y (N,); returns the number of gradient steps.

    memory: replayed samples; each step takes `batch` of x and as many of the memory (drawn without repetition
    until it is used up, then shuffled anew) [Chaudhry et al. 2019; Avalanche's Replay]. rule: what a method adds.
    Raises Diverged when the loss is not finite.
    """
    import torch

    steps = 0
    with one_thread(), torch.inference_mode():
        data, labels = on(x, head), on(y, head)
        extra = None if memory is None else (on(memory[0], head), on(memory[1], head))
        queue: list[int] = []
        replayed = 0 if extra is None else min(settings.batch, len(extra[1]))
        # Gathered into one buffer: allocating 2 MB for every batch took half of the time.
        room = torch.empty((min(settings.batch, len(y)) + replayed, data.shape[1]), device=data.device)
        for epoch in range(settings.epochs):
            lr = settings.lr * (settings.decay if epoch >= settings.decay_after else 1.0)
            order = on(rng.permutation(len(y)), head)
            for start in range(0, len(y), settings.batch):
                here = order[start : start + settings.batch]
                n, by = len(here), labels[here]
                torch.index_select(data, 0, here, out=room[:n])
                if extra is not None:
                    while len(queue) < replayed:
                        queue += rng.permutation(len(extra[1])).tolist()
                    drawn = torch.tensor(queue[:replayed], device=labels.device)
                    del queue[:replayed]
                    torch.index_select(extra[0], 0, drawn, out=room[n : n + replayed])
                    by = torch.cat([by, extra[1][drawn]])
                bx = room[: n + replayed]
                step(head, bx, by, lr, settings, rule)
                steps += 1
    if not bool(torch.isfinite(head.weights).all()):
        raise Diverged("The linear head's weights are not finite.", "", f"Lower lr (it is {settings.lr}).")
    return steps


def on(array: npt.NDArray[Any], head: Head) -> Any:
    """An array as a tensor on the head's device; copied where it is read only, as memory-mapped arrays are."""
    import torch

    ready = np.ascontiguousarray(array)
    return torch.from_numpy(ready if ready.flags.writeable else ready.copy()).to(head.weights.device)


def data_gradient(head: Head, x: Any, y: Any) -> tuple[Any, Any]:
    """Gradient of the mean cross-entropy: (C, D) and (C,)."""
    import torch

    # Classes first, (C, B): with few classes this order of the products is twice as fast as (B, C).
    g = torch.softmax(torch.addmm(head.bias[:, None], head.weights, x.T), 0)
    g[y, torch.arange(len(y), device=y.device)] -= 1
    g /= len(y)
    return g @ x, g.sum(1)


def step(head: Head, x: Any, y: Any, lr: float, settings: LinearSettings, rule: Rule | None = None) -> None:
    """One SGD step on a batch."""
    data_w, data_b = data_gradient(head, x, y)
    dw, db = (data_w, data_b) if rule is None else rule.gradient(head, data_w, data_b, x, y)
    if settings.weight_decay:
        dw = dw.add(head.weights, alpha=settings.weight_decay)
    head.weights_velocity.mul_(settings.momentum).add_(dw)
    head.bias_velocity.mul_(settings.momentum).add_(db)
    head.weights.add_(head.weights_velocity, alpha=-lr)
    head.bias.add_(head.bias_velocity, alpha=-lr)
    if rule is not None:
        rule.moved(data_w, data_b, -lr * head.weights_velocity, -lr * head.bias_velocity)


def predict(head: Head, x: Floats) -> Labels:
    """x (N, D) → labels (N,)."""
    import torch

    with one_thread(), torch.inference_mode():
        scores = torch.addmm(head.bias, on(x, head), head.weights.T)
        labels: Labels = scores.argmax(1).cpu().numpy()
    return labels
