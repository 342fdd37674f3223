"""Batch normalisation with the ReLU and the pooling that follow it: in C if possible, else in torch.

Torch's own takes a third of the time of a small network's update in bfloat16 on a CPU. Channels last, training
statistics; tests compare C and torch.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from driftline.eval.engine import fused

MOST = 4096  # channels, as in normalise.c
KINDS = (torch.float32, torch.bfloat16)


def _at(array: Any) -> int:
    return array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data


def _apply(x: Any, a: Any, b: Any, relu: bool, pool: bool) -> tuple[Any, Any]:
    """a x + b for each channel; with relu its positive part; with pool the maxima of 3 × 3 pixels, and their
    positions."""
    kernel, half = fused.library(), int(x.dtype is torch.bfloat16)
    n, channels, height, width = x.shape
    if not pool:
        out = torch.empty_like(x)
        kernel.driftline_scaled(_at(x), n * height * width, channels, _at(a), _at(b), int(relu), _at(out), half)
        return out, None
    shape = (n, channels, (height - 1) // 2 + 1, (width - 1) // 2 + 1)
    out = torch.empty(shape, dtype=x.dtype, memory_format=torch.channels_last)
    place = np.empty(out.numel(), np.uint8)
    kernel.driftline_pooled(_at(x), n, height, width, channels, _at(a), _at(b), _at(out), _at(place), half)
    return out, place


class _Normed(torch.autograd.Function):
    """x (N, C, H, W), channels last → γ(x − mean)/σ + β of the batch; relu: its positive part; pool: maxima of 3 × 3
    pixels with stride 2. Also returns mean and variance, for running statistics."""

    @staticmethod
    def forward(ctx: Any, x: Any, gamma: Any, beta: Any, eps: float, relu: bool, pool: bool) -> Any:
        kernel, half = fused.library(), int(x.dtype is torch.bfloat16)
        n, channels, height, width = x.shape
        rows = n * height * width
        sums = np.empty((2, channels))
        kernel.driftline_moments(_at(x), rows, channels, _at(sums[0]), _at(sums[1]), half)
        mean = sums[0] / rows
        variance = np.maximum(sums[1] / rows - mean**2, 0)
        inverse = 1 / np.sqrt(variance + eps)
        a = (gamma.detach().numpy() * inverse).astype(np.float32)
        b = (beta.detach().numpy() - a * mean).astype(np.float32)
        out, place = _apply(x, a, b, relu, pool)
        ctx.save_for_backward(x)
        ctx.parts = (a, b, mean, inverse, relu, place)
        stats = torch.from_numpy(mean).float(), torch.from_numpy(variance).float()
        ctx.mark_non_differentiable(*stats)
        return out, *stats

    @staticmethod
    def backward(ctx: Any, g: Any, *rest: Any) -> Any:
        kernel, (x,) = fused.library(), ctx.saved_tensors
        a, b, mean, inverse, relu, place = ctx.parts
        half = int(x.dtype is torch.bfloat16)
        n, channels, height, width = x.shape
        rows = n * height * width
        g = g.contiguous(memory_format=torch.channels_last)
        sums, out = np.empty((2, channels)), torch.empty_like(x)
        if place is None:
            inputs: tuple[Any, ...] = (_at(x), _at(g), rows, channels, _at(a), _at(b))
            kernel.driftline_sums_back(*inputs, int(relu), _at(sums[0]), _at(sums[1]), half)
        else:
            slope = np.empty(height * width * channels, np.float32)
            inputs = (_at(x), _at(g), _at(place), n, height, width, channels)
            kernel.driftline_pooled_sums(*inputs, _at(sums[0]), _at(sums[1]), _at(slope), half)
        gamma_gradient = (sums[1] - mean * sums[0]) * inverse
        k = (-a * inverse * gamma_gradient / rows).astype(np.float32)
        m = (-a * sums[0] / rows - k * mean).astype(np.float32)
        if place is None:
            kernel.driftline_scaled_back(*inputs, _at(k), _at(m), int(relu), _at(out), half)
        else:
            kernel.driftline_pooled_back(*inputs, _at(a), _at(k), _at(m), _at(slope), _at(out), half)
        return out, torch.from_numpy(gamma_gradient).float(), torch.from_numpy(sums[0]).float(), None, None, None


def _ready(x: Any, channels: int) -> bool:
    if torch.compiler.is_compiling() or x.dtype not in KINDS or channels > MOST:
        return False
    return x.device.type == "cpu" and x.is_contiguous(memory_format=torch.channels_last) and fused.ready()


class Norm(nn.BatchNorm2d):
    """Batch normalisation of (N, C, H, W). relu: with the ReLU that follows; pool: and the 3 × 3 pooling with stride 2.

    The same parameters, statistics and results as torch's own, up to rounding.
    """

    def __init__(self, channels: int, relu: bool = False, pool: bool = False) -> None:
        super().__init__(channels)
        self.relu, self.pool = relu or pool, pool

    def forward(self, x: Any) -> Any:
        """x (N, C, H, W) → the same shape, or half as high and wide."""
        if self.training and _ready(x, self.num_features):
            out, mean, variance = _Normed.apply(x, self.weight, self.bias, self.eps, self.relu, self.pool)
            rows, share = x.numel() // self.num_features, self.momentum
            statistics: Any = self
            statistics.running_mean.lerp_(mean, share)
            statistics.running_var.lerp_(variance * (rows / max(rows - 1, 1)), share)
            statistics.num_batches_tracked.add_(1)
            return out
        if not self.training and not torch.is_grad_enabled() and _ready(x, self.num_features):
            return self._by_statistics(x)
        out = super().forward(x)
        out = torch.relu(out) if self.relu else out
        return nn.functional.max_pool2d(out, 3, 2, 1) if self.pool else out

    def _by_statistics(self, x: Any) -> Any:
        """Normalisation by the running statistics, without gradients."""
        statistics: Any = self
        a = self.weight / torch.sqrt(statistics.running_var + self.eps)
        return _apply(x, a.numpy(), (self.bias - a * statistics.running_mean).numpy(), self.relu, self.pool)[0]
