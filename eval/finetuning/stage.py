"""One stage of a method: a network, its trainable parts, data and a grid → the best fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from driftline.curate.core.own_code import HOME, code_of
from driftline.eval.finetuning.fit import Fit, Fitted, Hyper, Rule
from driftline.eval.finetuning.modes import OBJECTIVES
from driftline.eval.finetuning.objectives import Pull
from driftline.eval.finetuning.samples import Samples
from driftline.eval.finetuning.search import Book, Job, Store, best_of, digest_of
from driftline.eval.nets.chain import Net


@dataclass(frozen=True)
class Rules:
    """What the protocol prescribes for all methods."""

    network: str
    """name of the network"""
    fidelity: str
    """clean or paper-code"""
    rule: Rule
    """settings of every fit"""
    grids: dict[str, list[Hyper]]
    """base (fits without a pull), side (with a pull to the frozen model), joint (JM), joint-side (JST); a stage with
    fewer fits takes the first points"""
    fits: int = 0
    """fits of a method, divided among its stages; 0: the whole grid in each stage"""
    device: str = "cpu"
    """cpu or cuda"""
    compiled: bool = False
    """networks by torch.compile"""

    @property
    def paper(self) -> bool:
        """Whether to follow the paper's code."""
        return self.fidelity == "paper-code"


@dataclass
class Work:
    """What the stages of one run share."""

    rules: Rules
    """prescriptions of the protocol"""
    seed: int
    """of the run, the same for every method, so that equal first stages are one fit"""
    store: Store
    """finished fits"""
    book: Book = field(default_factory=Book)
    """record of the searches"""
    stages: int = 1
    """stages of the method, which share its fits"""
    stage: int = 0
    """the next stage"""

    def grid(self, kind: str, lr: float | None = None, least: int = 1) -> list[Hyper]:
        """Points of the next stage. kind: key of `Rules.grids`. lr: instead of the grid's learning rates. least: points
        that the stage needs even if its share of the fits is smaller."""
        points = self.rules.grids[kind]
        if lr is not None:
            points = list(dict.fromkeys(replace(point, lr=lr) for point in points))
        if not self.rules.fits:
            return points
        first, last = (k * self.rules.fits // self.stages for k in (self.stage, self.stage + 1))
        self.stage += 1
        return points[: max(least, last - first)]

    def tuned(
        self,
        stage: str,
        net: Net,
        train: Sequence[Samples],
        val: Samples,
        hypers: Sequence[Hyper],
        objective: str = "erm",
        pulled: tuple[str, Callable[[Net, Hyper], Sequence[Pull]]] | None = None,
        decays: str = "l2",
        terms: Mapping[str, Any] | None = None,
        renews: bool = False,
    ) -> tuple[Net, Fitted]:
        """The network with its best weights, and their fit. net: the start; its trainable parts learn. pulled: a
        description that identifies the pulls, and a function that makes those of a copy. The others: as in `Fit`.

        Raises Diverged if every point does."""
        base: dict[str, Any] = {
            "fit": 1,
            "net": self.rules.network,
            "uses": net.used,
            "start": digest_of(net.state_dict()),
            "learns": [name for name, p in net.named_parameters() if p.requires_grad],
            "train": [domain.digest for domain in train],
            "val": val.digest,
            "objective": objective,
            "rule": asdict(self.rules.rule),
            "seed": self.seed,
            "pulled": pulled[0] if pulled else "",
        }
        further = {"made": net.additions, "decays": decays if decays != "l2" else "", "compiled": self.rules.compiled}
        further |= {"terms": dict(terms or {}), "code": _foreign(objective)}
        base |= {key: value for key, value in further.items() if value}  # absent unless used: old keys stay valid

        def job(hyper: Hyper) -> Job:
            def make() -> Fit:
                pulls = (lambda copy: pulled[1](copy, hyper)) if pulled else (lambda copy: ())
                how: Any = {"objective": objective, "terms": terms or {}, "pulls_of": pulls, "renews": renews}
                how |= {"decays": decays, "compiled": self.rules.compiled}
                return Fit(net.copy(), train, val, hyper, self.rules.rule, self.seed, **how)

            return Job(base | {"hyper": asdict(hyper)}, make, hyper)

        fitted = best_of([job(h) for h in hypers], self.store, self.book, stage)
        best = net.copy()
        best.load_state_dict(fitted.state)
        best.fits = [*net.fits, self.book.fits[-1]["fit"]]
        return best, fitted


def _foreign(objective: str) -> str:
    """The code of an objective of one's own, "" for ours: a changed one must not find its older fits."""
    code = HOME if objective == "joint" else code_of(OBJECTIVES.resolve(objective))
    return "" if code == HOME else code
