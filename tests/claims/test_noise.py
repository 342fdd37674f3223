"""Audits: what is called chance is chance, also where images come in groups."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from driftline.curate.core.seeding import rng_for
from driftline.pipelines.cli import app
from driftline.pipelines.reporting.audit import audit_stream
from driftline.pipelines.reporting.audit_page import lines
from driftline.stream_builder.measures.shift_distance import sharing, sliced
from driftline.stream_builder.stream import Split, Step, Stream


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
