"""What a learner may do beyond `begin`, `learn` and answering: it has an ability by having the method.

Each function is called by protocols in place of the method, and says what happens for a learner without it. No caller
writes into a learner. A learner whose state is not plain data has Python's `__getstate__` and `__setstate__`, by which
it is copied and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.history import Past
from driftline.eval.learner import Array, Labels, Learner
from driftline.stream_builder.step import Step
from driftline.stream_builder.stream import Stream

APART = ("rng", "task")  # attributes of a learner that are not its own memory


def _own(learner: Learner, ability: str) -> Callable[..., Any] | None:
    return getattr(learner, ability, None)


def learn_step(learner: Learner, step: Step) -> None:
    """`learn_step(step)`: learn a whole time step. Without it: `learn` gets the training samples as one batch."""
    if own := _own(learner, "learn_step"):
        own(step)
    else:
        learner.learn(step["train"].x, step["train"].y)


def learn_sequence(learner: Learner, steps: Sequence[Step]) -> None:
    """`learn_sequence(steps)`: learn all steps, which are available at once. Without it: one after the other."""
    if own := _own(learner, "learn_sequence"):
        own(steps)
    else:
        for step in steps:
            learn_step(learner, step)


def learn_from(learner: Learner, past: Past) -> None:
    """`learn_from(past)`: learn after the newest batch of a time-ordered stream, from any sample of the past. Without
    it: `learn` gets the newest batch."""
    if own := _own(learner, "learn_from"):
        own(past)
    else:
        learner.learn(*past.newest())


def correct(learner: Learner, x: Array, y: Labels) -> None:
    """`correct(x, y)`: learn one corrected sample (1, ...), (1,). Without it: a batch of one."""
    (_own(learner, "correct") or learner.learn)(x, y)


def predict_ahead(learner: Learner, x: Array, shift: int) -> Any:
    """`predict_ahead(x, shift)`: as `predict`, for samples that come `shift` samples after the next one. Without it:
    `predict`."""
    own = _own(learner, "predict_ahead")
    return own(x, shift) if own else learner.predict(x)


def prepare(learner: Learner, x: Sequence[Array]) -> None:
    """`prepare(x)`: samples that will be predicted, without labels: a learner may precompute, but its answers must not
    change. Without it: nothing."""
    if own := _own(learner, "prepare"):
        own(x)


def recall(learner: Learner, x: Array) -> float:
    """`recall(x)`: share of the nearest neighbours of x that its search finds. Without it: 1, search is exact or there
    is none."""
    own = _own(learner, "recall")
    return float(own(x)) if own else 1.0


def stored_bytes(learner: Learner) -> int:
    """`stored_bytes()`: bytes kept between batches: weights, buffers, indices. Without it: of all arrays and tensors in
    its attributes."""
    own = _own(learner, "stored_bytes")
    return int(own()) if own else bytes_of([value for name, value in _attributes(learner) if name not in APART])


def metadata(learner: Learner) -> dict[str, Any]:
    """`metadata()`: further facts for the run's record, as plain data. Without it: none."""
    own = _own(learner, "metadata")
    return own() if own else {}


def candidates(learner: Learner) -> dict[str, list[Any]]:
    """`candidates()`: values to choose from, for each setting that is "auto"; among equally good ones the first is
    chosen. Without it: none."""
    own = _own(learner, "candidates")
    return own() if own else {}


def samples_trained(learner: Learner, sizes: Sequence[int]) -> float:
    """`samples_trained(sizes)`: samples that training processes over steps of these sizes, the basis of a time
    estimate. Without it: 0."""
    own = _own(learner, "samples_trained")
    return float(own(sizes)) if own else 0.0


def spent(learner: Learner) -> float:
    """Computation so far, in updates of plain SGD on a batch of the stream."""
    return learner.gradient_steps * learner.cost + learner.extra


REFUSALS = {  # need of a learner → what a protocol says that cannot meet it
    "all_steps": "It cannot learn step by step",
    "whole_steps": "It cannot learn batch by batch",
    "first_step": "Its first data must be a whole step",
    "future": "It trains on steps that are tests here",
}


def check_needs(learner: Learner, refused: Sequence[str]) -> None:
    """Raise IncompatibleStream, before any work, if a protocol refuses what the learner needs. refused: fields of
    `Needs`."""
    for need in refused:
        if because := getattr(learner.needs, need):
            problem = REFUSALS[need] + (f": {because}." if isinstance(because, str) else ".")
            raise IncompatibleStream(problem, "", "driftline list learners --protocol NAME lists those that run.")


def check_stream(learner: Learner, stream: Stream) -> None:
    """Raise IncompatibleStream, before any work, if the stream lacks what the learner needs."""
    needs = learner.needs
    if stream.x_shape == () and not needs.texts:
        problem = f"It learns from vectors; {stream.name!r} holds texts."
        raise IncompatibleStream(problem, "", "Encode them: stream from-dataset --encoder, or eval --encoder.")
    if needs.unlabelled and stream.prior is None and all(step.unlabelled is None for step in stream.steps):
        raise IncompatibleStream(
            f"It needs unlabelled samples; {stream.name!r} has none.",
            "Expected a release with release.unlabelled: images, as images (--features images:SIZE), or encoded.",
        )
    if needs.images and len(stream.x_shape) != 3:
        problem = f"It learns from images; {stream.name!r} holds samples of shape {stream.x_shape}."
        raise IncompatibleStream(problem, "", "Keep the pixels: --features pixels:SIZE or images:SIZE.")
    if needs.class_texts:
        _check_class_texts(stream)


def _check_class_texts(stream: Stream) -> None:
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


def _attributes(learner: Learner) -> list[tuple[str, Any]]:
    """Of an object with or without `__slots__`."""
    slots = [name for base in type(learner).__mro__ for name in getattr(base, "__slots__", ())]
    return [*getattr(learner, "__dict__", {}).items(), *((n, getattr(learner, n, None)) for n in slots)]


def bytes_of(value: Any) -> int:
    """Bytes of all arrays and tensors in plain data: lists, tuples, dicts, objects of driftline."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(bytes_of(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(bytes_of(v) for v in value)
    return bytes_of(vars(value)) if type(value).__module__.startswith("driftline.eval.") else 0
