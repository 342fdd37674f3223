"""One stage of a method: a network, what of it learns, on which data, with which grid → the best fit."""

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
    """What a protocol lays down for all methods. network: name. rule: of every fit. search: "full" or "raced".
    fidelity: "clean" or "paper-code". grids: base (fits without a pull), side (with a pull to the frozen model), joint
    (JM), joint-side (JST). compiled: networks by torch.compile."""

    network: str
    fidelity: str
    search: str
    rule: Rule
    grids: dict[str, list[Hyper]]
    device: str = "cpu"
    compiled: bool = False

    @property
    def paper(self) -> bool:
        """Whether to do what the paper's code does."""
        return self.fidelity == "paper-code"


@dataclass
class Work:
    """What the stages of one run share. seed: of the run, the same for every method, so that what begins alike is one
    fit. book: what was done."""

    rules: Rules
    seed: int
    store: Store
    book: Book = field(default_factory=Book)

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
        """The network with its best weights, and their fit. net: begins here; what it has trainable learns. pulled: a
        description that decides them, and what makes the pulls of a copy. decays: as in `Fit`.

        Raises Diverged when every point does."""
        base: dict[str, Any] = {
            "fit": 1,
            "net": self.rules.network,
            "uses": net.used,
            "start": digest_of(net.state_dict()),
            "learns": [name for name, p in net.named_parameters() if p.requires_grad],
            "train": [one.digest for one in train],
            "val": val.digest,
            "objective": objective,
            "rule": asdict(self.rules.rule),
            "seed": self.seed,
            "pulled": pulled[0] if pulled else "",
        }
        if net.made:
            base["made"] = net.made
        if decays != "l2":
            base["decays"] = decays
        if self.rules.compiled:
            base["compiled"] = True

        def job(hyper: Hyper) -> Job:
            def make() -> Fit:
                pulls = (lambda one: pulled[1](one, hyper)) if pulled else (lambda one: ())
                rule, compiled = self.rules.rule, self.rules.compiled
                return Fit(net.copy(), train, val, hyper, rule, self.seed, objective, pulls, decays, compiled)

            return Job(base | {"hyper": asdict(hyper)}, make, hyper)

        fitted = best_of([job(h) for h in hypers], self.store, self.rules.search, self.book, stage)
        best = net.copy()
        best.load_state_dict(fitted.state)
        return best, fitted
