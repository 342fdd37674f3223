"""A plan says what a run needs, by hand-counted numbers, and changes nothing."""

import bz2
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.console import driftline
from support.helpers import album, photo_config, yfcc_line
from support.living import context

from driftline.curate.validation.settings import PRICES
from driftline.pipelines.commands.build import plan_text as text
from driftline.pipelines.forecast import forecast
from driftline.pipelines.run.runner import plan, run
from driftline.pipelines.stages.photos import dropped, trace
from driftline.pipelines.stages.state import folder_of


def found(root: Path, *changes: str) -> dict[str, Any]:
    here = context(root, *changes)
    document = forecast(here, plan(here))
    json.dumps(document)
    return document


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 photos of cars and buses, 20 a year."""
    return album(tmp_path_factory.mktemp("album") / "photos")


@pytest.fixture
def own(photos: Path, tmp_path: Path) -> Path:
    """A run on a copy of them that has read nothing yet."""
    root = tmp_path / "run"
    shutil.copytree(photos, root / "photos")
    (root / "driftline.yaml").write_text(photo_config("  per_class: 6"))
    return root


def test_photos_buckets_candidates_and_bytes_are_counted_before_anything_ran(own: Path) -> None:
    document = found(own)
    assert document["photos"] == {
        "expected": 60, "at_most": False, "addresses": None, "share_known_by": None,
        "known_by": "60 records of the source", "sample_dropped": {},
    }  # fmt: skip
    assert document["buckets"] == [{"name": str(year), "photos": 20} for year in (2010, 2011, 2012)]
    assert document["candidates"] == {
        "concepts": 2, "per_class": 6, "background": 0, "each_bucket": 12, "images": 36, "short_buckets": [],
    }  # fmt: skip
    sizes = [photo.stat().st_size for photo in (own / "photos").rglob("*.jpg")]
    assert document["disk"]["bytes"] == pytest.approx(sum(sizes), abs=60)
    assert document["problems"] == []


def test_every_file_of_a_folder_is_in_the_plan_and_in_the_counts(own: Path) -> None:
    """Case 14, and 21: what is done to a picture is in its history."""
    (own / "photos" / "film.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (own / "photos" / "bus" / "a.xmp").write_text("<x/>")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.effect_noise((60, 40), 99).save(own / "photos" / "bus" / "2011-05-06.jfif", "JPEG", exif=exif)
    document = found(own)
    left = {"not_a_photo": {".mp4": 1}, "sidecar": {".xmp": 1}}
    assert document["files"] == {"photos": {"JPEG": 61}, "left_out": left}
    assert "left out: not_a_photo 1 (.mp4 1), sidecar 1 (.xmp 1)" in text(plan(context(own)), document)

    run(context(own), until="fetch")
    counts = json.loads((folder_of(own, "ingest") / "done.json").read_text())["counts"]
    assert (counts["read"], counts["kept"], counts["dropped"]) == (63, 61, {"not_a_photo": 1, "sidecar": 1})
    last = trace(own, "2011-05-06.jfif")["events"][-1]
    assert (last["shown"], last["width"], last["height"]) == ("turned upright", 40, 60)
    assert {row["reason"] for row in dropped(own)} == {"not_a_photo", "sidecar"}


def test_nothing_is_changed(own: Path) -> None:
    before = sorted(own.rglob("*"))
    found(own)
    assert [path for path in sorted(own.rglob("*")) if path.name != "digests.sqlite"] == before


def test_before_the_first_run_every_stage_has_an_estimate(own: Path) -> None:
    assert {name for name, seconds in found(own)["seconds"].items() if seconds is None} == set()


def test_photos_that_filters_drop_do_not_count(own: Path) -> None:
    shutil.copy(next((own / "photos" / "car").iterdir()), own / "photos" / "undated.jpg")
    document = found(own)
    assert document["photos"]["expected"] == 60
    assert document["photos"]["sample_dropped"] == {"no_upload_date": 1}


def test_a_filter_that_changed_is_tried_anew_on_records_that_were_read(own: Path) -> None:
    run(context(own), until="filter")
    assert found(own, "filter.where=uploaded >= 1325376000")["photos"]["expected"] == 20, "of 2012"


def test_concepts_that_do_not_fit_are_a_problem(own: Path) -> None:
    document = found(own, "retrieve.per_class=11", "retrieve.short=fail")
    assert document["candidates"]["short_buckets"] == ["2010", "2011", "2012"]
    assert "Too few photos for 22 candidates in 3 of 3 buckets (2010, 2011, 2012)" in document["problems"][0]
    assert found(own, "retrieve.per_class=11", "retrieve.short=fewer")["problems"] == []


def test_answers_hours_and_dollars(own: Path) -> None:
    crowd = ("validation.method=crowd", "validation.workers=3", "validation.reward_usd=0.02", "validation.seconds=10")
    asked = found(own, *crowd)["questions"]
    assert asked == {
        "images": 36, "gold": 0, "workers": 3, "answers": 108, "hours": 0.3, "usd": 2.88, "at_most": True,
        "word": "at most", "known_by": "36 candidates", "platform": "prolific",
        "usd_an_hour": 7.2, "least_an_hour": 8.0, "fee": PRICES["prolific"].source,
    }  # fmt: skip
    assert found(own, *crowd, "validation.platform=turkle")["questions"]["usd"] == 2.16, "without a fee"
    assert found(own)["questions"] is None, "the folders' names are the labels"


def test_settings_that_cannot_work_are_problems(own: Path) -> None:
    changes = ("filter.where=selec", "release.judgement=none.md", "collection.path=nowhere")
    problems = " ".join(found(own, *changes)["problems"])
    for said in ("filter.where", "none.md", "nowhere"):
        assert said in problems


def test_a_missing_model_is_said(own: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    document = found(own, "embed.model=ViT-B-32", "embed.weights=openai")
    assert (document["model"]["state"], document["model"]["megabytes"]) == ("missing", 605)
    assert document["seconds"]["embed"] is None
    assert "ViT-B-32 (openai, 605 MB) is not on this machine" in document["problems"][0]


def test_what_is_finished_is_reused(own: Path) -> None:
    run(context(own), until="fetch")
    document = found(own)
    assert document["photos"]["known_by"] == "the stage fetch"
    assert document["disk"]["bytes"] == 0


def table_of(root: Path, *urls: str) -> Path:
    root.mkdir()
    rows = [f"{url}/{i},20{10 + i % 3}-05-01" for url in urls for i in range(9)]
    (root / "photos.csv").write_text("url,day\n" + "\n".join(rows) + "\n")
    source = "{source: delimited, path: photos.csv, columns: {url: url, uploaded: day}}"
    (root / "driftline.yaml").write_text(
        photo_config("  per_class: 6", collection=source, validation="{method: crowd}")
    )
    return root


def test_the_minutes_of_a_stage_that_ran_here_are_its_own_for_each_record_that_it_reads(own: Path) -> None:
    run(context(own))
    for path in own.glob("stages/*/done.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 90.0}))
    here = context(own)

    def seconds() -> dict[str, float]:
        times: dict[str, float] = forecast(here, plan(here, "ingest"))["seconds"]
        return times

    assert set(seconds().values()) == {90.0}, "60 photos, 36 candidates, fewer images in the release"
    for photo in [*(own / "photos").glob("*/2010*")]:
        shutil.copy(photo, photo.with_name(photo.name.replace("2010", "2013")))
    assert set(seconds().values()) == {120.0}, "a third more"
    lines = text(plan(here, "ingest"), forecast(here, plan(here, "ingest")))
    assert " by the last run, else by a test machine (" in lines


def test_photos_behind_addresses_count_as_typical_ones(tmp_path: Path) -> None:
    assert found(table_of(tmp_path / "run", "http://127.0.0.1:9"))["disk"]["bytes"] == 9 * 120_000


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_a_large_table_are_estimated(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.pipelines.forecast.MOST", 1_000)
    lines = "".join(yfcc_line(i, url=f"http://127.0.0.1:9/{i * 7919 % 104729}.jpg") + "\n" for i in range(30_000))
    data, name = lines.encode(), "rows.bz2" if packed else "rows.tsv"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_bytes(bz2.compress(data) if packed else data)
    config = photo_config("  per_class: 6", collection=f"{{source: yfcc, path: {name}}}")
    (tmp_path / "run" / "driftline.yaml").write_text(config)
    photos = found(tmp_path / "run")["photos"]
    assert photos["known_by"].startswith("about ")
    assert photos["expected"] == pytest.approx(30_000, rel=0.25 if packed else 0.02)


def test_of_many_photos_those_that_are_read_are_spread_over_all(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.pipelines.forecast.MOST_FILES", 12)
    for photo in (own / "photos" / "bus").glob("2012*"):
        photo.unlink()
    document = found(own)
    assert document["photos"]["known_by"] == "50 records of the source, by 10"
    assert document["buckets"] == [
        {"name": "2010", "photos": 20}, {"name": "2011", "photos": 20}, {"name": "2012", "photos": 10}
    ]  # fmt: skip


def test_case_4_photos_of_reset_clocks_are_named(own: Path) -> None:
    def add(name: str, taken: str) -> None:
        exif = Image.Exif()
        exif.get_ifd(0x8769)[0x9003] = taken
        Image.effect_noise((60, 40), 99).save(own / "photos" / "bus" / name, "JPEG", exif=exif)

    for i in range(4):
        add(f"a{i}.jpg", f"2000:01:01 00:00:0{i}")
    add("b.jpg", "2098:01:01 12:00:00")
    here = context(own, "collection.dates=[exif, path]")
    document = forecast(here, plan(here))
    assert document["reset_clocks"] == {"2000-01-01": 4}
    assert document["photos"]["sample_dropped"] == {"impossible_upload_date": 1}
    lines = text(plan(here), document)
    assert "4 photos on the first hour of 2000-01-01" in lines
    assert "taken NOT BETWEEN 946684800 AND 946688399" in lines


def test_case_33_what_is_odd_in_a_table_is_in_the_plan(own: Path) -> None:
    rows = "".join(f"photos/bus/2010-05-{i:02d}.jpg,{'soon' if i < 4 else '2010.0'},bus\n" for i in range(1, 11))
    (own / "t.csv").write_text("file,year,kind\n" + rows)
    table = "{source: delimited, path: t.csv, columns: {path: file, uploaded: year, label: kind}}"
    problems = found(own, f"collection={table}")["problems"]
    assert any("uploaded is 'soon' in row 1, and 3 of 10 cannot be read" in problem for problem in problems)
    (own / "t.csv").write_text("file,year,kind\n" + rows.replace("2010.0", "7"))
    problems = found(own, f"collection={table}")["problems"]
    assert any("time_unit" in problem for problem in problems)


def test_the_command_ends_where_it_is_told(own: Path) -> None:
    planned = json.loads(driftline("plan", str(own), "--until", "bucket", "--json").stdout)
    assert [p["stage"] for p in planned["plan"]] == ["ingest", "filter", "fetch", "bucket"]
    assert planned["model"]["state"] == "not needed"


def test_people_read_the_same(own: Path) -> None:
    here = replace(context(own, "validation.method=crowd"))
    plans = plan(here)
    lines = text(plans, forecast(here, plans))
    for said in ("ingest     run     not done yet", "photos     60", "2010: 20, 2011: 20", "fee of prolific"):
        assert said in lines
    assert "pay: $8.00 an hour; fee: 33.3 % for universities and charities, 42.8 % for companies; prolific.com" in lines
    below = context(own, "validation.method=crowd", "validation.reward_usd=0.01")
    said = text(plans, forecast(below, plans))
    assert "pay: $4.00 an hour, less than the $8.00 that it requires; fee: 33.3 %" in said


def test_every_platform_has_a_fee_with_the_date_on_which_it_was_read(own: Path) -> None:
    for name, price in PRICES.items():
        fee = found(own, "validation.method=crowd", f"validation.platform={name}")["questions"]["fee"]
        assert fee == price.source
        assert re.search(r"none: your own people|, read \d+ \w+ 2026$", fee)
    assert "closed on 30 September 2026" in PRICES["mturk"].source


def test_a_plan_with_problems_says_what_a_run_would_miss_and_fails(tmp_path: Path) -> None:
    (tmp_path / "driftline.yaml").write_text(photo_config("  per_class: 6").replace("path: photos", "path: elsewhere"))
    done = driftline("plan", str(tmp_path), "--json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert "elsewhere" in problem
    assert (done.returncode, problem in done.stderr) == (1, True)
