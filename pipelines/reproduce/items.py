"""What a paper's file lists: tables and figures, each with the evaluations that make it and the values in print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Values = Mapping[str, Mapping[str, float]]  # learner → score → value in print, shares as 0 … 1
Kind = Literal["scores", "means", "distances", "parameters", "scale", "figure"]


@dataclass(frozen=True)
class Need:
    """A file or folder of --data."""

    path: str
    """below --data"""
    what: str
    source: str


@dataclass(frozen=True)
class Cell:
    """Learners on one stream, and what the paper printed for them."""

    stream: tuple[str, ...]
    """a function of `streams`, and its words; (): none"""
    learners: Sequence[str]
    """as --learners takes them"""
    printed: Values = field(default_factory=dict)
    """{} where the paper only draws"""
    row: str = ""
    """what the table calls it"""
    group: str = ""
    """cells of one group are one row of an item of means"""
    protocol: str = "seq-to-final"
    preset: str = ""
    """settings of the paper"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """further settings; a `Need` stands for its path"""
    quick: Mapping[str, Any] | None = None
    """with --quick: settings in place of `settings`, and a preset in place of `preset`; None: the cell is left out"""
    seeds: Sequence[int] = (0,)
    """as many as the paper has"""
    lacks: str = ""
    """what is not as in the paper"""


@dataclass(frozen=True)
class Item:
    """A table or figure."""

    name: str
    """as --only takes it"""
    title: str
    kind: Kind = "scores"
    """scores and means (over the cells of a group): accuracies; distances of `stream measure`; parameters of networks;
    scale: what an index costs and finds; figure: plots of networks"""
    cells: Sequence[Cell] = ()
    """its evaluations; (): there are none, and `because` says why"""
    core_hours: float = 0.0
    """on CPU cores, estimated; 0: minutes"""
    gpu_hours: float = 0.0
    """on one H200, estimated; 0: minutes"""
    because: str = ""
    """why it has no evaluation, or what is not as in the paper"""
    plots: Sequence[str] = ()
    """of `plotting.finetuning`, for each cell"""
    digits: int = 2
    """digits that the paper prints after the point"""


@dataclass(frozen=True)
class Paper:
    """A paper's tables and figures."""

    title: str
    """and authors"""
    needs: Mapping[str, Need]
    """word of a cell's stream → the file behind it"""
    items: Sequence[Item]
    """in the order of the paper"""
    reduced: str
    """what --quick leaves out, in a sentence"""
    best_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """name in print → learners, of which the paper prints the best test"""
