"""Whether a protocol and a stream show a learner what it needs, asked before any work."""

from collections.abc import Sequence

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.learner import Learner
from driftline.stream_builder.stream import Stream

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
