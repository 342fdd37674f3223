"""Shifts: small, exact, composable changes of labelled images between the steps of a stream.

A new shift is one file here and one line in `SHIFTS`. Letters are those of Seq-to-Final [Yu et al.; spec].
"""

from __future__ import annotations

from curate.ground.catalogue import Catalogue

SHIFTS = Catalogue(
    "shift",
    {
        "C": "stream_builder.shifts.corruption:Corruption",
        "R": "stream_builder.shifts.rotation:Rotation",
        "r": "stream_builder.shifts.conditional_rotation:ConditionalRotation",
        "T": "stream_builder.shifts.tint:Tint",
        "t": "stream_builder.shifts.conditional_tint:ConditionalTint",
        "L": "stream_builder.shifts.label_flip:LabelFlip",
    },
)
