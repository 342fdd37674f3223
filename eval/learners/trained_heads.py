"""Networks that are trained on whole steps: the first, each alone or after the others, all so far, all at once;
learners on the texts of the classes: zero-shot, heads that start from the texts, and the mean of both; and heads that
are fitted once, then learn by corrections."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.eval.engine.linear import Head, grown, net_scores
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task, sureness
from driftline.eval.memory.knn_index import Memory, TrackedQueries
from driftline.eval.training.closed_form import Floats
from driftline.eval.training.sgd_learner import NetLearner
from driftline.stream_builder.stream import Step, pick


@dataclass
class Nap(NetLearner):
    """Trains on the first step only: the cost of not learning later."""

    needs = Needs(first_step="it learns nothing else")
    guide = Guide("trained heads", "CLEAR, table 4", "E n D C, first step only", "how a model ages without training")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.trained = False

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return float(self.epochs * sizes[0])

    def learn(self, x: Array, y: Labels) -> None:
        """Train at the first call; ignore later ones."""
        if not self.trained:
            self.train(x, y)
            self.trained = True

    def correct(self, x: Array, y: Labels) -> None:
        """Ignored."""

    def unused(self, task: Task) -> dict[str, str]:
        """The rate of corrections."""
        return super().unused(task) | {"correct_lr": "it ignores corrections"}


@dataclass
class Scratch(NetLearner):
    """Trains random weights on each step's data only."""

    needs = Needs(whole_steps="it starts from random weights in every step")
    guide = Guide("trained heads", "CLEAR, table 4", "E n D C", "what one step alone teaches")

    def learn(self, x: Array, y: Labels) -> None:
        self.reset()
        self.train(x, y)


@dataclass
class Finetune(NetLearner):
    """Trains on each step's data only, starting from the current weights."""

    guide = Guide("trained heads", "CLEAR", "E n D C", "the plain way; what all others must beat")


@dataclass
class Cumulative(NetLearner):
    """Trains on everything seen so far, after every step."""

    start: Literal["finetune", "scratch"] = "finetune"
    """whether training continues from the current weights, or starts from random ones"""

    needs = Needs(whole_steps="it trains on all data after every step; er-online draws from them")
    guide = Guide("trained heads", "CLEAR, table 4", "E N D C", "all data so far, if memory and time are no limit")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.x: list[Array] = []  # of each step, as it came
        self.y: Labels = np.zeros(0, np.int64)

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return self.epochs * float(sum(sum(sizes[: i + 1]) for i in range(len(sizes))))

    def learn(self, x: Array, y: Labels) -> None:
        self.x.append(np.asarray(x))
        self.y = np.concatenate([self.y, y])
        if self.start == "scratch":
            self.reset()
        self.train(self.x, self.y)


@dataclass
class Joint(NetLearner):
    """Trains once on the training data of all steps: an upper bound, as it sees every step before it is tested on any.

    Epochs as in CLEAR's code: epochs · steps // 3.
    """

    needs = Needs(whole_steps="it learns from all steps at once", future=True)
    guide = Guide("references", "", "E n D C", "an upper bound that sees the future")

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return self.epochs * max(1, len(sizes) // 3) * float(sum(sizes))

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """One training run over everything, as long as a third of all steps one by one."""
        trains = [step["train"] for step in steps]
        factor = max(1, len(steps) // 3)
        longer = replace(self, epochs=self.epochs * factor, decay_after=self.decay_after * factor)
        vars(longer).update({k: v for k, v in vars(self).items() if k not in ("epochs", "decay_after")})
        longer.reset()
        longer.train([np.asarray(t.x) for t in trains], np.concatenate([t.y for t in trains]))
        self.head, self.length, self.gradient_steps = longer.head, longer.length, longer.gradient_steps


CHUNK = 1024  # unlabelled samples predicted at once


@dataclass
class SelfTraining(NetLearner):
    """Trains on each step's labels, then on them and on its own confident predictions."""

    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    """least probability of a prediction that is used"""

    needs = Needs(whole_steps="unlabelled samples come with whole steps", unlabelled=True)
    guide = Guide("trained heads", "Lee 2013", "twice E n D C", "unlabelled samples come with the steps")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.waiting: list[Any] = [] if task.unlabelled is None else [task.unlabelled]
        self.taken, self.offered = 0, 0

    def learn_step(self, step: Step) -> None:
        """Raises IncompatibleStream if neither this step nor anything before it had unlabelled samples."""
        if step.unlabelled is not None:
            self.waiting.append(step.unlabelled)
        if not self.waiting and not self.offered:
            problem = "self-training needs unlabelled samples; the protocol shows it none."
            raise IncompatibleStream(problem, "", "Use clear-iid.")
        train = step["train"]
        self.train(train.x, train.y)
        confident, labels = self._confident()
        if len(labels):
            x = np.concatenate([np.asarray(train.x), confident.astype(train.x.dtype)])
            self.train(x, np.concatenate([train.y, labels]))
        self.waiting.clear()

    def _confident(self) -> tuple[Any, Any]:
        """Unlabelled samples with a confident prediction, and the predictions."""
        samples, labels = list[Any](), [np.zeros(0, np.int64)]
        for unlabelled in self.waiting:
            for low in range(0, len(unlabelled), CHUNK):
                x = np.asarray(pick(unlabelled, slice(low, low + CHUNK)))
                answers = (scores := self.scores(x)).argmax(1)
                rows = np.flatnonzero(sureness(scores, answers) >= self.threshold)
                samples.append(x[rows])
                labels.append(answers[rows])
                self.offered, self.taken = self.offered + len(x), self.taken + len(rows)
        return np.concatenate(samples or [np.zeros(0)]), np.concatenate(labels)

    def metadata(self) -> dict[str, Any]:
        """Numbers of unlabelled samples: seen, and used."""
        return {"unlabelled": self.offered, "pseudo_labelled": self.taken}


NEVER = -1e9  # score of a class without texts


@dataclass
class ZeroShot(Learner):
    """The class with the largest cosine between the sample and the mean of the class's text vectors; nothing is learned
    [Radford et al. 2021, sec. 3.1]. Classes without texts are never answered."""

    logit_scale: PositiveFloat = 100.0
    """of cosines before the softmax [Radford et al. 2021, sec. 2.5: 100 after training]"""

    needs = Needs(class_texts=True)
    knows = True
    guide = Guide("texts of the classes", "Radford et al. 2021", "nothing", "the first baseline on vectors of CLIP")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        assert task.class_texts is not None  # check_stream refuses a stream without
        self.task = task
        self.texts = task.class_texts.ensemble(task.n_classes)  # (C, D)
        self.silent = ~self.texts.any(1)

    def learn(self, x: Array, y: Labels) -> None:
        """Ignored."""

    def scores(self, x: Array) -> Floats:
        """(N, C): one product, whose rows are divided by the samples' lengths."""
        rows = np.asarray(x, np.float32)
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        scores = np.asarray(rows @ self.texts.T, np.float64)
        scores *= (self.logit_scale / np.maximum(lengths, 1e-12))[:, None]
        scores[:, self.silent] = NEVER
        return scores


@dataclass
class TextProbe(NetLearner):
    """A softmax head whose first weights are the text vectors times `text_scale`; each step continues from the last
    [Wortsman et al. 2022, sec. 2: linear classifier on CLIP features]."""

    text_scale: PositiveFloat = 30.0
    """of the text vectors as first weights; with CLIP's own 100 training hardly moves them"""

    needs = Needs(class_texts=True)
    knows = True
    guide = Guide("texts of the classes", "Wortsman et al. 2022", "E n D C", "few samples, or classes that come late")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start from the texts. Raises BadConfig for another network than linear."""
        if self.net != "linear":
            raise BadConfig(f"net is {self.net!r}.", "Expected linear: its weights start from text vectors.")
        super().begin(task, rng)

    def unused(self, task: Task) -> dict[str, str]:
        """What other networks use."""
        return super().unused(task) | dict.fromkeys(("hidden", "augment"), "it is a linear head on vectors")

    def reset(self) -> None:
        super().reset()
        assert self.task.class_texts is not None  # check_stream refuses a stream without
        texts = torch.from_numpy(self.task.class_texts.ensemble(self.task.n_classes) * np.float32(self.text_scale))
        self.head.params[0].copy_(texts)
        self.head.params[1].zero_()
        self.texts = texts.clone().to(self.place)


@dataclass
class WiseFt(TextProbe):
    """Answers with (1 - α) times the zero-shot head plus α times the trained one; training continues from the trained
    one [Wortsman et al. 2022, sec. 3, eq. 1]."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """α [sec. 3: 0.5]"""

    guide = Guide("texts of the classes", "Wortsman et al. 2022", "E n D C", "accuracy on other years must not fall")

    def mixed(self) -> Head:
        """The head that answers."""
        weights, bias = self.head.params
        params = [(1 - self.alpha) * self.texts + self.alpha * weights, self.alpha * bias]
        return Head(params, [], False)

    def scores(self, x: Array) -> Array:
        return net_scores(self.mixed(), self.inputs(x))


@dataclass
class OnlineLinear(NetLearner):
    """A softmax head fitted by AdamW, then one step of SGD for every correction.

    Defaults as in OCRR: learning rate 0.01, weight decay 1e-4, 30 epochs; corrections with 0.05.
    """

    optimiser: Literal["sgd", "adamw"] = "adamw"
    lr: PositiveFloat | Literal["auto"] | None = 0.01
    weight_decay: NonNegativeFloat = 1e-4
    epochs: PositiveInt = 30
    decay_after: PositiveInt = 30
    scale: Literal["rms", "none"] = "none"
    classes: Literal["closed", "open"] = "closed"
    """a correction to an undeclared class: `open` adds the class, with weights of zero; `closed` raises an error"""

    guide = Guide("online", "OCRR", "E n D C", "one step of SGD for each correction")

    def correct(self, x: Array, y: Labels) -> None:
        missing = int(np.max(y)) + 1 - len(self.head.params[-1])
        if self.classes == "open" and missing > 0:
            self.head = grown(self.head, missing)
        super().correct(x, y)


@dataclass
class StaticLinear(OnlineLinear):
    """The same linear head, frozen after the first step or the seed data: ignores later steps and corrections."""

    needs = Needs(first_step="its head is fitted to it, and then frozen")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.frozen = False

    def learn(self, x: Array, y: Labels) -> None:
        """Fit the head at the first call; ignore later ones."""
        if not self.frozen:
            super().learn(x, y)
        self.frozen = True

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return super().samples_trained(sizes[:1])

    guide = Guide("online", "OCRR", "E n D C", "what corrections add to a head")

    def unused(self, task: Task) -> dict[str, str]:
        """What corrections would use."""
        return super().unused(task) | dict.fromkeys(
            ("correct_lr", "classes"), "its head is frozen when corrections come"
        )

    def correct(self, x: Array, y: Labels) -> None:
        """Ignored."""


@dataclass
class KnnLm(StaticLinear):
    """Mean of a frozen linear head and the vote of the nearest samples, by a softmax of their cosines.

    [Khandelwal et al. 2020; OCRR: k 5, temperature 0.1]
    """

    k: PositiveInt = 5
    """neighbours"""
    temperature: PositiveFloat = 0.1
    """temperature of the softmax of cosines"""
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """weight of the neighbours; the head has the rest"""

    guide = Guide("nearest neighbours", "Khandelwal et al. 2020", "E n D C + n N D", "a frozen head with neighbours")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.memory = Memory(int(np.prod(task.x_shape)))
        self.tracked: TrackedQueries | None = None

    def learn(self, x: Array, y: Labels) -> None:
        super().learn(x, y)
        self.correct(x, y)

    def correct(self, x: Array, y: Labels) -> None:
        """Append the sample to the memory; the head stays. Raises BadArray for a class that the head does not have."""
        self.check_declared(y)
        with one_thread():
            self.memory.learn(x, y, self.k)

    def prepare(self, x: Sequence[Array]) -> None:
        """Find their nearest samples once; later only new samples are compared with them."""
        with one_thread():
            self.tracked = TrackedQueries(self.memory, x, self.k)

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class of the highest mean probability."""
        if not self.memory.n:
            return super().predict(x)
        mixed = self.mixed(x)
        return np.asarray(mixed.argmax(1), np.int64), mixed

    def mixed(self, x: Array) -> npt.NDArray[np.float64]:
        """(m, C) probabilities."""
        neighbours = None if self.tracked is None else self.tracked.nearest(x)
        with one_thread(), torch.inference_mode():
            cosines, positions = self.memory.search(np.asarray(x), self.k) if neighbours is None else neighbours
            head = torch.softmax(self.head.scores(torch.from_numpy(np.array(self.inputs(x)))), 1).numpy()
        near = np.exp((cosines - cosines[:, :1]) / self.temperature)
        near /= near.sum(1, keepdims=True)
        mixed = (1 - self.share) * head
        np.add.at(mixed, (np.arange(len(x))[:, None], self.memory.labels[positions]), self.share * near)
        return np.asarray(mixed)

    def stored_bytes(self) -> int:
        """Vectors, labels and the head."""
        return self.memory.nbytes + sum(int(p.nbytes) for p in self.head.params)
