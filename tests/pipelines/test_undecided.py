"""A photo of which only the year is known is in no bucket of a month."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.console import answer, driftline
from support.helpers import album, photo_config
from support.living import context

from driftline.curate.core.errors import UnknownName
from driftline.pipelines.browse.server import shown_date
from driftline.pipelines.run.run_folder import open_collection
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.photos import dropped, history_text, trace
from driftline.pipelines.stages.state import folder_of


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 photos of May and one of a year, in buckets of months, up to that stage."""
    root = tmp_path_factory.mktemp("undecided")
    album(root / "photos", 3)
    (root / "photos" / "car" / "2011").mkdir()
    shutil.copy(root / "photos" / "car" / "2010-05-01.jpg", root / "photos" / "car" / "2011" / "a.jpg")
    (root / "driftline.yaml").write_text(photo_config("  per_class: 2").replace("calendar,", "calendar, unit: month,"))
    assert "1 photos may be in several buckets" in driftline("plan", str(root)).stdout
    driftline("run", str(root), "--until", "bucket")
    return root


def reasons(root: Path) -> list[tuple[str, str]]:
    rejects = pq.read_table(folder_of(root, "bucket") / "rejects.parquet")
    return list(zip(rejects["reason"].to_pylist(), rejects["detail"].to_pylist(), strict=True))


def test_it_is_dropped_with_its_interval(undecided: Path) -> None:
    assert reasons(undecided) == [("date_undecided", "2011-01-01T00:00:00Z to 2011-12-31T23:59:59Z")]
    concerned = json.loads((folder_of(undecided, "bucket") / "undecided.json").read_text())
    assert concerned == {"photos": 1, "bucket": "2011-05", "share": 0.1429}  # of 6 and this one


# ---- what was dropped is listed with its place


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on own photos: one without a date, one that is no image; read only."""
    root = tmp_path_factory.mktemp("own") / "run"
    album(root / "photos")
    shutil.copy(root / "photos" / "car" / "2010-05-01.jpg", root / "photos" / "undated.jpg")
    (root / "photos" / "broken.jpg").write_bytes(b"no image")
    (root / "driftline.yaml").write_text(photo_config("  per_class: 6"))
    run(context(root))
    return root


class TestDropped:
    def test_an_unknown_reason_is_answered_with_the_known(self, root: Path) -> None:
        with pytest.raises(UnknownName, match="Did you mean 'no_upload_date'"):
            dropped(root, ["no_upload_dat"])

    def test_the_command_lists_those_of_one_reason(self, root: Path) -> None:
        rows = answer("status", str(root), "--dropped", "no_upload_date", "--json")["dropped"]
        assert [row["place"] for row in rows] == [str(root / "photos" / "undated.jpg")]
        assert "was given without --dropped" in driftline("status", str(root), "no_upload_date").stderr

    def test_the_command_says_where_dates_were_looked_for(self, root: Path) -> None:
        said = driftline("status", str(root), "--dropped").stdout
        assert f"no_upload_date          {root / 'photos' / 'undated.jpg'}" in said
        assert "Dates were looked for in: path." in said
        assert "--set 'collection.dates=[path, exif, sidecar, file]'" in said

    def test_records_that_could_not_be_read_show_why(self, root: Path) -> None:
        (row,) = answer("status", str(root), "--dropped", "unreadable_image", "--json")["dropped"]
        assert row["stage"] == "ingest"
        assert "broken.jpg" in row["detail"]


class TestTrace:
    def test_by_path_and_by_the_end_of_a_path(self, root: Path) -> None:
        whole = trace(root, str(root / "photos" / "car" / "2010-05-01.jpg"))
        assert whole == trace(root, "car/2010-05-01.jpg") == trace(root, whole["id"])

    def test_of_a_file_that_could_not_be_read_by_each_form_of_its_path(self, root: Path) -> None:
        whole = trace(root, "broken.jpg")
        (event,) = whole["events"]
        place = root / "photos" / str(event["detail"]).partition(": ")[0]
        assert place.is_file()
        assert whole == trace(root, str(place)) == trace(root, whole["id"])
        assert whole["ended"] == "It was dropped at ingest: unreadable_image."
        with pytest.raises(UnknownName, match=r"No stage .* 'roken\.jpg'"):
            trace(root, "roken.jpg")

    def test_by_file_name(self, root: Path) -> None:
        assert trace(root, "undated.jpg")["ended"] == "It was dropped at filter: no_upload_date."

    def test_a_name_of_two_photos_is_refused_with_their_ids(self, root: Path) -> None:
        with pytest.raises(UnknownName, match=r"2 photos of .* are named '2010-05-01\.jpg'.*The first: bus-2010"):
            trace(root, "2010-05-01.jpg")

    def test_people_read_dates(self, root: Path) -> None:
        said = history_text(trace(root, "car/2010-05-01.jpg"))
        assert said.count("date: 2010-05-01 (day, from path)") == said.count("date: ") == 1
        assert "date taken" not in said  # no camera's clock was read

    def test_the_browse_page_knows_the_precision_of_a_date(self, root: Path) -> None:
        dated = [row for row in open_collection(root).photos(range(100)) if row["uploaded"] is not None]
        assert {row["precision"] for row in dated} == {"day"}
        assert shown_date(dated[0] | {"precision": "year"}) == "2010"
        assert shown_date(dated[0]) == "2010-05-01"

    def test_by_address(self, tmp_path: Path) -> None:
        root = tmp_path / "run"
        root.mkdir()
        urls = "http://127.0.0.1:9/a/1.jpg?x=1", "http://127.0.0.1:9/b/2.jpg"
        (root / "photos.csv").write_text(f"url,day\n{urls[0]},2010\n{urls[1]},2011\n")
        source = "{source: delimited, path: photos.csv, columns: {url: url, uploaded: day}}"
        (root / "driftline.yaml").write_text(photo_config("  per_class: 6", collection=source))
        run(context(root), until="filter")
        by_url = trace(root, urls[0])
        assert by_url["events"][0]["uploaded"] == 1_262_304_000
        assert trace(root, "2.jpg")["events"][0]["url"] == urls[1]
