"""Methods that store no sample: they hold weights, or answers, near what earlier steps have left."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.eval.engine.deep import Deep
from driftline.eval.engine.linear import Net, Params, Pull, Rule, on, zeros
from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.training.sgd_learner import HEADS, NetLearner


@dataclass
class Anchor:
    """Weights after a step and their importance."""

    params: Params
    fisher: Params
    """Fisher information of each weight, same shapes"""


class Penalty(Rule):
    """Gradient of strength / 2 · Σ F (θ − θ*)², over all anchors.

    rate: the learning rate of SGD. Where strength · F is above 1 / rate, a step would go beyond the anchor, the next
    one further, and the weights would not stay finite: the pull of all anchors together is held to 1 / rate. None: it
    is not.
    """

    def __init__(self, anchors: list[Anchor], strength: float, rate: float | None = None) -> None:
        most = math.inf if rate is None else 1 / (rate * len(anchors))
        self.pulls = [(a.params, [(strength * f).clamp(max=most) for f in a.fisher]) for a in anchors]

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        for params, strengths in self.pulls:
            parts = zip(grads, strengths, net.params, params, strict=True)
            grads = [g.addcmul(strength, p - old) for g, strength, p, old in parts]
        return grads


def fisher_of_batches(net: Net, x: Any, y: Any, batch: int) -> Params:
    """Avalanche's substitute for it: mean over batches of the squared gradient of the batch's mean loss."""
    fisher = zeros(net.params)
    starts = range(0, len(y), batch)
    for start in starts:
        grads = net.data_gradient(x[start : start + batch], y[start : start + batch])
        fisher = [f + g**2 / len(starts) for f, g in zip(fisher, grads, strict=True)]
    return fisher


@dataclass
class Ewc(NetLearner):
    """Finetuning with a quadratic penalty towards past weights, weighted by each weight's Fisher information."""

    strength: NonNegativeFloat = 0.4
    """λ of λ/2 · Σ F (θ − θ*)² (CLEAR: 0.4)"""
    mode: Literal["online", "separate"] = "online"
    """`online` keeps one anchor and F = keep · F + F_new, `separate` keeps one anchor per step"""
    keep: NonNegativeFloat = 0.1
    """factor of the old F in mode `online` (CLEAR: 0.1)"""
    variant: Literal["paper", "reference"] = "paper"
    """`paper` takes the Fisher information of single samples; `reference` that of Avalanche: squared gradients of batch
    means, a hundred times smaller, and a penalty without the factor 1/2"""
    batch_cost = 1.0  # Fisher information: one pass after the updates
    guide = Guide("regularised", "Kirkpatrick et al. 2017", "E n D C", "no sample may be stored")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start without anchors. Raises IncompatibleStream for a budget of one update a batch."""
        super().begin(task, rng)
        if self.mode == "online":
            self.budget.check_anchor(self.cost, self.batch_cost)
        self.anchors: list[Anchor] = []

    def on_correction(self) -> Rule | None:
        return Penalty(self.anchors, self.strength, self.correct_lr) if self.anchors else None

    def learn(self, x: Array, y: Labels) -> None:
        strength = self.strength * (2 if self.variant == "reference" else 1)
        rate = self.rate if self.optimiser == "sgd" else None
        if not self.train(x, y, rule=Penalty(self.anchors, strength, rate) if self.anchors else None):
            return
        self.extra += self.batch_cost * (1 if self.task.updates is not None else -(-len(y) // self.batch))
        with one_thread(), torch.no_grad():
            data, labels = on(self.inputs(x), self.head), on(y, self.head)
            if self.variant == "paper":
                fisher = self.head.fisher(data, labels)
            else:
                fisher = fisher_of_batches(self.head, data, labels, self.batch)
            if self.mode == "online" and self.anchors:
                fisher = [f + self.keep * old for f, old in zip(fisher, self.anchors[0].fisher, strict=True)]
            anchor = Anchor([p.clone() for p in self.head.params], fisher)
        self.anchors = [anchor] if self.mode == "online" else [*self.anchors, anchor]


class Path(Rule):
    """Adds the gradient of strength · Σ Ω (θ − θ*)² and integrates −g · Δθ along the path (equations 3 and 4)."""

    def __init__(self, start: Params, omega: Params, strength: float, whole: bool = False) -> None:
        """whole: g is the gradient of the whole loss, penalty included, as Avalanche has it; else that of the data."""
        self.start, self.omega, self.strength, self.whole = start, omega, strength, whole
        self.path = zeros(start)

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        parts = zip(grads, self.omega, net.params, self.start, strict=True)
        self.total = [g.addcmul(o, p - old, value=2 * self.strength) for g, o, p, old in parts]
        return self.total

    def moved(self, grads: Params, steps: Params) -> None:
        """Add how much this update of each weight lowered the loss."""
        for path, g, step in zip(self.path, self.total if self.whole else grads, steps, strict=True):
            path.addcmul_(g, step, value=-1)


@dataclass
class Si(NetLearner):
    """Finetuning with a regularisation term towards the last weights, weighted by how much each weight has lowered
    the loss so far."""

    strength: NonNegativeFloat = 1e-4
    """c of equation 4 (CLEAR: 1e-4)"""
    damping: PositiveFloat = 1e-3
    """ξ of equation 5 (section 4: 1e-3), keeps Ω finite if a weight has hardly changed"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` is the SI of CLEAR's runs (Avalanche 0.1): Ω at most 0.001, ξ = 1e-7, half the strength, and the
    gradient of the penalty is part of the path. Avalanche 0.6 does the same on a GPU and is plain finetuning on a CPU,
    where its record of old weights is the live weights"""

    guide = Guide("regularised", "Zenke et al. 2017", "E n D C", "as ewc, without a pass for the importance")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with importances of zero. Raises IncompatibleStream for a budget of one update a batch."""
        super().begin(task, rng)
        self.budget.check_anchor()
        self.omega = zeros(self.head.params)
        self.trained = 0  # updates up to the last step

    def on_correction(self) -> Rule | None:
        """The pull towards the weights of the last step; a correction is no step and changes no importance."""
        if self.gradient_steps == self.trained:
            self.anchor = [p.clone() for p in self.head.params]
        return self._path(self.anchor)[0]

    def _path(self, start: Params) -> tuple[Path, float, float]:
        """The rule of a training from these weights; what keeps Ω finite, and the least importance."""
        if self.variant == "reference":
            return Path(start, [o.clamp(max=1e-3) for o in self.omega], self.strength / 2, whole=True), 1e-7, -np.inf
        return Path(start, self.omega, self.strength), self.damping, 0.0

    def learn(self, x: Array, y: Labels) -> None:
        """Train under the penalty, then add this step's importances (equation 5)."""
        start = [p.clone() for p in self.head.params]
        rule, damping, least = self._path(start)
        self.train(x, y, rule=rule)
        parts = zip(self.omega, rule.path, self.head.params, start, strict=True)
        self.omega = [o + (path / ((p - old) ** 2 + damping)).clamp(min=least) for o, path, p, old in parts]
        self.trained = self.gradient_steps


class Distil(Rule):
    """Adds the gradient of weight · T² · KL(teacher ‖ student) at temperature T, mean over the batch."""

    def __init__(
        self, teacher: Net, weight: float, temperature: float, unlearned: Sequence[int] = (), samples: int = 0
    ) -> None:
        """unlearned: classes that the teacher has not seen; the distributions leave them out. samples: of a training on
        features, for which the teacher is asked once each; 0: it is asked at every update."""
        self.teacher, self.weight, self.temperature, self.unlearned = teacher, weight, temperature, list(unlearned)
        self.asked = np.zeros(samples, bool)
        self.answers: Any = None
        """(C, samples), once asked"""

    def pull(self, net: Net, x: Any, rows: npt.NDArray[np.int64] | None = None) -> Pull:
        """T · (p_student − p_teacher) in the scores; it costs one forward pass of the teacher, over new samples."""
        t = self.temperature

        def softmax(scores: Any) -> Any:
            classes_first = scores.T / t  # faster, along memory
            if self.unlearned:
                classes_first[self.unlearned] = -torch.inf
            return torch.softmax(classes_first, 0).T

        if rows is None or not len(self.asked):
            teacher = softmax(self.teacher.scores(x))
        else:
            places = torch.from_numpy(rows).to(x.device)
            if self.answers is None:
                self.answers = torch.empty(len(self.teacher.params[-1]), len(self.asked), device=x.device)
            if not self.asked[rows].all():
                self.answers.index_copy_(1, places, softmax(self.teacher.scores(x)).T)
                self.asked[rows] = True
            teacher = self.answers.index_select(1, places).T

        def off(scores: Any) -> Any:
            return (softmax(scores) - teacher) * (self.weight * t / len(teacher))

        return off


@dataclass
class Lwf(NetLearner):
    """Finetuning that also imitates, on the new data, the model from before the step."""

    weight: NonNegativeFloat = 2.0
    """α at the last of `ramp` steps; it grows linearly from 0 at the first (CLEAR: 0 to 2 over 10)"""
    ramp: PositiveInt = 10
    """steps over which the weight grows (CLEAR's code: 10, its text: 12)"""
    temperature: PositiveFloat = 1.0
    """temperature T of the distillation"""
    cost = 4 / 3  # the teacher's forward pass
    guide = Guide("regularised", "Li & Hoiem 2016", "E n D C", "no sample may be stored; the old model teaches")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start without a teacher. Raises IncompatibleStream for a budget of one update a batch."""
        super().begin(task, rng)
        self.budget.check_anchor(self.cost)

    def reset(self) -> None:
        super().reset()
        self.steps_seen = self.trained = 0
        self.unlearned = set(range(self.task.n_classes))

    def on_correction(self) -> Rule | None:
        """The teacher is the model from before the first correction. It teaches all classes, as in OCRR's reference."""
        if self.gradient_steps == self.trained:
            self.before = self.head.copy()
        return Distil(self.before, self.weight, self.temperature) if self.weight else None

    def learn(self, x: Array, y: Labels) -> None:
        alpha = self.weight * min(self.steps_seen / max(1, self.ramp - 1), 1.0)
        taught = alpha and len(self.unlearned) < self.task.n_classes  # by a teacher that has learned something
        asked = len(x) if self.net in HEADS else 0  # images are augmented again at each update
        how = (alpha, self.temperature, sorted(self.unlearned), asked)
        self.train(x, y, rule=Distil(self.head.copy(), *how) if taught else None)
        self.unlearned -= set(y.tolist())
        self.steps_seen += 1
        self.trained = self.gradient_steps


class Frozen(Rule):
    """No gradient below the output layer."""

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient of the last two parameters; the others do not change, not even by weight decay."""
        return [None] * len(grads[:-2]) + grads[-2:]


@dataclass
class Cwr(NetLearner):
    """Consolidated weights cw, averaged over steps with weight √(past / current) per class (algorithm CWR*).

    The weights of a step's classes start from cw (a new class's from 0), those of all other classes from 0. Afterwards
    each weight of the step's classes, minus the mean over all of them, is merged into cw, and every class seen so far
    has its cw. Biases go on from step to step. The layers below the output layer are trained on the first step only.
    Steps that lack classes are treated as in Avalanche.
    """

    variant: Literal["paper", "reference"] = "paper"
    """`reference` does not count a class's first step, so that its second one replaces its weights, as in CLEAR's code
    (Avalanche, pull request 1008)"""

    needs = Needs(whole_steps="it consolidates after a whole step")
    guide = Guide("regularised", "Lomonaco et al. 2020", "E n D C", "classes that come in few steps only")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.past = np.zeros(task.n_classes)  # counted samples of each class
        self.known = np.zeros(task.n_classes, bool)
        (self.consolidated,) = zeros(self.head.params[-2:-1])

    def learn(self, x: Array, y: Labels) -> None:
        weights = self.head.params[-2]
        current = np.bincount(y, minlength=len(self.past)).astype(np.float64)
        seen = np.flatnonzero(current)
        rows = on(seen, self.head)
        weights.zero_()
        weights[rows] = self.consolidated[rows]
        below = self.known.any() and len(self.head.params) > 2
        if below and isinstance(self.head, Deep):
            self.head.frozen = True  # freezes statistics of batch normalisation, too
        self.train(x, y, rule=Frozen() if below else None)
        trained = weights[rows] - weights[rows].mean()
        ratio = np.sqrt(self.past[seen] / current[seen])[:, None]
        past = on(ratio.astype(np.float32), self.head)
        self.consolidated[rows] = (self.consolidated[rows] * past + trained) / (past + 1)
        self.past += current * (self.known if self.variant == "reference" else 1)
        self.known[seen] = True
        learned = on(np.flatnonzero(self.known), self.head)
        weights[learned] = self.consolidated[learned]
