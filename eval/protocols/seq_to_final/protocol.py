"""The protocol with its settings, and the paper's grids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from curate.core.errors import BadConfig
from curate.core.seeding import rng_for
from eval.learner import Learner, Task
from eval.protocol import Walk
from eval.protocols.seq_to_final import loop as walks
from eval.protocols.seq_to_final import score as scores
from eval.rows import Row
from stream_builder.stream import Step, Stream

if TYPE_CHECKING:
    from eval.finetuning.stage import Rules

RATES, DECAYS, DROPOUTS, ADJACENTS = (1e-3, 1e-4), (1e-4, 1e-2), (0.0, 0.5), (0.01, 0.1, 1.0)  # [spec, section 3]
TINY = 1e-12
EPOCHS = {"paper": 100, "small": 10}
CHOICES = {
    "budget": ("small", "paper"),
    "fidelity": ("clean", "paper-code"),
    "search": ("full", "raced"),
    "precision": ("auto", "float32", "bfloat16"),
}


@dataclass(frozen=True)
class SeqToFinal(Walk):
    """Learn from the train and validation data of all steps, choose on validation data, test on the last step.

    network: conv-1 … res-4, linear, mlp, any timm model; "auto" is conv-1 for images, linear for features. budget:
    "paper" (grids of 8 points or more, at most 100 epochs) or "small" (2 points, 10 epochs). fidelity: "clean" or
    "paper-code", what the reference executed. epochs: at most; 0 for the budget's. search: the whole grid ("full") or
    successive halving ("raced"). precision: of products. per_step: also test on every step that has a test split. lrs:
    learning rates of the grid, joined by /, in place of the paper's; adjacents: strengths of the pull to the model of
    the time before, likewise. val_share: of the training data of steps that have no validation split, held out of each
    class as one; 0: such a stream is refused. compile: blocks by torch.compile, for GPUs; on a CPU that is slower.
    """

    network: str = "auto"
    budget: str = "small"
    fidelity: str = "clean"
    epochs: int = 0
    search: str = "full"
    precision: str = "auto"
    per_step: bool = False
    lrs: str = ""
    adjacents: str = ""
    val_share: float = 0.0
    compile: bool = False

    divides: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise BadConfig(f"{name} is {getattr(self, name)!r}.", f"Expected {' or '.join(known)}.")
        self.values("lrs", RATES, TINY), self.values("adjacents", ADJACENTS, 0.0)
        if self.epochs < 0 or not 0 <= self.val_share < 1:
            raise BadConfig(
                f"epochs is {self.epochs}, val_share {self.val_share}.",
                "Expected at least 1, or 0 for the budget's; a share from 0 to below 1.",
            )

    def values(self, name: str, usual: tuple[float, ...], least: float) -> tuple[float, ...]:
        """Numbers of a setting, or the usual ones. Raises BadConfig for what is none."""
        text = str(getattr(self, name))
        try:
            found = tuple(float(part) for part in text.split("/")) if text else usual
        except ValueError:
            found = ()
        if not found or not all(least <= value < float("inf") for value in found):
            raise BadConfig(f"{name} is {text!r}.", f"Expected numbers from {least:g} joined by /, as in 0.001/0.0001.")
        return found

    def fit(self, stream: Stream) -> None:
        """Raise IncompatibleStream, before any work, where the stream lacks what the protocol needs, BadConfig for a
        network that is none or takes other samples."""
        from eval.nets import build

        walks.fit(stream, self.val_share)
        build(self.settled(stream).network, len(stream.classes), stream.x_shape, rng_for(0))

    def settled(self, stream: Stream) -> SeqToFinal:
        """With a network and a precision."""
        from eval.engine.fused import has_half

        images = len(stream.x_shape) == 3
        network = ("conv-1" if images else "linear") if self.network == "auto" else self.network
        precision = ("bfloat16" if images and has_half() else "float32") if self.precision == "auto" else self.precision
        epochs = self.epochs or EPOCHS[self.budget]
        return replace(self, network=network, precision=precision, epochs=epochs)

    def rules(self, stream: Stream) -> Rules:
        """What all methods of a run have in common."""
        from eval.finetuning.fit import Rule
        from eval.finetuning.stage import Rules

        paper = self.fidelity == "paper-code"
        augment = () if paper or len(stream.x_shape) != 3 else tuple(_augment(stream))
        rule = Rule(
            epochs=self.epochs,
            patience=6 if paper else 10,
            stop="previous" if paper else "best",
            augment=augment,
            normalise=not paper,
            half=self.precision == "bfloat16",
            still=not paper,
            whole=paper,
        )
        pulls = self.values("adjacents", ADJACENTS, 0.0)
        points = grids(self.budget, paper, self.values("lrs", RATES, TINY), pulls)
        return Rules(self.network, self.fidelity, self.search, rule, points, compiled=self.compile)

    def task(self, stream: Stream) -> Task:
        """Classes, shape, steps, and the rules."""
        return Task(len(stream.classes), stream.x_shape, steps=len(stream.steps), rules=self.rules(stream))

    def told(self, stream: Stream) -> dict[str, Any]:
        """Of a composed sequence: what decides its samples."""
        return {key: stream.facts[key] for key in ("base", "sequence", "sizes", "draws") if key in stream.facts}

    def first_step(self, stream: Stream, rng: np.random.Generator) -> Step:
        """The first step's train and val splits."""
        return stream.steps[0].visible()

    def walk(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """One row tested on "final"; with per_step, one on each step that has a test split."""
        return walks.to_final(stream, learner, self.per_step, self.val_share, seed)

    def score(self, rows: Sequence[Row], steps: int) -> dict[str, Any]:
        """final; per-step accuracies where they were asked."""
        return scores.scored(rows, steps)


def _augment(stream: Stream) -> Sequence[str]:
    """What the stream says its training images want; flips, crops and small turns where it says nothing."""
    told = stream.facts.get("loading", {})
    return [str(kind) for kind in told.get("augment", ("flip", "crop", "rotate"))]


def grids(
    budget: str, paper: bool, rates: tuple[float, ...] = RATES, pulls: tuple[float, ...] = ADJACENTS
) -> dict[str, list[Any]]:
    """Points of each kind of stage. The paper's code gives 8 to plain fits, 24 to side modules, 3 to JM and 1 to JST;
    clean gives all of them the same number: 8, or 2 with a small budget. Strengths of a sweep are all tried."""
    from eval.finetuning.search import points

    swept = pulls != ADJACENTS
    if budget == "small":
        base = points(rates, DECAYS[:1], DROPOUTS[:1])
        side = points(rates, DECAYS[:1], DROPOUTS[:1], pulls if swept else ADJACENTS[1:2])
        if paper:
            return {"base": base, "side": side, "joint": side[:: len(rates)], "joint-side": base[:1]}
        return {"base": base, "side": side, "joint": side, "joint-side": base}
    base = points(rates, DECAYS, DROPOUTS)
    if paper:
        side = points(rates, DECAYS, DROPOUTS, pulls)
        joint = points(rates[:1], DECAYS[:1], DROPOUTS[1:], pulls)
        return {"base": base, "side": side, "joint": joint, "joint-side": points(rates[:1], DECAYS[:1], DROPOUTS[1:])}
    side = points(rates, DECAYS[:1], DROPOUTS, pulls if swept else (ADJACENTS[0], ADJACENTS[2]))
    return {"base": base, "side": side, "joint": side, "joint-side": base}
