"""Streams of two versions of one release: their scores are compared on what they share, and refused elsewhere."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.eval.reporting.overview import compared, versions_section
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate
from driftline.eval.scoring.timeline import shared
from driftline.stream_builder.stream import Stream


def versioned(version: str, steps: int, other: int | None = None) -> Stream:
    """A stream of so many steps, as if from a release. other: a step whose data are not those of other versions."""
    stream = drifting(steps=4, n=60, noise=2.0)
    buckets = [{"name": str(2010 + i), "train": f"t{i}", "test": f"e{i}"} for i in range(steps)]
    made = list(stream.steps[:steps])
    if other is not None:
        buckets[other] |= {"train": "another"}
        train = made[other]["train"]
        flipped = replace(train, y=train.y[::-1].copy())
        made[other] = replace(made[other], splits={**made[other].splits, "train": flipped})
    facts = {"from": "release", "release": "photos", "version": version, "buckets": buckets}
    return replace(stream, steps=made, sha256=f"photos{version}", facts=facts)


def told(version: str, hashes: str) -> Any:
    """A version whose steps are the same where the letters are."""
    buckets = [{"name": str(i), "train": letter, "test": letter} for i, letter in enumerate(hashes)]
    return {"name": "photos", "version": version, "buckets": buckets}


@pytest.mark.parametrize(
    ("a", "b", "same", "learned"),
    [
        ("abc", "abc", (0, 1, 2), 3), ("abc", "abcd", (0, 1, 2), 3), ("abc", "axc", (0, 2), 1), ("ab", "xb", (1,), 0),
    ],
)  # fmt: skip
def test_what_two_versions_share(a: str, b: str, same: Any, learned: int) -> None:
    found = shared(told("1", a), told("2", b))
    assert (found.same, found.learned) == (same, learned)
    assert found.cells(unlabelled=False) == [(i, j) for i in range(learned) for j in same]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v1 has three buckets; v2 one more; v3 other training data in bucket 1."""
    here = tmp_path_factory.mktemp("versions")
    for name, stream in (
        ("v1", versioned("1.0.0", 3)), ("v2", versioned("1.1.0", 4)), ("v3", versioned("2.0.0", 3, other=1)),
    ):  # fmt: skip
        evaluate(stream, "clear-iid", ["nearest-mean", "joint"], [0], out=here / name)
    return here


def test_a_site_holds_two_versions_and_compares_what_they_share(runs: Path, tmp_path: Path) -> None:
    a, b = results_of([runs / "v1", runs / "v2"])
    (row,) = compared(a, b)
    assert (row["learner"], row["cells"]) == ("nearest-mean", 9), "joint sees all buckets at once"
    assert row["a"] == row["b"] == np.mean(next(r for r in a["results"] if r["learner"] == "nearest-mean")["matrix"])
    text = write([a, b], tmp_path).read_text()
    assert "Versions of one release" in text
    assert "clear-iid: photos 1.0.0 and 1.1.0" in text


def test_only_cells_before_the_first_difference_are_compared(runs: Path) -> None:
    a, b = results_of([runs / "v1", runs / "v3"])
    (row,) = compared(a, b)
    assert row["cells"] == 2
    matrix = next(r for r in a["results"] if r["learner"] == "nearest-mean")["matrix"]
    assert row["a"] == row["b"] == (matrix[0][0] + matrix[0][2]) / 2


def test_splits_that_are_drawn_from_all_buckets_are_not_compared(tmp_path: Path) -> None:
    for name, stream in (("v1", versioned("1.0.0", 3)), ("v2", versioned("1.1.0", 4))):
        evaluate(stream, "clear-iid", ["nearest-mean"], [0], {"splits": "random"}, tmp_path / name)
    text = versions_section(results_of([tmp_path]))
    assert "No score may be compared" in text
