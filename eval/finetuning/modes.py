"""The settings of a method, of a fit and of all methods; without torch, so that methods are listed without it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.registry import Registry

SIDES, LOW_RANK = ("side-1", "side-b"), ("lowrank-add", "lowrank-mul")
SEARCHES = ("search", "surgical-rgn", "surgical-snr")
FROZEN_JOINT = "frozen-joint"
OBJECTIVES = Registry(
    "objective",
    "driftline.eval.finetuning.objectives",
    {name: f":{name}" for name in ("erm", "irm", "dro")},
    group="objectives",
)
WITHOUT_POOL = ("none", "each", "joint")  # the other histories: one objective for the pooled steps


def _history(name: str) -> str:
    if name not in WITHOUT_POOL:
        OBJECTIVES.resolve(name)
    return name


def _weights(text: Any) -> Any:
    if text not in ("equal", "increasing") and not _numbers(text):
        raise ValueError("equal, increasing, or a number above 0 for each step, joined by /")
    return text


def _numbers(text: Any) -> list[float]:
    """`1/1/3` → numbers; [] for anything else."""
    try:
        numbers = [float(part) for part in str(text).split("/")]
    except ValueError:
        return []
    return numbers if all(0 < number < float("inf") for number in numbers) else []


History = Annotated[str, AfterValidator(_history)]
Mode = Literal["pooled", "all", "fc", "fc-all", "unfreeze-last", "unfreeze-first", "side-1", "side-b", "lowrank-add",
               "lowrank-mul", "search", "surgical-rgn", "surgical-snr", "frozen-joint", "stem"]  # fmt: skip
Final = Mode | PositiveInt | Annotated[str, Field(pattern=r"^[\w.-]+(\+[\w.-]+)+$")]
Regulariser = Literal["l2", "l1", "previous-l2", "previous-l1", "previous-all-l2", "fisher", "fisher-all"]
Weights = Annotated[str | float, AfterValidator(_weights)]
YesNo = bool | Literal["auto"]  # yes and no are read as booleans


@dataclass
class Method:
    """What a method does with earlier steps and with the last one: the settings of `ToFinal`."""

    history: History = "erm"
    """how the steps before the last are learned: none, pooled (erm, irm, dro, an objective of your own as
    package.module:name), each, joint"""
    final: Final = "all"
    """what is done at the last step (history `each`: at every step after the first; `joint`: how times differ); also
    names of blocks joined by +, which learn alone: stem+fc. unfreeze: one more block each time, from the classifier
    down (last) or from the stem up (first); lowrank: low-rank changes; surgical: the first blocks by gradient norm
    (rgn) or signal to noise (snr); search: validation chooses one block, or all"""
    regulariser: Regulariser = "l2"
    """penalty of training from earlier weights, or between the models of a joint one; l2 and l1 pull towards zero"""
    schedule: Literal["none", "linear", "exponential"] = "none"
    """schedule of learning rates over steps"""
    weights: Weights = "equal"
    """weights of the steps' losses in a pool or a joint model: equal, increasing (1/(T − t + 1)), or a number for each
    step, as in 1/1/2/3"""
    last_weight: PositiveFloat = 3.0
    """how many times as much the last step's loss counts in a joint model"""
    irm_penalty: NonNegativeFloat = 1.0
    """strength of IRM's penalty, λ"""
    start: Literal["previous", "new"] = "previous"
    """weights that an adapted network starts from: those of before, or new random ones, for regularisers and a frozen
    joint model [paper, table 15]"""
    ends: Literal["auto", "new", "side"] = "auto"
    """stem and classifier beside side modules: replaced (new), or with side modules, too (side); auto: new, in a joint
    model side"""
    sees_final: YesNo = "auto"
    """whether the history includes the last step's training data; auto: yes for IRM and DRO with fidelity=paper-code,
    as that code does"""
    rank: PositiveInt = 4
    """rank of low-rank adapters"""
    shared: str | int = ""
    """blocks that the times of a joint model share, joined by +: stem at all times, stem:0-2 at some"""
    beam: PositiveInt = 1
    """models that a search over steps keeps"""
    resets: YesNo = "auto"
    """whether each schedule starts from the first weights; auto: yes unless fidelity=paper-code"""

    def check(self) -> None:
        """Raise BadConfig for a history and a final mode that exclude each other."""
        if self.history in ("none", "each") and self.mode == "pooled":
            raise BadConfig(f"final is pooled and history {self.history}.", "Expected history erm, irm or dro.")
        if self.history == "joint" and self.mode not in ("all", *SIDES):
            raise BadConfig(f"final is {self.mode!r} and history joint.", "Expected all, side-1 or side-b.")
        if self.mode == FROZEN_JOINT and not self.pools:
            raise BadConfig(f"final is {FROZEN_JOINT} and history {self.history}.", "Expected history erm, irm or dro.")
        if self.schedule != "none" and (self.history != "each" or self.mode in SIDES):
            problem = f"schedule is {self.schedule!r}, history {self.history} and final {self.mode}."
            raise BadConfig(problem, "Expected history each and no side modules.")

    @property
    def mode(self) -> str:
        """`final` as text."""
        return str(self.final)

    @property
    def sharing(self) -> tuple[str, ...]:
        """The words of `shared`."""
        return tuple(word for word in str(self.shared).split("+") if word)

    @property
    def pools(self) -> bool:
        """Whether one model learns several steps at once."""
        return self.history not in WITHOUT_POOL

    @property
    def new_ends(self) -> bool:
        """Whether stem and classifier are replaced, where the other blocks get side modules."""
        return self.ends == "new" or (self.ends == "auto" and self.history != "joint")

    def step_weights(self, steps: int, used: int) -> list[float] | None:
        """Weight of each of the first `used` of `steps` steps; None: all equal. Raises IncompatibleStream for another
        number of weights."""
        if self.weights == "equal":
            return None
        if self.weights == "increasing":
            return [1 / (used - t) for t in range(used)]
        if len(numbers := _numbers(self.weights)) != steps:
            problem = f"weights has {len(numbers)} numbers, and the stream {steps} steps."
            raise IncompatibleStream(problem, "Expected one for each step.")
        return numbers[:used]

    def idle(self) -> dict[str, str]:
        """Setting that changes nothing beside the others → why."""
        adapts = self.mode not in ("pooled", *SIDES, *LOW_RANK) and self.history != "joint"
        pulls = adapts and self.history != "none"
        plain = self.regulariser in ("l2", "l1")
        sided = self.mode in SIDES
        never = {
            "rank": (self.mode not in LOW_RANK, "final adds no low-rank adapters"),
            "shared": (self.history != "joint", "history is not joint"),
            "last_weight": (self.history != "joint", "history is not joint"),
            "irm_penalty": (self.history != "irm", "history is not irm"),
            "ends": (not sided, "final adds no side modules"),
            "beam": (self.mode not in SEARCHES or self.history != "each", "no search follows another"),
            "resets": (self.schedule == "none", "there is no schedule"),
            "sees_final": (not self.pools or self.mode == "pooled", "there is no history apart from the last step"),
            "weights": (self.history not in ("erm", "joint"), "only a pool or a joint model weighs steps"),
            "start": (not pulls or (plain and self.mode != FROZEN_JOINT), "nothing would be left of the history"),
            "regulariser": (not plain and (sided if self.history == "joint" else not pulls),
                            "no step is trained whole beside an earlier one"),
        }  # fmt: skip
        return {name: why for name, (dead, why) in never.items() if dead}


def groups_of(shared: Sequence[str], times: int) -> dict[str, list[int]]:
    """Block → for each time, the first time with which it shares the block. shared: `stem` at all times, `fc:1-3` at
    times 1 to 3, `fc:0/2` at times 0 and 2. Raises BadConfig for anything else.

    >>> groups_of(["stem", "fc:1-2"], 4)
    {'stem': [0, 0, 0, 0], 'fc': [0, 1, 1, 3]}
    """
    first: dict[str, list[int]] = {}
    for text in shared:
        name, colon, named = text.partition(":")
        ends = [part.split("-") for part in named.split("/")] if colon else [["0", str(times - 1)]]
        if not all(len(pair) < 3 and all(end.isdecimal() and int(end) < times for end in pair) for pair in ends):
            expected = f"Expected steps from 0 to {times - 1}, as in {name}:1-2 or {name}:0/2."
            raise BadConfig(f"shared is {text!r}.", expected)
        members = sorted({t for pair in ends for t in range(int(pair[0]), int(pair[-1]) + 1)})
        of = first.setdefault(name, list(range(times)))
        for t in members:
            of[t] = members[0]
    return first


@dataclass(frozen=True)
class Hyper:
    """A point of the grid of hyper-parameters."""

    lr: float = 1e-3
    decay: float = 1e-4
    """factor of Σ‖W‖² (not halved) in the loss"""
    dropout: float = 0.0
    adjacent: float = 0.0
    """factor of ‖Δ‖² to the model of the previous time, for methods that have this pull"""


@dataclass(frozen=True)
class Rule:
    """Settings that all fits of a run share."""

    epochs: int = 100
    """epochs, at most"""
    batch: int = 100
    patience: int = 6
    """a fit stops after so many consecutive epochs without an improvement"""
    stop: str = "previous"
    """improvement of validation accuracy over the epoch before (previous, as the paper's code) or over the best
    (best)"""
    augment: tuple[str, ...] = ()
    """augmentations of training batches"""
    normalise: bool = False
    """normalise pixels; else they are 0 … 255"""
    half: bool = False
    """products in bfloat16"""
    still: bool = False
    """frozen parts keep their statistics of batch normalisation"""
    whole: bool = True
    """Fisher information of whole batches instead of single samples"""


@dataclass(frozen=True)
class Rules:
    """What the protocol prescribes for all methods."""

    network: str
    paper: bool
    """whether to follow the paper's code"""
    rule: Rule
    grids: dict[str, list[Hyper]]
    """base (fits without a pull), side (with a pull to the frozen model), joint (JM), joint-side (JST); a stage with
    fewer fits takes the first points"""
    fits: int = 0
    """fits of a method, divided among its stages; 0: the whole grid in each stage"""
    device: str = "cpu"
    compiled: bool = False
    """networks by torch.compile"""
