"""Heads beside the linear one, with explicit gradients: two layers, many classes, angles.

Two layers [CLEAR, supplement 5]: the arithmetic is two large products per layer, so the only gain over autograd is
bfloat16: products of rounded numbers with sums in float32, weights kept in float32.

Many classes: with ten thousand the weights are 88 MB, so that each pass over them counts: without momentum the product
of the gradient is added to the weights in place, and weight decay is a factor in the same pass; in bfloat16 one pass in
C updates the weights and the rounded copy that the products read.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from driftline.curate.core.errors import Diverged
from driftline.curate.core.late import torch
from driftline.eval.engine import fused
from driftline.eval.engine.linear import Layers, Params, Pull, errors, layer, zeros


class Mlp(Layers):
    """Two layers: weights (H, D), bias (H,) of the hidden layer, then weights (C, H), bias (C,) of the output layer."""

    @classmethod
    def new(
        cls, n_classes: int, width: int, hidden: int, rng: np.random.Generator, device: str = "cpu", half: bool = False
    ) -> Self:
        """torch.nn.Linear's initialisation for both layers."""
        params = layer(hidden, width, rng, device) + layer(n_classes, hidden, rng, device)
        return cls(params, zeros(params), half)

    def scores(self, x: Any) -> Any:
        return self._forward(x)[1]

    def data_gradient(self, x: Any, y: Any, pull: Pull | None = None) -> Params:
        hidden, scores = self._forward(x)
        g = errors(scores, y).div_(len(y))
        return self._backward(x, hidden, g if pull is None else g.add_(pull(scores)))

    def pulled(self, x: Any, g: Any) -> Params:
        return self._backward(x, self._forward(x)[0], g)

    def fisher(self, x: Any, y: Any) -> Params:
        """The gradient of a layer for one sample is an outer product, so its square is the product of squares."""
        hidden, scores = self._forward(x)
        g = errors(scores, y)
        below = (g @ self.params[2]) * (hidden > 0)
        n = len(y)
        return [(below**2).T @ x**2 / n, (below**2).sum(0) / n, (g**2).T @ hidden**2 / n, (g**2).sum(0) / n]

    def _product(self, a: Any, b: Any) -> Any:
        return (a.bfloat16() @ b.bfloat16()).float() if self.half else a @ b

    def _forward(self, x: Any) -> tuple[Any, Any]:
        hidden = (self._product(x, self.params[0].T) + self.params[1]).relu_()
        return hidden, self._product(hidden, self.params[2].T) + self.params[3]

    def _backward(self, x: Any, hidden: Any, g: Any) -> Params:
        below = self._product(g, self.params[2]).mul_(hidden > 0)
        return [self._product(below.T, x), below.sum(0), self._product(g.T, hidden), g.sum(0)]


PART = 256  # classes: with 2,048 features, a gradient of 1 MB in bfloat16


@dataclass
class Wide:
    """A linear layer for many classes."""

    weights: Any
    """(C, D) float32 tensor"""
    bias: Any
    """(C,) float32 tensor"""
    velocity: list[Any] | None = None
    """momentum of both; None: without momentum"""
    rounded: Any = None
    """the weights in bfloat16; None if products are float32"""
    ahead: Any = None
    """(x, scores) of a batch that may be learned next; None once the weights have moved"""

    @classmethod
    def new(cls, n_classes: int, width: int, rng: np.random.Generator, device: str, momentum: bool, half: bool) -> Self:
        """torch.nn.Linear's initialisation."""
        weights, bias = layer(n_classes, width, rng, device)
        velocity = [torch.zeros_like(weights), torch.zeros_like(bias)] if momentum else None
        return cls(weights, bias, velocity, weights.bfloat16() if half else None)

    @property
    def nbytes(self) -> int:
        """Bytes kept: weights and bias, and their momentum, which is kept between batches."""
        return sum(int(t.nbytes) for t in (self.weights, self.bias, *(self.velocity or [])))

    def scores(self, x: Any, learned_next: bool = False) -> Any:
        """x (B, D) float32 → (B, C) float32. learned_next: keep them for an update on the same x, which saves a third
        of the work of both; nobody may change them."""
        if learned_next:
            self.ahead = x, self.scores(x)
            return self.ahead[1]
        if self.rounded is not None:
            return torch.mm(x.bfloat16(), self.rounded.T).float().add_(self.bias)
        return torch.addmm(self.bias, x, self.weights.T)

    def update(self, x: Any, y: Any, lr: float, momentum: float, decay: float, masked: Any = None) -> None:
        """One step of torch.optim.SGD on the mean cross-entropy of x (B, D), y (B,). masked: (B, C) bool, classes that
        are excluded from a sample's loss. Raises Diverged if the loss is not finite."""
        ahead, self.ahead = self.ahead, None
        scores = ahead[1] if ahead is not None and torch.equal(ahead[0], x) else self.scores(x)
        if masked is not None:
            scores = scores.masked_fill(masked, -1e9)
        g = errors(scores, y).div_(len(y))
        bias_gradient = g.sum(0)
        if not bool(torch.isfinite(bias_gradient).all()):
            raise Diverged("The head's gradient is not finite.", "", f"Lower lr (it is {lr}).")
        if self.velocity is None and self.rounded is None:
            self.weights.addmm_(g.T, x, beta=1 - lr * decay, alpha=-lr)
        else:
            self._descend(g, x, lr, momentum, decay)
        move(self.bias, self.velocity and self.velocity[1], bias_gradient, lr, momentum, decay)

    def _descend(self, g: Any, x: Any, lr: float, momentum: float, decay: float) -> None:
        """Some classes at a time on a CPU: their gradient stays in the cache until their weights have moved."""
        if self.rounded is not None:
            g, x = g.bfloat16(), x.bfloat16()
        size = PART if self.weights.device.type == "cpu" else len(self.weights)
        for low in range(0, len(self.weights), size):
            rows = slice(low, low + size)
            weights, velocity = self.weights[rows], self.velocity and self.velocity[0][rows]
            gradient = torch.mm(g[:, rows].T, x)
            if self.rounded is None:
                move(weights, velocity, gradient, lr, momentum, decay)
            elif not fused.descend_rounded(weights, velocity, gradient, self.rounded[rows], lr, momentum, decay=decay):
                move(weights, velocity, gradient.float(), lr, momentum, decay)
                self.rounded[rows] = weights


def move(param: Any, velocity: Any | None, gradient: Any, lr: float, momentum: float, decay: float) -> None:
    """One step of SGD in place. velocity: None without momentum."""
    if velocity is None:
        param.mul_(1 - lr * decay).add_(gradient, alpha=-lr)
    elif not fused.descend(param, velocity, gradient, lr, momentum, decay):
        velocity.mul_(momentum).add_(gradient).add_(param, alpha=decay)
        param.add_(velocity, alpha=-lr)


@dataclass
class Cosine:
    """Scores σ · cos(x, w), without bias [near-future accuracy, sec. 5]."""

    weights: Any
    """(C, D), initialised with U(±1/√D)"""
    sigma: Any
    """σ, learned, 1 at first"""

    @classmethod
    def new(cls, n_classes: int, width: int, rng: np.random.Generator, device: str) -> Self:
        """σ = 1."""
        return cls(layer(n_classes, width, rng, device)[0], torch.ones((), device=device))

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return int(self.weights.nbytes) + int(self.sigma.nbytes)

    def scores(self, x: Any) -> Any:
        """x (B, D) → (B, C)."""
        unit = torch.nn.functional.normalize
        return self.sigma * (unit(x) @ unit(self.weights).T)

    def update(self, x: Any, y: Any, lr: float, momentum: float, decay: float, masked: Any = None) -> None:
        """One step of SGD on the mean cross-entropy, without momentum. Raises Diverged if the gradient is not
        finite."""
        x, directions = map(torch.nn.functional.normalize, (x, self.weights))
        cosines = x @ directions.T
        scores = self.sigma * cosines
        if masked is not None:
            scores.masked_fill_(masked, -1e9)
        g = errors(scores, y).div_(len(y))
        sigma_gradient = (g * cosines).sum()
        if not bool(torch.isfinite(sigma_gradient)):
            raise Diverged("The gradient of σ is not finite.", "", f"Lower lr (it is {lr}).")
        along = self.sigma * (g.T @ x)  # gradient in the directions; below, in the weights
        lengths = self.weights.norm(dim=1, keepdim=True).clamp_(min=1e-12)
        weight_gradient = (along - (along * directions).sum(1, keepdim=True) * directions) / lengths
        self.weights.mul_(1 - lr * decay).add_(weight_gradient, alpha=-lr)
        self.sigma.mul_(1 - lr * decay).add_(sigma_gradient, alpha=-lr)
