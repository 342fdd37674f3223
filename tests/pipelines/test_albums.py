"""Albums with gaps, thin years and concepts that nobody sees end in a release, or in a sentence."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.console import document, inside
from support.helpers import album, photo_config
from support.living import context

from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.core.errors import Shortage
from driftline.curate.metadata.columns import safe_id
from driftline.curate.release import Release
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.run.runner import run
from driftline.stream_builder.builders.release import from_release

pytestmark = pytest.mark.proof("journey")


def test_a_class_in_one_year_a_year_without_and_a_thin_year(tmp_path: Path) -> None:
    photos = album(tmp_path / "photos", 4)
    for photo in [*photos.glob("bus/201[12]*"), *photos.glob("car/2012-05-0[234]*")]:
        photo.unlink()
    for photo in photos.glob("car/2011*"):
        photo.rename(photo.with_name(photo.name.replace("2011", "2015")))
    cuts = "{kind: cuts, cuts: [2011-01-01, 2012-01-01, 2013-01-01], unlabelled: []}"
    config = photo_config("  per_class: 4\n  overlap: allow").replace("{kind: calendar, unlabelled: []}", cuts)
    (tmp_path / "driftline.yaml").write_text(config)
    sentences = ["bus: in 0 only.", "No image in 1."]
    run(context(tmp_path))
    release = Release.open(tmp_path)
    assert release.classes == ["bus", "car"]
    assert " ".join(sentences) in (release.path / "README.md").read_text()
    stream = from_release(release)
    assert [step.name for step in stream.steps] == ["0", "3"], "1 has no image, and 2 has one"
    assert stream.facts["gaps"] == ["1", "2"]
    assert [entry["name"] for entry in stream.facts["buckets"]] == ["0", "3"]
    release.verify()


def test_thin_years_are_joined_and_new_ones_wait_as_plan_and_card_say(tmp_path: Path) -> None:
    photos = album(tmp_path / "photos", 4)
    for photo in photos.glob("*/2011-05-0[234]*"):
        photo.unlink()
    config = photo_config("  per_class: 4").replace("{kind: calendar", "{kind: calendar, min_photos: 5")
    (tmp_path / "driftline.yaml").write_text(config)
    assert "buckets    2010: 8, 2011 to 2012: 10" in inside("plan", tmp_path).stdout
    run(context(tmp_path))
    release = Release.open(tmp_path)
    assert [bucket["name"] for bucket in release.facts["buckets"]] == ["2010", "2011 to 2012"]
    assert "A year with fewer than 5 photos is joined with those that follow it." in (
        (release.path / "README.md").read_text(encoding="utf-8")
    )

    def arrive(year: int, n: int) -> tuple[str, dict[str, Any]]:
        for i, source in enumerate(sorted(photos.glob("*/2010*"))[:n]):
            with Image.open(source) as image:
                image.rotate(8 * (i + 1) + year % 7).save(source.with_name(f"{year}-05-{i + 1:02d}.jpg"))
        return inside("grow", tmp_path, "--dry-run").stdout, document("grow", tmp_path)

    planned, grown = arrive(2013, 3)
    assert "3 photos wait until their time has buckets.min_photos: thin_period" in planned
    assert grown["buckets"]["now"] == ["2010", "2011 to 2012"]
    assert grown["stages"][3]["counts"]["dropped"] == {"thin_period": 3}
    planned, grown = arrive(2015, 4)
    assert "2011 to 2012: 10, 2013 to 2015: 7\n" in planned
    assert grown["buckets"]["now"] == ["2010", "2011 to 2012", "2013 to 2015"]


def test_a_concept_that_people_accept_for_no_photo_is_a_gap_and_none_at_all_is_a_sentence(tmp_path: Path) -> None:
    photos = album(tmp_path / "photos", 3)
    config = photo_config("  per_class: 3").replace("method: catalogue", "method: crowd, workers: 2, agree: 2")
    (tmp_path / "driftline.yaml").write_text(config)
    run(context(tmp_path), until="ask")
    facts = open_batch(context(tmp_path)).facts
    ids = {safe_id(path.relative_to(photos).as_posix()): path.parent.name for path in photos.glob("*/*.jpg")}

    def answer(second: str) -> None:
        rows = [
            (facts["batch"], item, who, label if ids[id_] == "bus" else "none")
            for item, id_ in facts["items"].items()
            for who, label in (("ann", "bus"), ("bob", second))
        ]
        text = csv_text(("Input.batch", "Input.item", "WorkerId", "Answer.labels"), rows)
        write_text(tmp_path / "answers" / "a.csv", text)

    answer("car")
    with pytest.raises(Shortage, match=r"no_majority \d+.*decide the conflicts on the page of driftline ann"):
        run(context(tmp_path))
    answer("bus")
    run(context(tmp_path))
    release = Release.open(tmp_path)
    assert set(release.table["class"].to_pylist()) == {"bus"}
    assert "\ncar: no image.\n" in (release.path / "README.md").read_text()
    assert len(from_release(release).steps) == 3
