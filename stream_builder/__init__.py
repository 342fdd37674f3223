"""Anything labelled and ordered in time → a Stream: steps with named splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from driftline.stream_builder.builders.arrays import from_arrays as from_arrays
    from driftline.stream_builder.builders.release import from_release as from_release
    from driftline.stream_builder.builders.shift_sequence import compose as compose
    from driftline.stream_builder.measures.shift_distance import measure as measure
    from driftline.stream_builder.step import Split as Split
    from driftline.stream_builder.step import Step as Step
    from driftline.stream_builder.stream import Stream as Stream
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "Split": "driftline.stream_builder.step:Split",
            "Step": "driftline.stream_builder.step:Step",
            "Stream": "driftline.stream_builder.stream:Stream",
            "compose": "driftline.stream_builder.builders.shift_sequence:compose",
            "from_arrays": "driftline.stream_builder.builders.arrays:from_arrays",
            "from_release": "driftline.stream_builder.builders.release:from_release",
            "measure": "driftline.stream_builder.measures.shift_distance:measure",
        },
    )
