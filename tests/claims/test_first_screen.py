"""What is called ageing, in worlds whose truth is known: found where models age, and nowhere else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from claims.worlds import planted

from driftline.eval.outcomes import numbered
from driftline.eval.protocols.clear import Iid
from driftline.eval.rows import Answers, Row, Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.net import Control, Draw, Net, key_of, matrix_of, net_of, over_samples, pairs_in
from driftline.eval.scoring.sums import groups_of
from driftline.eval.scoring.timeline import record
from driftline.eval.visits import permuted, visits_of
from driftline.stream_builder.stream import Stream

DRAWS = 20
WORLDS = 100  # of each kind: a rate of 5 % is above 10 in 1 of 90 choices of seeds


def by_hand(stream: Stream, fresh: bool) -> Run:
    """A run of nearest-mean, or of means of the newest step alone, without `evaluate`: its rows and no more."""
    stream = numbered(stream)
    classes, rows = len(stream.classes), list[Row]()
    sums, counts = np.zeros((classes, *stream.x_shape)), np.zeros(classes)
    for i, step in enumerate(stream):
        x, y = step["train"].x, step["train"].y
        if fresh:
            sums, counts = np.zeros_like(sums), np.zeros_like(counts)
        np.add.at(sums, y, x)
        counts += np.bincount(y, minlength=classes)
        means = sums / np.maximum(counts, 1)[:, None]
        for j, other in enumerate(stream):
            test = other["test"]
            far = ((test.x[:, None] - means[None]) ** 2).sum(2) + np.where(counts, 0, np.inf)
            answers = Answers(test.position, test.y, far.argmin(1))
            right = int((answers.predicted == test.y).sum())
            rows.append(Row(str(j), len(test), right, learned_to=i, last_change=i, answers=answers))
    about = {"protocol": "clear-iid", "learner": "by hand", "settings": {}, "protocol_settings": {}, "seed": 0,
             "stream": {"name": "", "sha256": stream.sha256}, "steps": len(stream), "seconds": 1.0}  # fmt: skip
    return Run(about | {"timeline": record(stream)}, rows)


def nets_by_hand(stream: Stream, kinds: Sequence[bool] = (False, True), draws: int = DRAWS) -> list[Net]:
    """As `controlled` judges them: of nearest-mean, and of means of the newest step alone, on the same draws."""
    visits = visits_of(stream)
    others = [permuted(stream, visits, "within", k, 0) for k in range(draws)]
    nets = []
    for fresh in kinds:
        run, found = by_hand(stream, fresh), list[Draw]()
        pairs = pairs_in(run)
        for k, other in enumerate(others):
            of = by_hand(other, fresh)
            variance = over_samples([of], pairs.cells(len(stream)), groups_of(other)).variance
            found.append(Draw("within", k, 0, key_of(run.about), matrix_of(of), variance))
        net = net_of([run], Control(draws, "", found), groups_of(stream))
        assert net is not None
        nets.append(net)
    return nets


def test_by_hand_is_what_evaluate_gives() -> None:
    stream = planted(0, steps=4, turns=0.1)
    (run,) = evaluate(stream, Iid(), "nearest-mean").runs
    assert np.array_equal(matrix_of(by_hand(stream, False)), matrix_of(run))


AGES: dict[str, Any] = {"turns": 0.063}
NEVER: dict[str, dict[str, Any]] = {
    "nothing": {}, "classes": {"mix": 0.8}, "harder": {"harder": 0.08}, "uploaders": {"span": 4}, "few": {"train": 12},
    "large": {"size": 6}, "mixed": {"mixed": True},
}  # fmt: skip


@pytest.mark.proof("statistics")
def test_ageing_is_found() -> None:
    """Ten yearly steps, 60 tests of 20 groups a step, a net loss of 1.1 to 1.2 points a year."""
    nets = [nets_by_hand(planted(seed, **AGES), [False])[0] for seed in range(WORLDS)]
    assert 1 <= np.mean([net.ageing.per_year for net in nets]) <= 1.3
    assert np.mean([net.is_ == "ageing" for net in nets]) >= 0.8
    truth = np.mean([net.ageing.per_year for net in nets])
    bands = [net.points_per_year for net in nets if net.points_per_year is not None]
    assert np.mean([band.low <= truth <= band.high for band in bands]) >= 0.75


@pytest.mark.proof("statistics")
@pytest.mark.parametrize("kind", NEVER)
def test_ageing_is_claimed_nowhere_else(kind: str) -> None:
    claimed = [[net.is_ == "ageing" for net in nets_by_hand(planted(seed, **NEVER[kind]))] for seed in range(WORLDS)]
    assert np.mean(claimed, 0).max() <= 0.1
