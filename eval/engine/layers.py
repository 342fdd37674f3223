"""Layers of networks on small images, with the results of torch's own up to rounding, and a classifier on angles.

Convolutions: taps that only see padding are skipped; few output pixels are one matrix product. The sums are the same: a
3 × 3 kernel on an image of one pixel has one tap on it; the gradient of the others is zero.

Batch normalisation with the ReLU and the pooling that follow it: in C if possible, else in torch, whose own takes a
third of the time of a small network's update in bfloat16 on a CPU. Channels last, training statistics; tests compare C
and torch.
"""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import conv2d, linear, normalize, pad

from driftline.eval.engine import fused

PLACES, NUMBERS = 16, 1 << 18  # up to this many pixels and from this many weights a product is faster (measured)


class Conv(nn.Conv2d):
    """Like torch's own, without bias: the same parameters and, up to rounding, the same results."""

    def __init__(self, inside: int, outside: int, size: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__(inside, outside, size, stride, padding, bias=False)

    def forward(self, x: Any) -> Any:
        """x (N, C, H, W) → (N, D, H', W')."""
        size, stride, border = self.kernel_size[0], self.stride[0], int(self.padding[0])
        height, width = x.shape[2:]
        rows, columns = (taps(n, size, stride, border) for n in (height, width))
        weight = self.weight
        if rows != (0, size) or columns != (0, size):
            weight = weight[:, :, slice(*rows), slice(*columns)]
        above, left = border - rows[0], border - columns[0]
        tall, wide = ((n + 2 * border - size) // stride + 1 for n in (height, width))
        below = (tall - 1) * stride + rows[1] - rows[0] - height - above
        right = (wide - 1) * stride + columns[1] - columns[0] - width - left
        # Evaluation in float32 has many images at once: patches of 16 pixels would take memory and save no time.
        most = PLACES if torch.is_grad_enabled() or x.dtype is torch.bfloat16 else PLACES // 4
        small = tall * wide <= most and weight.numel() >= NUMBERS
        if small and x.device.type == "cpu" and x.is_contiguous(memory_format=torch.channels_last):
            return _Product.apply(x, self.weight, (rows, columns), stride, (left, right, above, below), (tall, wide))
        if above == below == left == right:
            return conv2d(x, weight, None, stride, above)
        return conv2d(pad(x, (left, right, above, below)), weight, None, stride)


def taps(length: int, size: int, stride: int, border: int) -> tuple[int, int]:
    """First and last + 1 of a kernel's taps that cover any of `length` pixels.

    >>> taps(1, 3, 1, 1), taps(2, 3, 2, 1), taps(8, 3, 2, 1)
    ((1, 2), (1, 3), (0, 3))
    """
    places = range((length + 2 * border - size) // stride + 1)
    met = [k for k in range(size) if any(0 <= place * stride + k - border < length for place in places)]
    return met[0], met[-1] + 1


class _Product(torch.autograd.Function):
    """Patches (N places, taps · C) times weights (taps · C, D). Of the weights only the given rows and columns of taps
    count. Borders may be negative: pixels that no tap covers."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, ends: Any, stride: int, borders: Any, places: tuple[int, int]) -> Any:
        ctx.whole, ctx.slices = weight.shape, (..., slice(*ends[0]), slice(*ends[1]))
        weight = weight[ctx.slices]
        outside, inside, high, broad = weight.shape
        left, right, above, below = borders
        framed = pad(x.permute(0, 2, 3, 1), (0, 0, left, right, above, below)).contiguous()
        a, b, c, d = framed.stride()
        patches = framed.as_strided((len(x), *places, high, broad, inside), (a, b * stride, c * stride, b, c, d))
        patches = patches.reshape(-1, high * broad * inside)
        matrix = weight.permute(0, 2, 3, 1).reshape(outside, -1).to(x.dtype)
        ctx.save_for_backward(patches, matrix)
        ctx.about = (x.shape, framed.shape, weight.shape, weight.dtype, stride, borders, places)
        return (patches @ matrix.t()).view(len(x), *places, outside).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        patches, matrix = ctx.saved_tensors
        shape, framed, (outside, inside, high, broad), kind, stride, (left, _, above, _), (tall, wide) = ctx.about
        g = g.permute(0, 2, 3, 1).reshape(-1, outside)
        weight_gradient = (g.t() @ patches).view(outside, high, broad, inside).permute(0, 3, 1, 2).to(kind)
        if weight_gradient.shape != ctx.whole:  # channels last, as the weights are: autograd keeps it without a copy
            whole = torch.empty(ctx.whole, dtype=kind, memory_format=torch.channels_last).zero_()
            whole[ctx.slices] = weight_gradient
            weight_gradient = whole
        if not ctx.needs_input_grad[0]:
            return None, weight_gradient, None, None, None, None
        each = (g @ matrix).view(shape[0], tall, wide, high, broad, inside)
        total = g.new_zeros(framed)
        for i in range(high):
            for j in range(broad):
                rows = slice(i, i + stride * (tall - 1) + 1, stride)
                columns = slice(j, j + stride * (wide - 1) + 1, stride)
                total[:, rows, columns] += each[:, :, :, i, j]
        height, width = shape[2:]
        inner = pad(total, (0, 0, -left, width - (framed[2] - left), -above, height - (framed[1] - above)))
        return inner.permute(0, 3, 1, 2), weight_gradient, None, None, None, None


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


class CosineLayer(nn.Module):
    """Scores σ · cos(x, w), without bias; σ is learned [near-future accuracy, sec. 4.1, CosineFC]."""

    def __init__(self, width: int, n_classes: int) -> None:
        """Weights (n_classes, width), U(±1/√width) from torch's generator; σ = 1."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, width).uniform_(-(width**-0.5), width**-0.5))
        self.sigma = nn.Parameter(torch.ones(()))

    def forward(self, x: Any) -> Any:
        """x (B, D) → (B, C)."""
        return self.sigma * linear(normalize(x), normalize(self.weight))
