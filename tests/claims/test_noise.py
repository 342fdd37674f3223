"""Audits: what is called chance is chance, also where images come in groups; labels to check are no share of errors."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from driftline.curate.core.seeding import rng_for
from driftline.pipelines.cli import app
from driftline.pipelines.reporting.audit import NEIGHBOURS, audit_stream, disagreeing
from driftline.pipelines.reporting.audit_page import lines
from driftline.stream_builder.measures.shift_distance import sharing, sliced
from driftline.stream_builder.stream import Split, Step, Stream

WIDTH = 16  # of vectors


def stream(grouped: bool = True, uploaders: int = 12, each: int = 10) -> Stream:
    """Every image shows its uploader and nothing else; images of an uploader share a label; sides are random."""
    rng, steps = rng_for(0), []
    for t in range(3):
        group = np.repeat(np.arange(uploaders), each) + 100 * t
        x = rng.normal(size=(uploaders, 40))[group % 100] + rng.normal(0, 0.1, (len(group), 40))
        y = rng.integers(0, 2, uploaders)[group % 100]
        order = rng.permutation(len(group))
        parts = {"train": order[: len(order) * 7 // 10], "test": order[len(order) * 7 // 10 :]}
        splits = {
            side: Split(
                x[rows].astype(np.float32), y[rows], np.array([f"{t}-{i}" for i in rows]), None,
                group[rows] if grouped else None,
            )
            for side, rows in parts.items()
        }  # fmt: skip
        steps.append(Step(t, str(t), splits))
    return Stream("s", steps, ["a", "b"])


class TestAStreamWhoseSidesShareUploaders:
    def sentences(self, made: Stream) -> dict[str, str]:
        return {line.partition(":")[0]: line for line in lines(audit_stream(made))}

    def test_its_drift_is_measured_on_sides_drawn_by_group(self) -> None:
        """A label says nothing about other uploaders: .5 is right, random sides say three quarters."""
        drifts = [audit_stream(stream(grouped, 60))["drift"] for grouped in (True, False)]
        assert [drift["sides"] for drift in drifts] == ["drawn", "own"]
        assert drifts[0]["in_domain"] == pytest.approx(0.5, abs=0.15)
        assert drifts[1]["in_domain"] > 0.7
        assert "with a random split by group" in self.sentences(stream())["drift"]

    def test_where_groups_are_few_it_is_not_known(self) -> None:
        assert self.sentences(stream(uploaders=3))["drift"].startswith("drift: not known")

    def test_its_distances_say_that_they_are_too_small(self, tmp_path: Path) -> None:
        shared, unknown, apart = stream(), stream(grouped=False), stream().resplit(0.3, rng_for(0))
        assert [bool(sharing(made)) for made in (shared, unknown, apart)] == [True, False, False]
        shared.save(tmp_path / "s")
        measured = json.loads(
            CliRunner().invoke(app, ["stream", "measure", str(tmp_path / "s"), "--distance", "sliced", "--json"]).stdout
        )
        assert measured["warning"] == sharing(shared)
        assert "distances to them, above all the last step's own, are too small" in measured["warning"]
        own = [made.steps[-1] for made in (shared, apart)]
        assert sliced(*(own[0][side].x for side in ("train", "test"))) < 0.7 * sliced(
            *(own[1][side].x for side in ("train", "test"))
        )


def pictures(classes: int, apart: float, even: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """2,000 vectors around the means of their classes, and the true labels."""
    rng = rng_for(0, classes)
    share = np.full(classes, 1 / classes) if even else np.arange(1, classes + 1) / np.arange(1, classes + 1).sum()
    truth = rng.choice(classes, 2000, p=share)
    means = rng.normal(size=(classes, WIDTH))
    means *= apart / np.linalg.norm(means, axis=1, keepdims=True)
    return (means[truth] + rng.normal(0, 0.3, (2000, WIDTH))).astype(np.float32), truth


class TestLabelsToCheck:
    def share(self, x: np.ndarray, y: np.ndarray) -> float:
        return float(disagreeing(x, y, [str(i) for i in range(len(y))], np.arange(len(y)))["share"])

    @pytest.mark.parametrize(
        ("kind", "wrong", "listed"), [("at random", 0.44, 0.23), ("agreeing", 0.70, 0.03), ("weak encoder", 0, 0.17)]
    )
    def test_their_share_may_be_far_below_and_far_above_the_share_of_wrong_labels(self, kind, wrong, listed):
        """Why it is called neither estimate nor bound; the figures are those of the guide."""
        x, truth = pictures(2, 0.3, even=False) if kind == "weak encoder" else pictures(10, 3)
        rng, y = rng_for(1), truth.copy()
        if kind == "at random":
            y[rng.random(2000) < 0.49] = -1
            y[y < 0] = rng.integers(0, 10, (y < 0).sum())
        if kind == "agreeing":
            y = np.where(truth < 7, (truth + 1) % 7, truth)
            y[rng.random(2000) < 0.04] = 0
        assert np.mean(y != truth) == pytest.approx(wrong, abs=0.03)
        assert self.share(x, y) == pytest.approx(listed, abs=0.03)

    def test_they_are_what_a_search_one_by_one_lists(self) -> None:
        x, truth = pictures(10, 0.8)
        x, y, group = x[:300], truth[:300].copy(), rng_for(2).integers(0, 12, 300)
        y[::7] = (y[::7] + 3) % 10
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        suspects = set()
        for i in range(300):
            others = sorted((j for j in range(300) if group[j] != group[i]), key=lambda j: -float(unit[i] @ unit[j]))
            label, votes = Counter(y[others[:NEIGHBOURS]].tolist()).most_common(1)[0]
            if label != y[i] and votes > NEIGHBOURS / 2:
                suspects.add(i)
        assert disagreeing(x, y, [str(i) for i in range(300)], group)["share"] == len(suspects) / 300
        assert suspects

    def test_near_copies_with_the_same_wrong_label_do_not_vouch_for_each_other(self) -> None:
        x, y = pictures(10, 3)
        x[:20], y[:20] = x[y == 1][0], 0
        ids = [str(i) for i in range(2000)]
        group = np.maximum(np.arange(2000), 19)
        assert {s["id"] for s in disagreeing(x, y, ids, group)["most_suspicious"]} >= {"0"}
        assert "0" not in {s["id"] for s in disagreeing(x, y, ids, np.arange(2000))["most_suspicious"]}
