"""The journey on a tiny photo world: every kind of dirt has its name, labels are right, nothing is repeated."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image
from support.living import context

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.core.registry import Entry
from driftline.curate.images.changes import kinds_of
from driftline.curate.metadata.clocks import reset_clocks
from driftline.curate.release import Release
from driftline.pipelines.demo.draw import CONCEPTS
from driftline.pipelines.demo.world import RESET_DAY
from driftline.pipelines.run.runner import plan, run, status
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages.base import Counts
from driftline.pipelines.stages.photos import trace
from driftline.pipelines.stages.state import folder_of

pytestmark = pytest.mark.proof("journey")


def test_the_dirt_of_the_world_ends_under_its_own_name(journey: Path) -> None:
    behaviour = json.loads((journey / "world" / "behaviour.json").read_text())
    index = pq.read_table(folder_of(journey, "fetch") / "index.parquet")
    faults = dict(zip(index["id"].to_pylist(), index["fault"].to_pylist(), strict=True))
    expected = {"gone": "http_404", "busy": None, "html": "not_an_image", "cut": "truncated_body"}
    met = Counter(how for id_, how in behaviour.items() if id_ in faults)
    assert set(met) == set(expected), "the world shows every kind of trouble"
    for id_, fault in faults.items():
        assert fault == (expected[behaviour[id_]] if id_ in behaviour else None)
    dropped = {e["stage"]: e["counts"]["dropped"] for e in status(context(journey))}
    assert {"wrong_column_count"} == set(dropped["ingest"])
    expected_faults = {"video", "no_url", "malformed_url", "duplicate_id", "not_after_capture", "no_capture_date"}
    assert expected_faults | {"impossible_upload_date"} <= set(dropped["filter"])


def test_what_was_done_to_odd_pictures_is_counted_from_fetch_to_the_pages(journey: Path) -> None:
    """By the world's files, as Pillow alone reads them."""

    def kind(id_: str) -> str | None:
        with Image.open(journey / "world" / "photos" / f"{id_}.jpg") as image:
            turned = image.getexif().get(ExifTags.Base.Orientation)
            return {"I;16": "depth", "RGBA": "alpha"}.get(image.mode, "orientation" if turned else None)

    index = pq.read_table(folder_of(journey, "fetch") / "index.parquet", filters=pc.field("fault").is_null())
    for id_, record in zip(index["id"].to_pylist(), index["shown"].to_pylist(), strict=True):
        assert kinds_of(record) == [k for k in (kind(id_),) if k]
    release = Release.open(journey)
    counts = Counter(kind(id_) for id_ in release.table["id"].to_pylist())
    assert min(counts[k] for k in ("orientation", "depth", "alpha")) >= 3
    named = ", ".join(f"{k} {counts[k]}" for k in ("orientation", "depth", "alpha"))
    assert f"by kind: {named}." in " ".join((release.path / "README.md").read_text(encoding="utf-8").split())
    for page in ("report/index.html", "audit/audit.html"):
        text = (journey / page).read_text(encoding="utf-8")
        assert f"{counts['orientation']} turned upright (" in text
        assert f"{counts['depth']} scaled to 8 bits (" in text


def test_photos_of_a_reset_clock_are_left_out_as_a_plan_advises(journey: Path) -> None:
    files = sorted((folder_of(journey, "ingest") / "table").glob("*.parquet"))
    kept = sorted((folder_of(journey, "filter") / "table").glob("*.parquet"))
    for paths, days in ((files, [RESET_DAY]), (kept, [])):
        table = pq.read_table(paths)
        clocks = pc.coalesce(table["taken"], table["uploaded"]).to_pylist()
        assert list(reset_clocks(clocks, table["extra"].to_pylist())) == days
    dropped = {e["stage"]: e["counts"]["dropped"] for e in status(context(journey))}["filter"]["own_filter"]
    assert dropped > 10
    assert f"own filter {dropped}" in (journey / "report" / "index.html").read_text(encoding="utf-8")


def test_labels_of_the_release_are_nearly_always_the_truth(journey: Path) -> None:
    truth = json.loads((journey / "world" / "truth.json").read_text())
    release = Release.open(journey)
    release.verify()
    right = 0
    for id_, name in zip(release.table["id"].to_pylist(), release.table["class"].to_pylist(), strict=True):
        shown = set(truth[id_]) & set(CONCEPTS)
        right += shown == ({name} if name != "background" else set())
    assert right / len(release.table) > 0.97, "three workers with 5 % errors each leave few mistakes"


def test_no_bucket_holds_a_photo_of_another_span(journey: Path) -> None:
    release = Release.open(journey)
    spans = {b["index"]: (b["start"], b["end"]) for b in release.buckets}
    assert 0 not in spans, "bucket 0 stays unlabelled"
    from driftline.curate.core.times.dates import iso

    for bucket, uploaded in zip(
        release.table["bucket"].to_pylist(), release.table["uploaded"].to_pylist(), strict=True
    ):
        start, end = spans[bucket]
        assert start <= iso(uploaded) < end


def test_a_second_run_does_nothing(journey: Path) -> None:
    marks = {p: p.stat().st_mtime_ns for p in (journey / "stages").rglob("*") if p.is_file()}
    assert {p.action for p in plan(context(journey))} == {"skip"}
    run(context(journey))
    assert marks == {p: p.stat().st_mtime_ns for p in (journey / "stages").rglob("*") if p.is_file()}


def test_a_changed_setting_makes_its_stage_and_all_after_it_stale(journey: Path) -> None:
    changed = context(journey, "retrieve.depth=77")
    states = [e["state"] for e in status(changed)]
    assert states == ["done"] * 5 + ["stale"] * 4
    actions = [p.action for p in plan(changed)]
    assert actions == ["skip"] * 5 + ["run"] * 4


class TestTrace:
    def test_of_a_published_photo_tells_bucket_scores_and_votes(self, journey: Path) -> None:
        id_ = Release.open(journey).table["id"][0].as_py()
        found = trace(journey, id_)
        assert found["ended"] == "It is in the release."
        by_stage = {e["stage"]: e for e in found["events"]}
        assert set(by_stage) == set(STAGES)
        assert "bucket" in by_stage["bucket"]
        assert json.loads(by_stage["tally"]["votes"])

    def test_of_a_stage_that_another_package_could_add(self, journey, monkeypatch, tmp_path):
        """A stage that declares nothing: its tables with a column `id` are read, `reason` says why a photo left."""
        (tmp_path / "score_stage.py").write_text("from driftline.ext import Stage\nclass Score(Stage): pass\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(STAGES._found, "score", [Entry("score_stage:Score", "driftline")])
        place = tmp_path / "run"
        shutil.copytree(journey / "stages", place / "stages")
        kept, dropped = Release.open(journey).table["id"].to_pylist()[:2]
        folder = folder_of(place, "score")
        write_parquet(folder / "part" / "0.parquet", pa.table({"id": [kept], "beauty": [0.9]}))
        write_parquet(folder / "rejects.parquet", pa.table({"id": [dropped], "reason": ["ugly"]}))
        assert trace(place, kept)["events"][-1] == {"stage": "score", "outcome": "kept", "beauty": 0.9}
        assert trace(place, dropped)["events"][-1] == {"stage": "score", "outcome": "dropped: ugly"}


def test_the_report_opens_and_shows_what_it_should(journey: Path) -> None:
    page = (journey / "report" / "index.html").read_text()
    assert "the photos are rendered by a program, and the annotators are simulated" in page
    assert page.count("data:image/jpeg;base64,") >= 100
    for heading in ("The collection over time", "Photos in each stage", "Retrieval precision", "Settings of this run"):
        assert heading in page
    (row,) = re.findall(r"<tr><th scope='row'>zero-shot</th>(.*?)</tr>", page)
    accuracies = [float(cell) for cell in re.findall(r"<td>(.*?)</td>", row)]
    assert len(accuracies) == 10
    assert sum(accuracies) > 500, "chance: 91"


def test_counts_that_do_not_balance_cannot_be_made() -> None:
    with pytest.raises(AssertionError, match="1 records are missing"):
        Counts(3, 1, {"video": 1})
