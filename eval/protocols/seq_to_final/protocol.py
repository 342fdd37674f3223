"""The protocol with its settings, and the paper's grids: all steps' train and validation data, then the last step's
test."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.engine import fused
from driftline.eval.finetuning.modes import Hyper, Rule, Rules
from driftline.eval.learner import Learner, Task
from driftline.eval.learners.online import chosen_rate
from driftline.eval.nets import build
from driftline.eval.predictions import evaluate_split
from driftline.eval.protocol import Protocol, Result, Roles, Score, bare, rehearsal, require, require_two
from driftline.eval.rows import Row
from driftline.eval.settings import NO_EFFECT
from driftline.stream_builder.stream import Step, Stream


def with_val(step: Step, share: float, seed: int) -> Step:
    """The step with a share of each class's training data as validation data, if it has none of its own."""
    if "val" in step.splits or not share:
        return step
    train, rng = step["train"], rng_for(seed, "seq-to-final", "val", step.index)
    held_out = np.zeros(len(train), bool)
    for label in np.unique(train.y):
        rows = rng.permutation(np.flatnonzero(train.y == label))
        held_out[rows[: max(1, round(share * len(rows)))]] = True
    splits = {"train": train.take(np.flatnonzero(~held_out)), "val": train.take(np.flatnonzero(held_out))}
    return replace(step, splits=splits)


RATES, DECAYS, DROPOUTS, ADJACENTS = (1e-3, 1e-4), (1e-4, 1e-2), (0.0, 0.5), (0.01, 0.1, 1.0)  # [spec, section 3]
TINY, TIMED = 1e-12, 100  # TIMED: training samples of a step whose time is taken
EPOCHS = {"paper": 100, "small": 10}
FITS = {"paper": 8, "small": 3}  # of a clean method for each step; 8: those of the paper's SFT


@dataclass(frozen=True)
class SeqToFinal(Protocol):
    """Learn from the train and validation data of all steps, choose on validation data, test on the last step.

    Score: accuracy on the test samples of the last step (final)."""

    network: str = "auto"
    """conv-1 … res-4, linear, mlp, or a timm model; "auto": conv-1 for images, linear for features"""
    budget: Literal["small", "paper"] = "small"
    """"paper": at most 100 epochs, 8 fits for each step of the stream; "small": 10 epochs, 3 fits. A clean method
    divides all of them among its stages; with paper-code each stage has a grid"""
    fidelity: Literal["clean", "paper-code"] = "clean"
    """"paper-code": what the reference code executes"""
    epochs: Annotated[int, Field(ge=0)] = 0
    """at most; 0: those of the budget"""
    fits: Annotated[int, Field(ge=0)] = 0
    """of each clean method, divided among its stages, at least one for each; 0: those of the budget"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """of matrix products; auto: bfloat16 for images and fidelity clean if the processor multiplies it, else float32"""
    per_step: Annotated[bool, NO_EFFECT] = False
    """also test on every step that has a test split"""
    lrs: str | float = ""
    """learning rates of the grid, joined by "/"; "": the paper's"""
    adjacents: str | float = ""
    """strengths of the penalty towards the model of the step before, joined by "/"; "": the paper's"""
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """share of each class's training data that becomes validation data in a step without; 0: such a stream is
    refused"""
    compile: Annotated[bool, NO_EFFECT] = False
    """compile blocks with torch.compile, for GPUs; slower on a CPU"""

    scores = (Score("final", "final"),)
    primary = "final"
    bounds = ("oracle",)  # every method learns from all steps at once
    roles = Roles(decisive=lambda rows: [row for row in rows if row.tested_on == "final"])
    shardable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.values("lrs", RATES, TINY), self.values("adjacents", ADJACENTS, 0.0)

    def unused(self) -> dict[str, str]:
        """The number of fits where each stage has a grid."""
        return {"fits": "with fidelity paper-code each stage has a grid"} if self.fidelity == "paper-code" else {}

    def values(self, name: str, default: tuple[float, ...], least: float) -> tuple[float, ...]:
        """Numbers of a setting, or the default. Raises BadConfig for anything else."""
        text = str(getattr(self, name))
        try:
            numbers = tuple(float(part) for part in text.split("/")) if text else default
        except ValueError:
            numbers = ()
        if not numbers or not all(least <= value < float("inf") for value in numbers):
            raise BadConfig(f"{name} is {text!r}.", f"Expected numbers from {least:g} joined by /, as in 0.001/0.0001.")
        return numbers

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream for missing splits or classes, BadConfig for a network that is unknown or takes
        samples of another shape."""
        require_two(stream, "seq-to-final needs history.", "Compose one with driftline stream compose.")
        why = "seq-to-final chooses hyper-parameters on validation data of every step, never on test data."
        way_out = "Make the stream with one (stream compose does, arrays name it in `split`), or take it from the "
        way_out += "training data: --set val_share=0.2."
        require(stream, ("train",) if self.val_share else ("train", "val"), why, way_out)
        if self.val_share and not any(len(with_val(bare(step), self.val_share, 0)["train"]) for step in stream.steps):
            problem = f"Validation takes all training data of {stream.name!r}."
            raise IncompatibleStream(
                problem, "Expected more than one sample of a class in some step.", "Use longer steps."
            )
        last = stream.steps[-1]
        require(stream, ("test",), "seq-to-final tests on the last step.", steps=[last])
        trained = np.bincount(last["train"].y, minlength=len(stream.classes))
        tested_classes = np.unique(last["test"].y)
        if len(lost := tested_classes[trained[tested_classes] == 0]):
            problem = f"Class {stream.classes[int(lost[0])]!r} is in the last step's test and not in its training data."
            expected = "Expected every class of the last step's test in its training data."
            raise IncompatibleStream(problem, expected, "Use larger steps, or leave the class out.")
        if stream.x_shape:  # learners of texts have networks of their own
            build(self.resolve(stream).network, len(stream.classes), stream.x_shape, rng_for(0))

    def resolve(self, stream: Stream) -> "SeqToFinal":
        """The same with a network, a precision, and numbers of epochs and fits."""
        images = len(stream.x_shape) == 3
        network = ("conv-1" if images else "linear") if self.network == "auto" else self.network
        halves = images and self.fidelity == "clean" and fused.has_half()
        precision = ("bfloat16" if halves else "float32") if self.precision == "auto" else self.precision
        epochs = self.epochs or EPOCHS[self.budget]
        fits = self.fits or (FITS[self.budget] * len(stream.steps) if self.fidelity == "clean" else 0)
        return replace(self, network=network, precision=precision, epochs=epochs, fits=fits)

    def defaults(self, learner: Learner) -> dict[str, Any]:
        """Online heads choose their learning rates."""
        return chosen_rate(learner)

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """Three parts of the first step's training data, with a share of validation data. The last is tested on classes
        that it trains on."""
        part = rehearsal(stream, stream.steps[0]["train"], rng)
        last, test = part.steps[-1], part.steps[-1]["test"]
        learned = np.flatnonzero(np.isin(test.y, last["train"].y))
        last = replace(last, splits={**last.splits, "test": test.take(learned)})
        part = replace(part, steps=[*part.steps[:-1], last])
        protocol = replace(self, val_share=self.val_share or 0.2)
        protocol.check(part)
        return [(protocol, part)]

    def rules(self, stream: Stream) -> Rules:
        """What all methods of a run have in common."""
        paper = self.fidelity == "paper-code"
        # What a stream of fidelity paper-code records is how that code loads images.
        loading = {} if stream.facts.get("fidelity") == "paper-code" else stream.facts.get("loading", {})
        kinds = tuple(map(str, loading.get("augment", ("flip", "crop", "rotate"))))
        augment = () if paper or len(stream.x_shape) != 3 else kinds
        half = self.precision == "bfloat16"
        rule = Rule(self.epochs, augment=augment, normalise=not paper, half=half, still=not paper, whole=paper)
        if not paper:
            rule = replace(rule, patience=10, stop="best")
        rates, pulls = self.values("lrs", RATES, TINY), self.values("adjacents", ADJACENTS, 0.0)
        points = grids(self.budget, rates, pulls) if paper else ordered_grids(self.fits, rates, pulls)
        return Rules(self.network, paper, rule, points, self.fits, compiled=self.compile)

    def task(self, stream: Stream) -> Task:
        """Classes, shape, steps, and the rules."""
        steps, rules = len(stream.steps), self.rules(stream)
        return Task(len(stream.classes), stream.x_shape, steps=steps, rules=rules, corrections=False)

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """What decides the samples of a composed sequence."""
        keys = ("from", "fidelity", "base", "sequence", "sizes", "draws", "overlap", "shared", "family")
        about = {key: stream.facts[key] for key in keys if key in stream.facts}
        return {"told": about} if about else {}

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """One row tested on "final"; with per_step, one on each step that has a test split. Raises IncompatibleStream
        for an oracle if the stream has no data for one."""
        begun = time.process_time()
        steps = [with_val(step.visible(), self.val_share, seed) for step in stream.steps]
        if learner.needs.oracle:
            if stream.oracle is None:
                problem = f"The stream {stream.name!r} has no data for an oracle."
                expected = "It needs as many samples of the last distribution as the whole sequence has."
                raise IncompatibleStream(problem, expected, "stream compose adds them.")
            steps = [stream.oracle.visible()]
        learner.learn_sequence(steps)
        labels, last = np.concatenate([step["train"].y for step in steps]), len(stream.steps) - 1
        at = {"learned_to": last, "seen": len(labels), "constant": int(np.bincount(labels).argmax())}
        yield evaluate_split(learner, stream.steps[-1]["test"], "final", begun, **at)
        if self.per_step:
            for step in stream.steps:
                if "test" in step.splits:
                    yield evaluate_split(learner, step["test"], str(step.index), begun, **at)

    def run_seconds(self, stream: Stream, make: Callable[..., Learner]) -> float | None:
        """By one fit of each stage on a batch of each step, for one epoch and for two. None for learners that have fits
        of their own."""
        whole, took = self.resolve(stream), list[float]()
        if not make().obeys:
            return None
        known = [with_val(step.visible(), self.val_share, 0) for step in stream.steps]
        known = [stream.oracle.visible()] if make().needs.oracle and stream.oracle is not None else known
        steps = []
        for step in known:
            share = min(1.0, TIMED / len(step["train"]))
            few = {k: split.part(0, max(1, round(share * len(split)))) for k, split in step.splits.items()}
            steps.append(replace(step, splits=few))
        for epochs in (1, 1, 2):  # the first one loads libraries
            learner, clock = make(), time.process_time()
            learner.begin(replace(whole, epochs=epochs, fits=1).task(stream), rng_for(0))
            learner.learn_sequence(steps)
            took.append(time.process_time() - clock)
        more = sum(len(step["train"]) for step in known) / sum(len(step["train"]) for step in steps)
        book = cast(Any, learner).work.book
        fits = max(1, (whole.fits or book.points) / book.tried)
        return (took[1] + (whole.epochs - 1) * max(took[2] - took[1], 0)) * more * fits

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """final: share of right answers on the last step's test. measures: the same on each step that was tested."""
        accuracy = {row.tested_on: row.n_correct / row.n for row in rows}
        per_step = {f"step_{t}": accuracy[str(t)] for t in range(steps) if str(t) in accuracy}
        return Result({"final": accuracy["final"]}, per_step)


def grids(budget: str, rates: tuple[float, ...], pulls: tuple[float, ...]) -> dict[str, list[Hyper]]:
    """Points of each kind of stage as in the paper's code: 8 for plain fits, 24 for side modules, 3 for JM and 1 for
    JST; with a small budget 2, 2, 1, 1. All strengths of a sweep are tried."""
    small = budget == "small"
    decays, dropouts = (DECAYS[:1], DROPOUTS[:1]) if small else (DECAYS, DROPOUTS)
    base = [Hyper(lr, decay, dropout) for lr in rates for decay in decays for dropout in dropouts]
    side = [
        replace(point, adjacent=pull)
        for pull in (pulls[1:2] if small and pulls == ADJACENTS else pulls)
        for point in base
    ]
    if small:
        return {"base": base, "side": side, "joint": side[:: len(rates)], "joint-side": base[:1]}
    joint = [Hyper(rates[0], DECAYS[0], DROPOUTS[1], pull) for pull in pulls]
    return {"base": base, "side": side, "joint": joint, "joint-side": [replace(joint[0], adjacent=0.0)]}


def ordered_grids(fits: int, rates: tuple[float, ...], pulls: tuple[float, ...]) -> dict[str, list[Hyper]]:
    """The same points in an order whose every beginning is a grid, for stages with any number of fits: all learning
    rates (in a sweep all strengths) first, then strengths, dropouts and decays. Beyond the paper's points, others in
    between."""
    middle_first = (*pulls[1:2], *pulls[:1], *pulls[2:]) if pulls == ADJACENTS else pulls
    swept = pulls != ADJACENTS
    pairs = [(lr, pull) for lr in rates for pull in pulls] if swept else [(r, p) for p in middle_first for r in rates]
    rest = [(decay, dropout) for decay in DECAYS for dropout in DROPOUTS]
    base = [Hyper(lr, decay, dropout) for decay, dropout in rest for lr in rates]
    side = [Hyper(lr, decay, dropout, pull) for decay, dropout in rest for lr, pull in pairs]
    kinds = {"base": base, "side": side, "joint": side, "joint-side": base}
    return {kind: [*points, *_between(points, fits - len(points))] for kind, points in kinds.items()}


def _between(points: Sequence[Hyper], n: int) -> list[Hyper]:
    """n points like those given, with decays and dropouts between the paper's: an even spread [Roberts 2018, R2]."""
    spread = []
    for k in range(n):
        high, wide = (0.5 + 0.7548777 * (k + 1)) % 1, (0.5 + 0.5698403 * (k + 1)) % 1
        decay = float(f"{DECAYS[0] * (DECAYS[1] / DECAYS[0]) ** high:.2g}")
        dropout = round(DROPOUTS[0] + (DROPOUTS[1] - DROPOUTS[0]) * wide, 2)
        spread.append(replace(points[k % len(points)], decay=decay, dropout=dropout))
    return spread
