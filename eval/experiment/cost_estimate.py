"""How long runs take, before they start: as long as finished ones with the same settings, else by one timed step."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

from driftline.eval import rows as row_files
from driftline.eval.experiment.learner_spec import spec_of
from driftline.eval.experiment.settings import setting_names
from driftline.eval.experiment.tune import started
from driftline.eval.learner import Learner
from driftline.eval.protocol import Protocol
from driftline.stream_builder.stream import Stream

TIMED = 256  # samples of the timed step at most; a network takes one batch
OUTSIDE = ("a model", "an address")  # what is not opened for an estimate

Past = Sequence[tuple[Learner, float]]  # finished runs: the learner with its settings, and its CPU seconds


def finished_runs(folder: Path, stream: Stream) -> Past:
    """Of a folder of runs of one protocol, those on this stream whose settings nothing chose."""
    past = []
    for path in sorted(folder.glob("*/run.json")):
        with suppress(Exception):  # a damaged record, a learner that is gone: `evaluate` says so
            about = row_files.record(path.parent)
            if (about["stream"]["name"], about["steps"]) == (stream.name, len(stream.steps)):
                past.append((spec_of(about["learner"])(**about["settings"]), float(about["seconds"])))
    return past


def core_seconds(
    stream: Stream, protocol: Protocol, name: str, makers: Sequence[Callable[..., Learner]], past: Past = ()
) -> list[float | None]:
    """CPU time that each run trains; None where nothing says how long that takes. name: of the protocol. makers: of
    each run's learner, from settings to change. past: finished runs."""
    alike: dict[str, list[float]] = {}
    for earlier, took in past:
        alike.setdefault(_key(earlier), []).append(took)
    sizes, known = protocol.training_sizes(stream), dict[str, float | None]()
    estimates: list[float | None] = []
    for make in makers:
        seconds: float | None = None
        with suppress(Exception):  # a learner that cannot be created: the run says why
            key = _key(learner := make())
            if key not in known:
                each = None if key in alike or sizes is None else step_seconds(stream, protocol, name, make)
                known[key] = None if each is None else each * learner.samples_trained(sizes or ())
            seconds = median(alike[key]) if key in alike else known[key]
        estimates.append(seconds)
    return estimates


def step_seconds(stream: Stream, protocol: Protocol, name: str, make: Callable[..., Learner]) -> float | None:
    """CPU seconds for each sample that training processes, by one pass over samples of the first step; None for a
    learner that cannot learn them, or names something outside."""
    names = setting_names(type(make()))
    learner = make(**({"epochs": 1} if "epochs" in names else {}))
    if any(what in OUTSIDE and getattr(learner, key) for key, what in learner.reaches.items()):
        return None
    step = stream.steps[0].visible()
    n = min(len(step["train"]), getattr(learner, "batch", 0) or TIMED)
    part = replace(step, splits={"train": step["train"].part(0, n)})
    with suppress(Exception):  # the run says why
        for _ in range(2):  # the first one loads libraries
            started(protocol, stream, name, learner, seed=0)
            clock = time.process_time()
            learner.learn_sequence([part])
            seconds = time.process_time() - clock
        return seconds / max(learner.samples_trained([n]), 1.0)
    return None


def _key(learner: Learner) -> str:
    return f"{type(learner).__module__}:{type(learner).__qualname__} {sorted(learner.settings().items())}"
