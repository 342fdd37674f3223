"""Task and Learner: what every method under every protocol is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curate.core.errors import IncompatibleStream
from eval.history import Past
from stream_builder.class_texts import ClassTexts
from stream_builder.stream import Step, Stream

Labels = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Task:
    """What a protocol discloses to every learner before the first step."""

    n_classes: int
    """number of classes C"""
    x_shape: tuple[int, ...]
    """shape of one sample; () for texts"""
    steps: int | None = None
    """number of time steps, if the protocol discloses it"""
    batch: int | None = None
    """samples that a stream brings at a time"""
    updates: float | None = None
    """budget: updates of the weights (forward and backward pass over a batch) per batch of the stream; None: no
    budget"""
    classes: tuple[str, ...] = ()
    """names of the classes, if the protocol discloses them"""
    rules: Any = None
    """what a protocol prescribes for its methods"""
    seed: int = 0
    """seed of the run, the same for every learner"""
    store: Path | None = None
    """folder for finished work that learners share"""
    prior: Any = None
    """unlabelled samples (N, ...) from before the first step, or None"""
    class_texts: ClassTexts | None = None
    """vectors of texts about the classes, or None"""
    shifts: tuple[int, ...] = ()
    """how far ahead of the last revealed label a stream's samples are predicted, in samples (0: the next one)"""

    def cost_of(self, size: int) -> float:
        """Cost of an update on `size` samples of a batch of the stream, of which one pass costs 1; 1 without a
        stream."""
        return 1 / -(-self.batch // size) if self.batch else 1.0


class Learner(ABC):
    """Three methods must be written; the others have defaults.

    A learner's settings are its dataclass fields; `Annotated[int, Field(ge=0)]` and `Literal` declare ranges and
    choices, which are checked before any work. `predict` works before anything was learned, and never learns. Arrays
    are not copied: do not modify them. Learners never receive test splits.
    """

    gradient_steps: int = 0
    """updates of the weights so far, reported with every score"""
    cost: float = 1.0
    """cost of one update, in updates of plain SGD (one forward and one backward pass over a batch)"""
    batch_cost: float = 0.0
    """cost of learning a batch besides its updates, in updates on all of the batch"""
    extra: float = 0.0
    """updates that were spent on it so far"""
    most_probable: int = 0
    """K: each test records the K most probable classes of a sample; set by `evaluate` (setting `probabilities`)"""

    needs_whole_steps: ClassVar[str] = ""
    """why it cannot learn batch by batch; "" if it can"""
    needs_all_steps: ClassVar[str] = ""
    """why it cannot learn step by step; "" if it can"""
    sees_all_steps: ClassVar[bool] = False
    """trains on all steps at once, before any test: an upper bound, refused where later steps are tests"""
    reads_texts: ClassVar[bool] = False
    """learns from texts; other learners are refused on a stream of texts"""
    needs_images: ClassVar[bool] = False
    """learns from images (H, W, 3) uint8; refused on a stream of vectors"""
    needs_unlabelled: ClassVar[bool] = False
    """learns from unlabelled samples, which the stream must have"""
    needs_class_texts: ClassVar[bool] = False
    """compares samples with texts about the classes, which the stream must have"""
    needs_oracle: ClassVar[bool] = False
    """trains on the stream's oracle data instead of its steps (Seq-to-Final)"""
    sample_by_sample: ClassVar[bool] = False
    """on a stream that is learned in batches, learns every sample before it predicts the next"""
    uses_device: ClassVar[bool] = False
    """has a setting `device`, which the command line's --device sets"""
    reaches: ClassVar[Mapping[str, str]] = {}
    """setting → what it names outside the run: "a file", "a model" or "an address"; nobody repeats a run of a stranger
    that has such a setting"""

    def check_stream(self, stream: Stream) -> None:
        """Raise IncompatibleStream, before any work, if the stream lacks what the learner needs."""
        if stream.x_shape == () and not self.reads_texts:
            problem = f"It learns from vectors; {stream.name!r} holds texts."
            raise IncompatibleStream(problem, "", "Encode them: stream from-texts --encoder, or --encoders.")
        if self.needs_unlabelled and stream.prior is None and all(step.unlabelled is None for step in stream.steps):
            raise IncompatibleStream(
                f"It needs unlabelled samples; {stream.name!r} has none.",
                "Expected a release with release.unlabelled: images, as images (--features images:SIZE), or encoded.",
            )

        if self.needs_images and len(stream.x_shape) != 3:
            problem = f"It learns from images; {stream.name!r} holds samples of shape {stream.x_shape}."
            raise IncompatibleStream(problem, "", "Keep the pixels: --features pixels:SIZE or images:SIZE.")
        if self.needs_class_texts:
            check_class_texts(stream)

    @abstractmethod
    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start a run: forget everything."""

    @abstractmethod
    def predict(self, x: Array) -> Labels:
        """x (N, ...) → labels (N,) int64."""

    def predict_ahead(self, x: Array, shift: int) -> Labels:
        """The same for samples that come `shift` samples after the next one; default: `predict`."""
        return self.predict(x)

    @abstractmethod
    def learn(self, x: Array, y: Labels) -> None:
        """Learn a batch x (N, ...), y (N,), in stream order."""

    def learn_from(self, past: Past) -> None:
        """Learn after the newest batch of a time-ordered stream, from any sample of `past`; default: the newest
        batch."""
        self.learn(*past.newest())

    def learn_step(self, step: Step) -> None:
        """Learn a whole time step; default: as one batch."""
        train = step["train"]
        self.learn(train.x, train.y)

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """Learn all steps, which are available at once; default: one after the other."""
        for step in steps:
            self.learn_step(step)

    def correct(self, x: Array, y: Labels) -> None:
        """Learn one corrected sample (1, ...), (1,); default: as a batch."""
        self.learn(x, y)

    def adapt(self, batch: Any) -> dict[str, Any] | None:
        """Adapt to test samples `batch.x` (N, ...), which have no labels, before they are predicted; returns what the
        record of the update says. None: nothing changes."""
        return None

    def prepare(self, x: Sequence[Array]) -> None:  # noqa: B027  most learners have nothing to prepare
        """Samples that will be predicted, without labels: a learner may precompute, but its answers must not change."""

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """Confidence of each answer (N,), 0 … 1: how probable the learner thinks that it is right; None if the learner
        has none."""
        return None

    def predict_with_confidence(self, x: Array) -> tuple[Labels, npt.NDArray[np.float64] | None]:
        """`predict` and `confidence` of the same samples, as every test asks for them; write it where one computation
        gives both."""
        return self.predict(x), self.confidence(x)

    def predict_with_scores(self, x: Array) -> tuple[Labels, npt.NDArray[np.float32]] | None:
        """`predict` and scores (N, C) whose softmax at the answer is its confidence, where these cost less than
        `predict_with_confidence`: small tests compute all confidences of a run at once. None: there are none such."""
        return None

    def class_probabilities(self, x: Array) -> npt.NDArray[np.float64] | None:
        """Probability of each class (N, C), 0 … 1, at most 1 for a sample; None if the learner has none."""
        return None

    def recall(self, x: Array) -> float:
        """Share of the nearest neighbours of x that its search finds; 1 if search is exact or there is none."""
        return 1.0

    def stored_bytes(self) -> int:
        """Bytes kept between batches: weights, buffers, indices."""
        return bytes_of([value for name, value in vars(self).items() if name not in ("rng", "task")])

    def metadata(self) -> dict[str, Any]:
        """Further facts for the run's record, as plain data."""
        return {}

    def spent(self) -> float:
        """Computation so far, in updates of plain SGD on a batch of the stream."""
        return self.gradient_steps * self.cost + self.extra

    def candidates(self) -> dict[str, list[Any]]:
        """Values to choose from, for each setting that is "auto"; among equally good ones the first is chosen."""
        return {}

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Samples that training processes over steps of these sizes: the basis of a time estimate."""
        return 0.0

    def settings(self) -> dict[str, Any]:
        """The dataclass fields, as plain data."""
        if not is_dataclass(self):
            return {}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}


def check_class_texts(stream: Stream) -> None:
    """Raise IncompatibleStream if a stream has no vectors of texts that its samples can be compared with."""
    texts, way_out = stream.class_texts, "Make it with driftline stream from-release RELEASE --features clip --texts."
    if texts is None:
        raise IncompatibleStream(
            f"It compares samples with texts about the classes; {stream.name!r} has none.", "", way_out
        )
    if stream.x_shape != texts.x.shape[1:]:
        kind = "images" if len(stream.x_shape) == 3 else f"samples of shape {stream.x_shape}"
        problem = f"{stream.name!r} holds {kind}, its class texts are vectors of {texts.x.shape[1]} numbers."
        raise IncompatibleStream(problem, "Expected image vectors of the same encoder.", way_out)


def bytes_of(value: Any) -> int:
    """Bytes of all arrays and tensors in plain data: lists, tuples, dicts, objects of driftline."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(bytes_of(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(bytes_of(v) for v in value)
    return bytes_of(vars(value)) if type(value).__module__.startswith("eval.") else 0
