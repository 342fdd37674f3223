"""Convolutions of small images: taps that only see padding are skipped; few output pixels are one matrix product.

The sums are the same: a 3 × 3 kernel on an image of one pixel has one tap on it; the gradient of the others is zero.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv2d, pad

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
