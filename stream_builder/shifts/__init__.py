"""Shifts: exact, composable changes of labelled images between the steps of a stream.

A new shift is one file here and one line in `SHIFTS`, or an entry point `driftline.shifts`. One-letter codes are those
of Seq-to-Final [Yu et al.; spec]; corruptions have names.
"""

from driftline.curate.core.registry import Registry

COMMON = (
    "gaussian_noise", "gaussian_blur", "brightness", "contrast", "saturate", "jpeg", "pixelate", "elastic_transform",
)  # fmt: skip
SHIFTS = Registry(
    "shift", __name__, {"C": ".paper:Corruption", "R": ".paper:Rotation", "r": ".paper:ConditionalRotation",
                        "T": ".paper:Tint", "t": ".paper:ConditionalTint", "L": ".paper:LabelFlip",
                        "s": ".paper:Subpopulation", "p": ".paper:LabelShift",
                        **{name: f".common:{name}" for name in COMMON}},
    group="shifts", base="driftline.stream_builder.shifts.base:Shift",
    further="or {package.module:Name}, in braces",
)  # fmt: skip
