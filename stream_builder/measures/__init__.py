"""What can be measured on a stream: distances between steps, and label correlation.

A new distance is a function (a (n, d), b (m, d), seed) → float and one line in `DISTANCES`, or an entry point
`driftline.measures`.
"""

from driftline.curate.core.registry import Registry

DISTANCES = Registry(
    "distance",
    f"{__name__}.shift_distance",
    {"w2": ":wasserstein2", "sliced": ":sliced"},
    group="measures",
    listed="distances",
)
