"""Flips, crops and small rotations of a whole batch at once, as one gather of pixels on the images' device."""

from typing import Any

import numpy as np
import numpy.typing as npt

PAD = 8  # an image is shifted by at most 1/PAD of its side; new pixels are black
TURN = 10.0  # largest rotation in degrees
KINDS = ("flip", "crop", "rotate")


def draw(shape: tuple[int, ...], kinds: tuple[str, ...], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """shape: (B, H, W, 3) → (B, 5): cosine and sine of each image's rotation, shift in rows and columns, flipped or
    not.

    Drawn on the CPU: the same on every device.
    """
    n, height, width, _ = shape
    flip = rng.random(n) < 0.5 if "flip" in kinds else np.zeros(n)
    reach = (height // PAD, width // PAD) if "crop" in kinds else (0, 0)
    down, right = (rng.integers(-most, most + 1, n) for most in reach)
    angle = np.deg2rad(rng.uniform(-TURN, TURN, n)) if "rotate" in kinds else np.zeros(n)
    return np.stack([np.cos(angle), np.sin(angle), down, right, flip], 1).astype(np.float32)


def augmented(x: Any, draws: npt.NDArray[np.float32]) -> Any:
    """x (B, H, W, 3) uint8 tensor → the same, each image flipped, shifted and rotated (nearest pixel) by its own
    draw."""
    import torch

    n, height, width, _ = x.shape
    each = torch.from_numpy(draws).to(x.device)[:, :, None, None]
    cos, sin, down, right, flip = each.unbind(1)
    rows = torch.arange(height, dtype=torch.float32, device=x.device)[:, None] - (height - 1) / 2
    columns = torch.arange(width, dtype=torch.float32, device=x.device) - (width - 1) / 2
    # Source of each pixel: rotated about the centre, then shifted.
    from_row = (sin * columns + cos * rows).add_(down + (height - 1) / 2).round_()
    from_column = (cos * columns - sin * rows).add_(right + (width - 1) / 2).round_()
    inside = (from_row >= 0) & (from_row < height) & (from_column >= 0) & (from_column < width)
    from_column = torch.where(flip > 0, width - 1 - from_column, from_column)
    places = from_row.mul_(width).add_(from_column).mul_(inside).long().view(n, -1)
    # Four bytes at a time: one gather of whole pixels instead of three of their channels.
    pixels = torch.nn.functional.pad(x, (0, 1)).view(torch.int32).view(n, -1)
    taken = pixels.gather(1, places).mul_(inside.view(n, -1))
    return taken.view(torch.uint8).view(n, height, width, 4)[..., :3]
