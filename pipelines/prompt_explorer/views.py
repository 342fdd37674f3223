"""What the explore page shows: the results of a query in all buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from driftline.pipelines.prompt_explorer.query import Query

BINS = 200  # of the histogram, over cosines from -1 to 1
Z = 1.959964  # 95 % of a normal distribution


@dataclass(frozen=True)
class Shot:
    """One image of the grid."""

    id: str
    """of the photo"""
    score: float
    """cosine to the query"""
    mark: bool | None
    """True: right, False: wrong, None: not marked"""
    also: tuple[str, ...]
    """other concepts that retrieve it"""
    verdict: str = ""
    """what the stage tally decided for this concept; "": nothing yet"""


@dataclass(frozen=True)
class Share:
    """The share of right images among the marked ones."""

    right: int
    """images marked as right"""
    marked: int
    """images marked as right or wrong"""

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval; (0, 1) if nothing is marked [Wilson 1927]."""
        n = self.marked
        if n == 0:
            return 0.0, 1.0
        p, z2 = self.right / n, Z * Z
        middle, half = p + z2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
        low = 0.0 if self.right == 0 else (middle - half) / (1 + z2 / n)
        high = 1.0 if self.right == n else (middle + half) / (1 + z2 / n)
        return low, high


@dataclass(frozen=True)
class BucketView:
    """The results in one bucket."""

    name: str
    """of the bucket"""
    shots: list[Shot]
    """images, best first"""
    cut: float
    """score of the last candidate (retrieve.per_class)"""
    histogram: list[int]
    """counts of all images over BINS cosines from -1 to 1"""
    share: Share
    """of right images among the shown ones"""


@dataclass(frozen=True)
class View:
    """The results of one query in all buckets."""

    query: Query
    """what was searched for"""
    buckets: list[BucketView]
    """in order of time"""
    share: Share
    """of right images among the shown ones"""
    overlap: dict[str, float]
    """other concept → share of the candidates that it retrieves, too"""
    unread: list[str]
    """ends of prompts that do not fit into the model's context"""
