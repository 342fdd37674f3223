"""A two-layer head: hidden layer with ReLU, softmax regression on it; explicit gradients [CLEAR, supplement 5].

The arithmetic is two large products per layer, so the only gain over autograd is bfloat16: products of rounded numbers
with sums in float32, weights kept in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftline.eval.engine.linear import Layers, Params, Pull, errors, layer, zeros


class Mlp(Layers):
    """Two layers: weights (H, D), bias (H,) of the hidden layer, then weights (C, H), bias (C,) of the output layer."""

    @classmethod
    def new(
        cls, n_classes: int, width: int, hidden: int, rng: np.random.Generator, device: str = "cpu", half: bool = False
    ) -> Mlp:
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
