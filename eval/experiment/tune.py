"""Choice of settings: candidates run under the protocol and its budget, on a part of the stream that is never
scored."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import Diverged, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Learner
from driftline.eval.protocol import Protocol, Ran, Result, Start, score_of
from driftline.stream_builder.stream import Stream

Grid = Mapping[str, Sequence[Any]]
REFUSALS = {  # need of a learner → what a protocol says that cannot meet it
    "all_steps": "It cannot learn step by step",
    "whole_steps": "It cannot learn batch by batch",
    "first_step": "Its first data must be a whole step",
    "future": "It trains on steps that are test steps here",
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
        raise IncompatibleStream(problem, "", "Encode them: driftline stream encode.")
    if needs.unlabelled and stream.unlabelled is None and all(step.unlabelled is None for step in stream.steps):
        expected = "Expected a release with release.unlabelled: images, as images (--features images:SIZE), or encoded."
        raise IncompatibleStream(f"It needs unlabelled samples; {stream.name!r} has none.", expected)
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


def started(
    protocol: Protocol, stream: Stream, name: str, learner: Learner, seed: int, store: Path | None = None
) -> Start:
    """A learner after `begin`. name: of the protocol. store: as in `Task`."""
    check_needs(learner, protocol.refuses)
    check_stream(learner, stream)
    task = replace(
        protocol.task(stream), seed=seed, store=store, unlabelled=stream.unlabelled, class_texts=stream.class_texts
    )
    learner.begin(task, rng_for(seed, name, "learner"))
    return Start(learner, rng_for(seed, name, "walk"), seed)


def choose(
    protocol: Protocol, stream: Stream, name: str, make: Callable[..., Learner], grid: Grid, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of `grid` (name → values) with the best score on the protocol's `trials`, mean over these; among
    equals the learner's default, or else the first. And how they were chosen: the `score` that decided, each of
    `candidates` with it (None: diverged), how many were `equal` to the best, whether the `default` was one of these,
    training `samples`, `seconds`, and `updates` of plain SGD that all candidates cost.

    name: of the protocol. make: settings → a learner; all candidates have the same seed. Candidates that diverge are
    left out. Raises IncompatibleStream if all do, and whatever else stops one.
    """
    clock = time.process_time()
    parts = protocol.trials(stream, rng_for(seed, name, "walk"), seed)
    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    results: list[list[Result | None]] = []  # of each trial, for each candidate; None: it diverged
    updates = 0.0
    for within, part in parts:
        starts = [started(within, part, name, make(**candidate), seed) for candidate in settings]
        results.append(_results(within, part, starts))
        updates += sum(start.learner.spent() for start in starts)
    learned = [result for trial in results for result in trial if result is not None]
    if not learned:
        raise IncompatibleStream("Every candidate diverged.", "Expected one that learns.", "Try smaller values.")
    goal = score_of(type(protocol), protocol.chooses or protocol.primary or next(iter(learned[0].scores)))
    values = [_mean([result and result.scores[goal.name] for result in of]) for of in zip(*results, strict=True)]
    most = max(map(goal.gain, values))
    equal = [candidate for candidate, value in zip(settings, values, strict=True) if goal.gain(value) == most]
    default = _default(make, grid)
    record = {
        "score": goal.name,
        "candidates": [{**candidate, goal.name: value} for candidate, value in zip(settings, values, strict=True)],
        "equal": len(equal),
        "default": default in equal,
        "samples": sum(len(step["train"]) for step in parts[0][1].steps),
        "seconds": round(time.process_time() - clock, 3),
        "updates": round(updates, 3),
    }
    return (default if default in equal else equal[0]), record


def choice_text(result: Mapping[str, Any]) -> str:
    """Which settings of a result of several seeds were chosen among equals; "" without ties.

    >>> tie = {"equal": 3, "default": True, "candidates": [1, 2, 3, 4]}
    >>> choice_text({"learner": "er", "chosen": [{"lr": 1.0}], "selection": [tie]})
    'er: lr 1.0 was chosen among 3 equally good of 4 candidates (the default stays)'
    """
    texts = []
    for settings, record in zip(result.get("chosen", ()), result.get("selection", ()), strict=True):
        if record.get("equal", 1) > 1:
            values = ", ".join(f"{name} {value}" for name, value in settings.items())
            why = "the default stays" if record["default"] else "the first of them, the default is not among them"
            count = f"{record['equal']} equally good of {len(record['candidates'])} candidates"
            texts.append(f"{values} was chosen among {count} ({why})")
    return f"{result['learner']}: {'; '.join(dict.fromkeys(texts))}" if texts else ""


def _default(make: Callable[..., Learner], names: Iterable[str]) -> dict[str, Any]:
    """What the learner has for these settings if nothing is chosen."""
    learner, values = make(), make().settings()
    for field in fields(learner):  # type: ignore[arg-type]
        if field.name in names and values[field.name] == "auto" and field.default is not MISSING:
            values[field.name] = make(**{field.name: field.default}).settings()[field.name]
    return {name: values[name] for name in names}


def _results(protocol: Protocol, part: Stream, starts: Sequence[Start]) -> list[Result | None]:
    """Of each candidate; None for one that diverged. Raises whatever else stops one."""
    results: list[Ran | Exception] = []
    share = protocol.learners_per_pass
    for low in range(0, len(starts), share):
        runs = dict(protocol.run_many(part, starts[low : low + share]))
        results += [runs[i] for i in sorted(runs)]
    if failed := [ran for ran in results if isinstance(ran, Exception) and not isinstance(ran, Diverged)]:
        raise failed[0]
    return [None if isinstance(ran, Exception) else protocol.score(ran.rows, len(part.steps)) for ran in results]


def _mean(values: Sequence[float | None]) -> float | None:
    """None if one of them is."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else None
