"""Methods that train on a memory of past samples, too; `er`, the plainest, has a file of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, NonNegativeFloat, NonNegativeInt, PositiveInt

from driftline.eval.engine.linear import Net, Params, Rule, on
from driftline.eval.history import Past
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task, bytes_of
from driftline.eval.memory import samplers
from driftline.eval.memory.knn_index import unit
from driftline.eval.training.sgd_learner import NetLearner

SAMPLE = 256  # samples of the memory that an update uses [Chaudhry et al. 2018, sec. 5.3]


class Project(Rule):
    """Removes the component of the gradient that opposes the gradient on a sample of the memory (equation 11)."""

    def __init__(self, x: Any, y: Any, sample: int, rng: np.random.Generator, parts: Sequence[int] = ()) -> None:
        """parts: sizes of groups of the memory that are sampled equally; none: the sample is drawn from all."""
        self.x, self.y, self.sample, self.rng = x, y, sample, rng
        self.parts = parts or (len(y),)

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient, projected if the two disagree."""
        each, starts = self.sample // len(self.parts), np.cumsum([0, *self.parts])
        past_x, past_y = self.x, self.y
        if each < max(self.parts):
            groups = zip(starts, self.parts, strict=False)
            places = [start + self.rng.choice(n, min(each, n), replace=False) for start, n in groups]
            drawn = on(np.concatenate(places), net)
            past_x, past_y = past_x[drawn], past_y[drawn]
        past = net.data_gradient(past_x, past_y)
        along = sum((g * r).sum() for g, r in zip(grads, past, strict=True))
        if along >= 0:
            return grads
        scale = along / sum((r**2).sum() for r in past)
        return [g - scale * r for g, r in zip(grads, past, strict=True)]


@dataclass
class Agem(NetLearner):
    """Finetuning whose gradient never opposes the gradient on a memory of past steps."""

    memory: NonNegativeInt = 0
    """samples in all, shared evenly by past steps; 0: as many as the first step has (one bucket), 500 on streams of
    batches, where they are a uniform sample of the past"""
    sample: NonNegativeInt | Literal["step"] = 0
    """samples of the memory that an update uses; `step`: as many as the first step has, as in CLEAR; 0: 256, on streams
    of batches as many as a batch has"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` keeps `memory` samples of *every* step and uses equal numbers of each, as Avalanche does"""
    cost = 2.0  # two gradients: on the data, and on as many samples of the memory
    guide = Guide("replay", "Chaudhry et al. 2018", "2 E n D C", "an update may not hurt the memory")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.limit = self.memory
        self.used = (0 if self.sample == "step" else self.sample) or task.batch or SAMPLE
        self.cost = 1 + (self.used / task.batch if task.batch else 1)
        self.shares: list[samplers.Share] = []
        self.past = samplers.Uniform(self.rng, self.memory or samplers.ON_STREAMS)
        self.sample_bytes = 0

    def learn_from(self, past: Past) -> None:
        """Train on the newest batch under the constraint, then offer it to the memory."""
        rule = None
        if past.start:
            x, y = past.take(self.past.positions)
            rule = Project(on(self.inputs(x), self.head), on(y, self.head), self.used, self.rng)
        x, y = past.newest()
        self.train(x, y, rule=rule)
        self.past.grow(past)
        self.sample_bytes = x[:1].nbytes + y[:1].nbytes

    def stored_bytes(self) -> int:
        """Weights and stored samples."""
        return bytes_of([self.head, self.shares]) + len(self.past.positions) * self.sample_bytes

    def on_correction(self) -> Rule | None:
        """The same constraint; corrections do not enter the memory."""
        return self._constraint([])

    def _constraint(self, parts: Sequence[int]) -> Rule | None:
        """The constraint on the memory, sampled by `parts`; None while the memory is empty."""
        if not self.shares:
            return None
        x, y = (np.concatenate([pair[i] for pair in self.shares]) for i in (0, 1))
        return Project(on(self.inputs(x), self.head), on(y, self.head), self.used, self.rng, parts)

    def learn(self, x: Array, y: Labels) -> None:
        self.limit = self.limit or len(y)
        if self.sample == "step" and not self.shares:
            self.used = len(y)
        parts = [len(labels) for _, labels in self.shares] if self.variant == "reference" else []
        self.train(x, y, rule=self._constraint(parts))
        limit = self.limit * (len(self.shares) + 1 if self.variant == "reference" else 1)
        self.shares = samplers.balanced(self.shares, x, y, limit, self.rng)


class Remember(Rule):
    """Adds α times the gradient of the mean squared distance to stored scores, mean over samples and classes, and β
    times that of the cross-entropy of stored labels of another draw; then stores the batch with its scores from before
    the update [alg. 1 and 2; the authors' code: aimagelab/mammoth, models/der.py and derpp.py]."""

    def __init__(self, memory: samplers.Dark, alpha: float, beta: float) -> None:
        self.memory, self.alpha, self.beta = memory, alpha, beta

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        scores = net.scores(x).detach().float()
        if len(self.memory):
            past, _, stored = self.memory.draw(len(y))
            off = 2 * self.alpha * (net.scores(past).float() - stored) / stored.numel()
            grads = [g + p for g, p in zip(grads, net.pulled(past, off), strict=True)]
            if self.beta:
                past, labels, _ = self.memory.draw(len(y))
                grads = [g + self.beta * p for g, p in zip(grads, net.data_gradient(past, labels), strict=True)]
        self.memory.add(x, y, scores)
        return grads


@dataclass
class Der(NetLearner):
    """Finetuning with a reservoir of samples and their scores, which are imitated [Buzzega et al. 2020, alg. 1]."""

    memory: NonNegativeInt = 0
    """samples in all; 0: as many as the first step has (CLEAR: one bucket), 500 on streams of batches"""
    alpha: NonNegativeFloat = 0.5
    """α, weight of stored scores [the authors' utils/best_args.py: 0.1 to 1]"""

    beta = 0.0  # DER has no stored labels
    cost = 2.0  # gradients on the data and on the memory
    guide = Guide("replay", "Buzzega et al. 2020", "2 E n D C", "a memory of fixed size, steps without borders")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.dark = samplers.Dark(self.memory or (samplers.ON_STREAMS if task.batch else 0), rng)

    def learn(self, x: Array, y: Labels) -> None:
        self.dark.limit = self.dark.limit or len(y)
        self.train(x, y, rule=Remember(self.dark, self.alpha, self.beta))

    def on_correction(self) -> Rule:
        self.dark.limit = self.dark.limit or samplers.ON_STREAMS
        return Remember(self.dark, self.alpha, self.beta)


@dataclass
class DerPlusPlus(Der):
    """DER that also replays stored labels [Buzzega et al. 2020, alg. 2]."""

    beta: NonNegativeFloat = 0.5
    """β, weight of stored labels [the authors' utils/best_args.py: 0.5 to 1]"""

    cost = 3.0
    guide = Guide("replay", "Buzzega et al. 2020", "3 E n D C", "as der, stronger for one more pass")


@dataclass
class Buffered(NetLearner):
    """Trains on nothing but a buffer of past samples, after every step."""

    memory: NonNegativeInt = 0
    """samples in the buffer; 0: as many as the first step has (CLEAR: one bucket)"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.limit = self.memory
        self.x: Array = np.zeros((0, *task.x_shape), np.float32)
        self.y: Labels = np.zeros(0, np.int64)

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return self.epochs * float(sum(min(self.memory or sizes[0], sum(sizes[: i + 1])) for i in range(len(sizes))))


@dataclass
class Gdumb(Buffered):
    """Trains random weights on a class-balanced memory after each step, and on nothing else."""

    variant: Literal["paper", "reference"] = "reference"
    """`reference` keeps a uniform sample of each class, as Avalanche and therefore CLEAR's runs do; `paper` is the
    greedy sampler of GDumb's paper, for classes that come one after the other: a full and balanced memory admits new
    classes only, so that it equals `nap` where all classes come at once"""

    needs = Needs(whole_steps="it trains from random weights on its memory after every step")
    guide = Guide("replay", "Prabhu et al. 2020", "E M D C", "whether a method is better than a balanced memory alone")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.weight = np.zeros(0)

    def learn(self, x: Array, y: Labels) -> None:
        self.limit = self.limit or len(y)
        labels = np.concatenate([self.y, y])
        if self.variant == "reference":
            weight = np.concatenate([self.weight, self.rng.random(len(y))])
            keep = samplers.class_reservoirs(labels, weight, self.limit)
            self.weight = weight[keep]
        else:
            keep = samplers.greedy_balanced(labels, np.arange(len(self.y)), self.limit, self.rng)
        self.x, self.y = np.concatenate([self.x.astype(x.dtype), x])[keep], labels[keep]
        self.reset()
        self.train(self.x, self.y)


def parts_of(alpha: float | str) -> tuple[bool, float]:
    """A setting `alpha` → whether it is dynamic, and its number. Raises ValueError for anything else.

    >>> parts_of(5), parts_of("dynamic:0.5")
    ((False, 5.0), (True, 0.5))
    """
    kind, _, number = str(alpha).rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or kind not in ("", "dynamic"):
        raise ValueError("a number from 0, or dynamic:NUMBER, as in dynamic:0.5")
    return kind == "dynamic", value


def _checked(alpha: float | str) -> float | str:
    parts_of(alpha)
    return alpha


@dataclass
class Reservoir(Buffered):
    """Trains on a buffer that CLEAR's biased reservoir keeps; larger alpha keeps more of the recent past."""

    alpha: Annotated[float | str, AfterValidator(_checked)] = 1.0
    """a number is a fixed α (1.0: plain reservoir; CLEAR tries 0.5, 1, 2, 5); `dynamic:c` is α = c · i / k, so that
    every new sample enters with probability c (1.0: the newest bucket only)"""
    start: Literal["finetune", "scratch"] = "finetune"
    """whether training continues from the current weights, or starts from random ones"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` replaces the newest samples of the buffer, as CLEAR's code does, which lacks the algorithm's
    shuffle"""

    needs = Needs(whole_steps="it trains on its buffer after every step; er-online has memory and alpha")
    guide = Guide("replay", "CLEAR, supplement 4", "E M D C", "a memory that prefers recent samples (alpha)")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.seen = 0

    def learn(self, x: Array, y: Labels) -> None:
        self.limit = self.limit or len(y)
        self.seen += len(y)
        dynamic, value = parts_of(self.alpha)
        alpha, shuffle = value * self.seen / self.limit if dynamic else value, self.variant == "paper"
        keep = samplers.biased_reservoir(len(self.y), len(y), self.seen, self.limit, alpha, self.rng, shuffle=shuffle)
        self.x = np.concatenate([self.x.astype(x.dtype, copy=False), x])[keep]
        self.y = np.concatenate([self.y, y])[keep]
        if self.start == "scratch":
            self.reset()
        self.train(self.x, self.y)


@dataclass
class Icarl(Learner):
    """Nearest mean of exemplars [Rebuffi et al. 2017, alg. 1]; exemplars are chosen by herding [alg. 4; the authors'
    code, srebuffi/iCaRL, follows the same sums] and dropped from the end of their list [alg. 5]. The features are
    frozen, so that its network training [alg. 3] has no part in it.

    The paper's classes come once. Where a class comes again, herding chooses among its exemplars and the new samples,
    towards the mean of all its samples so far.
    """

    memory: PositiveInt = 2000
    """exemplars of all classes together, K [sec. 4: 2,000]"""

    guide = Guide("replay", "Rebuffi et al. 2017", "n D + M² D / C", "a small memory on frozen features, no training")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        width = int(np.prod(task.x_shape))
        self.sums, self.counts = np.zeros((task.n_classes, width)), np.zeros(task.n_classes)
        self.exemplars = [np.zeros((0, width), np.float32) for _ in range(task.n_classes)]  # best first

    def learn(self, x: Array, y: Labels) -> None:
        """Choose exemplars of the classes that came, and shorten the lists of the others."""
        rows = unit(x)
        np.add.at(self.sums, y, rows)
        np.add.at(self.counts, y, 1)
        share = max(1, self.memory // max(1, int((self.counts > 0).sum())))
        for k in np.unique(y).tolist():
            candidates = np.concatenate([self.exemplars[k], rows[np.asarray(y) == k]])
            self.exemplars[k] = candidates[herded(candidates, self.sums[k] / self.counts[k], share)]
        self.exemplars = [of_class[:share] for of_class in self.exemplars]

    def predict(self, x: Array) -> Labels:
        """The class whose exemplars' mean, of unit length, is nearest; 0 before anything was learned."""
        means = np.stack([e.mean(0) if len(e) else np.zeros(e.shape[1]) for e in self.exemplars])
        cosines = unit(x) @ unit(means).T  # of unit vectors, the nearest has the largest
        cosines[:, [not len(e) for e in self.exemplars]] = -np.inf
        return np.asarray(cosines.argmax(1), np.int64)


def herded(x: npt.NDArray[np.float32], mean: npt.NDArray[np.float64], m: int) -> npt.NDArray[np.int64]:
    """Positions of m samples of x (n, D), each chosen so that the mean of the chosen is nearest to `mean` [alg. 4]."""
    chosen: list[int] = []
    total, left = np.zeros(x.shape[1]), np.ones(len(x), bool)
    for k in range(1, min(m, len(x)) + 1):
        # |mean - (total + x) / k|² without what is the same for all: the samples have unit length
        gain = np.where(left, x @ (k * mean - total), -np.inf)
        best = int(gain.argmax())
        chosen.append(best)
        left[best] = False
        total += x[best]
    return np.array(chosen, np.int64)
