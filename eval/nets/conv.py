"""ConvNets of Seq-to-Final: one convolution and normalisation per block, no ReLU after the stem [spec, section 2]."""

from functools import partial

from torch import nn

from driftline.eval.nets.chain import HEAD, STEM, Blocks, conv_norm, depth_of, mean_of_places, stem, strides

WIDTHS = {1: (512,), 2: (128, 512), 3: (128, 256, 512), 4: (64, 128, 256, 512)}  # [Table 7]; also of ResNets


def blocks(name: str, n_classes: int, x_shape: tuple[int, ...]) -> Blocks:
    """A stem, then 1 to 4 convolutions with normalisation."""
    widths = WIDTHS[depth_of(name)]
    shapes = zip((64, *widths[:-1]), widths, strides(len(widths)), strict=True)
    make = {str(i + 1): partial(conv_norm, *shape) for i, shape in enumerate(shapes)}
    head = partial(nn.Linear, widths[-1], n_classes)
    return Blocks({STEM: stem, **make, HEAD: head}, side=dict(make), before_head=mean_of_places)
