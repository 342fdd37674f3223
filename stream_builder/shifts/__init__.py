"""Shifts: exact, composable changes of labelled images between the steps of a stream.

A new shift is one file here and one line in `SHIFTS`, or an entry point `driftline.shifts`. One-letter codes are those
of Seq-to-Final [Yu et al.; spec]; corruptions have names.
"""

from __future__ import annotations

from driftline.curate.core.registry import Registry

COMMON = (
    "gaussian_noise",
    "gaussian_blur",
    "brightness",
    "contrast",
    "saturate",
    "jpeg",
    "pixelate",
    "elastic_transform",
)
SHIFTS = Registry(
    "shift",
    {
        "C": "driftline.stream_builder.shifts.corruption:Corruption",
        "R": "driftline.stream_builder.shifts.rotation:Rotation",
        "r": "driftline.stream_builder.shifts.conditional_rotation:ConditionalRotation",
        "T": "driftline.stream_builder.shifts.tint:Tint",
        "t": "driftline.stream_builder.shifts.conditional_tint:ConditionalTint",
        "L": "driftline.stream_builder.shifts.label_flip:LabelFlip",
        "s": "driftline.stream_builder.shifts.subpopulation:Subpopulation",
        "p": "driftline.stream_builder.shifts.label_shift:LabelShift",
        **{name: f"driftline.stream_builder.shifts.common:{name}" for name in COMMON},
    },
    group="shifts",
    base="driftline.stream_builder.shifts.base:Shift",
    further="or {package.module:Name}, in braces",
)
