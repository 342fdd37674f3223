"""The settings of a method; without torch, so that methods can be listed where it is not installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from driftline.curate.core.errors import BadConfig

SIDES, LOW_RANK = ("side-1", "side-b"), ("lowrank-add", "lowrank-mul")
SEARCHES = ("search", "surgical-rgn", "surgical-snr")
History = Literal["none", "erm", "irm", "dro", "each", "joint"]
Phased = Literal["all", "fc", "fc-all", "unfreeze-last", "unfreeze-first"]
Added = Literal["side-1", "side-b", "lowrank-add", "lowrank-mul"]
Final = Literal["pooled", Phased, Added, "search", "surgical-rgn", "surgical-snr"]
Regulariser = Literal["l2", "l1", "previous-l2", "previous-l1", "previous-all-l2", "fisher", "fisher-all"]
Schedule = Literal["none", "linear", "exponential"]
Weights = Literal["equal", "increasing"]


@dataclass(frozen=True)
class Method:
    """What a method does with earlier steps and with the last one."""

    history: History = "none"
    """how the steps before the last are learned"""
    final: Final = "all"
    """what is done at the last step (history `each`: at every step after the first; `joint`: how times differ)"""
    regulariser: Regulariser = "l2"
    """penalty of training from earlier weights; l2 and l1 pull towards zero"""
    schedule: Schedule = "none"
    """schedule of learning rates over steps"""
    weights: Weights = "equal"
    """weights of pooled steps' losses; increasing: 1/(T − t + 1)"""
    sees_final: bool = False
    """whether the history includes the last step's training data, a defect of the paper's code"""
    rank: int = 4
    """rank of low-rank adapters"""
    shared: tuple[str, ...] = ()
    """blocks that all times of a joint model share"""
    beam: int = 1
    """models that a search over steps keeps"""
    resets: bool = True
    """whether each schedule starts from the first weights; in the paper's code it does not"""

    def __post_init__(self) -> None:
        if self.history in ("none", "each") and self.final == "pooled":
            raise BadConfig(f"final is pooled and history {self.history}.", "Expected history erm, irm or dro.")
        if self.history == "joint" and self.final not in ("all", *SIDES):
            raise BadConfig(f"final is {self.final!r} and history joint.", "Expected all, side-1 or side-b.")
        if self.schedule != "none" and (self.history != "each" or self.final in SIDES):
            problem = f"schedule is {self.schedule!r}, history {self.history} and final {self.final}."
            raise BadConfig(problem, "Expected history each and no side modules.")

    def unused(self) -> dict[str, str]:
        """Setting that changes nothing beside the others → why."""
        pools = self.history in ("erm", "irm", "dro")
        adapts = self.final not in ("pooled", *SIDES, *LOW_RANK) and self.history != "joint"
        pulls = adapts and self.history != "none"
        never = {
            "rank": (self.final not in LOW_RANK, "final adds no low-rank adapters"),
            "shared": (self.history != "joint", "history is not joint"),
            "beam": (self.final not in SEARCHES or self.history != "each", "no search follows another"),
            "resets": (self.schedule == "none", "there is no schedule"),
            "sees_final": (not pools or self.final == "pooled", "there is no history apart from the last step"),
            "weights": (self.history != "erm", "only a pool of steps weighs them"),
            "regulariser": (
                self.history == "joint" or (self.regulariser not in ("l1", "l2") and not pulls),
                "no step is trained whole after an earlier one",
            ),
        }
        return {name: why for name, (dead, why) in never.items() if dead}
