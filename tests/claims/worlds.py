"""Planted worlds whose truth is known: Gaussian classes on a circle, photos in groups of one uploader, steps a year
apart. A sentence about ageing is right or wrong there."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.eval.learners.closed_forms import NearestMean
from driftline.stream_builder.step import Step
from driftline.stream_builder.stream import Split, Stream

YEAR = 31_556_952


def planted(
    seed: int, steps: int = 10, train: int = 60, test: int = 60, size: int = 3, classes: int = 4, width: int = 6,
    radius: float = 2.2, turns: float = 0.0, harder: float = 0.0, mix: float = 0.0, season: float = 0.0,
    span: int = 1, spread: float = 0.5, mixed: bool = False,
) -> Stream:  # fmt: skip
    """A stream with `train` and `test` samples a step, in groups of `size` photos.

    radius: of the circle of class means: nearest-mean reaches about 80 % with 2.2 and four classes, 66 % with 1.55.
    turns: radians a step by which all class means turn: the classes are equally hard at all times, and models age.
    harder: share by which the noise grows each step. mix: 0 … 1, how far the shares of the classes go round, once in
    all steps. season: radians of a swing that comes back after four steps. span: steps in a row in which a group has
    photos. spread: deviation of a group's own offset. mixed: the photos of a group are of several classes. With all of
    them 0, nothing changes and nothing can age."""
    rng, made = rng_for(seed, "planted"), list[Step]()
    angle = 2 * np.pi * np.arange(classes) / classes
    numbers = {"train": 0, "test": 0}
    offsets = {
        name: rng.normal(0, spread, ((steps + span) * n, width)) for name, n in (("train", train), ("test", test))
    }
    for t in range(steps):
        now = angle + turns * t + season * np.sin(2 * np.pi * t / 4)
        means = np.zeros((classes, width))
        means[:, 0], means[:, 1] = radius * np.cos(now), radius * np.sin(now)
        share = 1 + mix * np.cos(2 * np.pi * t / steps - angle)
        splits = {}
        for name, n in (("train", train), ("test", test)):
            count = -(-n // size)
            group = np.arange(count) if span > 1 else numbers[name] + np.arange(count)
            if span > 1:  # a group begins every (span / count) steps, in turn
                group = group + count * ((t + group * span // count) // span)
            numbers[name] += count
            edges = np.round(np.cumsum(share) / share.sum() * (n if mixed else count)).astype(int)
            y = np.searchsorted(edges, np.arange(n if mixed else count), side="right")
            y = rng.permutation(y) if mixed else np.repeat(y, size)[:n]
            of = np.repeat(group, size)[:n]
            x = means[y] + offsets[name][of] + rng.normal(0, 1 + harder * t, (n, width))
            time = t * YEAR + np.sort(rng.integers(0, YEAR - 86_400, n))
            ids = np.array([f"{t}-{name}-{i}" for i in range(n)])
            of = of + (10**6 if name == "test" else 0)
            splits[name] = Split(x.astype(np.float32), y.astype(np.int64), ids, time, of.astype(np.int64))
        made.append(Step(t, str(2001 + t), splits))
    return Stream("planted", made, [f"class {c}" for c in range(classes)], sha256=f"planted {seed}")


@dataclass
class Fresh(NearestMean):
    """Class means of the newest step alone: more data never help it."""

    def learn(self, x: Any, y: Any) -> None:
        self.begin(self.task, self.rng)
        super().learn(x, y)
