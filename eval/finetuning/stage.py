"""One stage of a method: a network, its trainable parts, data and a grid → the best fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eval.finetuning.fit import Fit, Fitted, Hyper, Rule
from eval.finetuning.fit_cache import Store, digest_of
from eval.finetuning.regularisers import Pull
from eval.finetuning.samples import Samples
from eval.finetuning.search import Book, Job, best_of
from eval.nets.chain import Net


@dataclass(frozen=True)
class Rules:
    """What the protocol prescribes for all methods."""

    network: str
    """name of the network"""
    fidelity: str
    """clean or paper-code"""
    search: str
    """full or raced"""
    rule: Rule
    """settings of every fit"""
    grids: dict[str, list[Hyper]]
    """base (fits without a pull), side (with a pull to the frozen model), joint (JM), joint-side (JST)"""
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
    ) -> tuple[Net, Fitted]:
        """The network with its best weights, and their fit. net: the start; its trainable parts learn. pulled: a
        description that identifies the pulls, and a function that makes those of a copy. decays: as in `Fit`.

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
        further = {"made": net.made, "decays": decays if decays != "l2" else "", "compiled": self.rules.compiled}
        base |= {key: value for key, value in further.items() if value}  # absent unless used: old keys stay valid

        def job(hyper: Hyper) -> Job:
            def make() -> Fit:
                pulls = (lambda copy: pulled[1](copy, hyper)) if pulled else (lambda copy: ())
                rule, compiled = self.rules.rule, self.rules.compiled
                return Fit(net.copy(), train, val, hyper, rule, self.seed, objective, pulls, decays, compiled)

            return Job(base | {"hyper": asdict(hyper)}, make, hyper)

        fitted = best_of([job(h) for h in hypers], self.store, self.rules.search, self.book, stage)
        best = net.copy()
        best.load_state_dict(fitted.state)
        best.fits = [*net.fits, self.book.fits[-1]["fit"]]
        return best, fitted
