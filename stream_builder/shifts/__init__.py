"""Shifts: exact, composable changes of labelled images between the steps of a stream.

A new shift is one file here and one line in `SHIFTS`, or an entry point `driftline.shifts`. One-letter codes are those
of Seq-to-Final [Yu et al.; spec]; corruptions have names.
"""

from driftline.curate.core.registry import Registry

COMMON = (
    "gaussian_noise", "gaussian_blur", "brightness", "contrast", "saturate", "jpeg", "pixelate", "elastic_transform",
)  # fmt: skip
SHIFTS = Registry(
    "shift",
    {
        "C": "driftline.stream_builder.shifts.paper:Corruption",
        "R": "driftline.stream_builder.shifts.paper:Rotation",
        "r": "driftline.stream_builder.shifts.paper:ConditionalRotation",
        "T": "driftline.stream_builder.shifts.paper:Tint",
        "t": "driftline.stream_builder.shifts.paper:ConditionalTint",
        "L": "driftline.stream_builder.shifts.paper:LabelFlip",
        "s": "driftline.stream_builder.shifts.paper:Subpopulation",
        "p": "driftline.stream_builder.shifts.paper:LabelShift",
        **{name: f"driftline.stream_builder.shifts.common:{name}" for name in COMMON},
    },
    group="shifts",
    base="driftline.stream_builder.shifts.base:Shift",
    further="or {package.module:Name}, in braces",
)
