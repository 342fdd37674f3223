"""Shifts: exact, composable changes of labelled images between the steps of a stream.

A new shift is one file here and one line in `SHIFTS`, or an entry point `driftline.shifts`. One-letter codes are those
of Seq-to-Final [Yu et al.; spec]; common corruptions have their published names.
"""

from __future__ import annotations

from curate.core.registry import Registry

COMMON = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "gaussian_blur", "defocus_blur", "motion_blur",
    "zoom_blur", "fog", "brightness", "contrast", "saturate", "jpeg", "pixelate", "elastic_transform",
)  # fmt: skip
SHIFTS = Registry(
    "shift",
    {
        "C": "stream_builder.shifts.corruption:Corruption",
        "R": "stream_builder.shifts.rotation:Rotation",
        "r": "stream_builder.shifts.conditional_rotation:ConditionalRotation",
        "T": "stream_builder.shifts.tint:Tint",
        "t": "stream_builder.shifts.conditional_tint:ConditionalTint",
        "L": "stream_builder.shifts.label_flip:LabelFlip",
        "s": "stream_builder.shifts.subpopulation:Subpopulation",
        "p": "stream_builder.shifts.label_shift:LabelShift",
        "A": "stream_builder.shifts.appearance:Appearance",
        "D": "stream_builder.shifts.disappearance:Disappearance",
        "P": "stream_builder.shifts.prior_drift:PriorDrift",
        **{name: f"stream_builder.shifts.common:{name}" for name in COMMON},
    },
    group="shifts",
    base="stream_builder.shifts.base:Shift",
)
