"""`driftline demo --grow`: the finished demo gets one more bucket, only that is paid for, and old models meet it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.demo.growth import demo_grown, text
from driftline.pipelines.demo.journey import QUICK, demo

pytestmark = pytest.mark.proof("journey")


def test_a_year_later_only_new_photos_are_paid_for_and_old_models_are_tested_on_them(
    journey: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(journey, tmp_path / "demo"))
    for run in (out / "runs").glob("*/*"):
        if not run.name.startswith("nearest-mean-"):  # the report takes seconds for each of twelve learners
            shutil.rmtree(run)
    found = demo_grown(out, QUICK, RunLog(quiet=True), workers=1, learners=["nearest-mean"])
    grown = found["grown"]
    new = grown["images"]["new"]
    assert 100 < new <= grown["requests"] <= grown["rows"]["new"] < 170
    assert new < grown["embeddings"] <= 2 * new, "by the model that finds photos, and of published ones by another one"
    assert grown["rows"]["gone"] == 0
    assert grown["buckets"]["now"] == [*grown["buckets"]["before"], "11"]
    assert 0 < grown["answers"] <= 3 * new
    assert found["compare"]["comparable"] == [str(i) for i in range(1, 11)]
    (row,) = found["learners"]
    assert row["learner"] == "nearest-mean"
    assert all(0 < row[key] <= 1 for key in ("then", "new", "after"))
    assert "bucket 11" in text(found)
    assert Path(found["report"]).is_file()
    with pytest.raises(BadConfig, match=r"holds a demo that has grown\. Run: driftline demo --out"):
        demo(out, QUICK, RunLog(quiet=True))
