"""One photo is withdrawn from a published release: its place stays empty, and nothing else changes, twice."""

import json
import shutil
from pathlib import Path

import pytest
from support.console import driftline, inside
from support.helpers import album, photo_config
from support.living import context

from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.metadata.columns import safe_id
from driftline.curate.release import Release
from driftline.curate.release.changes import compare_releases
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.runner import run

pytestmark = pytest.mark.proof("journey")

LABELS = {  # how the images are labelled → settings
    "people": ("validation.method=crowd", "validation.workers=1", "validation.agree=1"),
    "folders": (),
    "people, rounds": (
        "validation.method=crowd", "validation.workers=1", "validation.agree=1", "release.short=reopen",
    ),
}  # fmt: skip


def published(folder: Path, *changes: str) -> Release:
    """Run, and answer what people are asked as the folders say."""
    here = context(folder, *changes)
    for _ in range(4):
        if not any("because" in entry for entry in run(here)):
            break
        answer(folder, here)
    return Release.open(folder)


def answer(folder: Path, here: object) -> int:
    facts = open_batch(here).facts  # type: ignore[arg-type]
    things = {safe_id(path.relative_to(folder / "photos").as_posix()): path.parent.name for path in
              folder.glob("photos/*/*")}  # fmt: skip
    rows = [(facts["batch"], item, "ann", things[id_]) for item, id_ in facts["items"].items()]
    header = ("Input.batch", "Input.item", "WorkerId", "Answer.labels")
    write_text(folder / "answers" / f"{facts['batch'][:8]}.csv", csv_text(header, rows))
    return len(rows)


def table(release: Release) -> dict[str, tuple[object, ...]]:
    """id → class, bucket, sides."""
    return {row["id"]: tuple(row[name] for name in ("class", "bucket", "split_0", "split_1")) for row in
            release.table.to_pylist()}  # fmt: skip


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("buckets", ["{kind: calendar, unlabelled: []}", "{kind: equal, count: 3, unlabelled: []}"])
def test_the_place_of_a_withdrawn_photo_stays_empty_and_nobody_is_asked(labels, buckets, tmp_path):
    folder = tmp_path / "run"
    album(folder / "photos", 6)
    (folder / "driftline.yaml").write_text(photo_config("  per_class: 4"))
    sets = [*LABELS[labels], f"buckets={buckets}", "release.per_class=3", "release.splits=2"]
    before = published(folder, *sets)
    for number, bucket in ((1, 1), (2, 2)):
        shutil.copytree(before.path, tmp_path / f"{number}")
        gone = next(
            row["id"] for row in before.table.to_pylist() if row["bucket"] == bucket and row["split_0"] == "test"
        )
        done = driftline("withdraw", str(folder), gone)
        assert done.returncode == 0, done.stderr
        previous = [f"release.previous={tmp_path / '2'}"] if number == 2 else []  # also without it the sides stay
        options = [f"--set={change}" for change in (*sets, f"release.version=1.0.{number}", *previous)]
        done = inside("run", folder, "--yes", *options)
        assert done.returncode == 0, "nobody is asked"
        after = Release.open(folder)
        assert table(after) == {id_: row for id_, row in table(before).items() if id_ != gone}
        if previous:
            assert after.facts["changes"]["level"] == "patch"
        compared = compare_releases(Release.open(tmp_path / f"{number}"), after)["buckets"]
        assert [entry["compare"] for entry in compared] == ["none" if i == bucket else "all" for i in range(3)]
        assert not [path for path in after.path.rglob("*") if path.is_file() and gone.encode() in path.read_bytes()]
        before = after


def test_growing_keeps_photos_that_were_answered(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    album(folder / "photos", 4)
    (folder / "driftline.yaml").write_text(photo_config("  per_class: 2"))
    sets = (*LABELS["people"], "release.per_class=2", "release.splits=2")
    before = table(published(folder, *sets))
    album(folder / "photos", 8)  # twice as many, some of them nearer to the prompts
    assert grow(context(folder, *sets))["state"] == "done", "old buckets are full"
    assert table(Release.open(folder)) == before
    for photo in (folder / "photos").glob("*/2012*"):
        shutil.copy(photo, photo.with_name(photo.name.replace("2012", "2013")))
    assert grow(context(folder, *sets))["state"] == "waiting", "a new bucket"
    assert 0 < answer(folder, context(folder, *sets)) <= 4, "of the new bucket"
    grow(context(folder, *sets))
    after = table(Release.open(folder))
    assert {id_: row for id_, row in after.items() if row[1] != 3}.keys() == before.keys()
    assert json.loads(driftline("status", str(folder), "--json").stdout)["stages"][-1]["state"] == "done"
