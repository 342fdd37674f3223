"""A photo that its owner withdrew leaves every later command of the run, and other runs that share its store."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.console import driftline, inside
from support.helpers import album, photo_config
from support.living import context
from support.small_runs import unpacked

import driftline as dl
from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.core.errors import UnknownName
from driftline.curate.metadata.columns import safe_id
from driftline.curate.metadata.filtering import was_withdrawn
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.metadata.schema import TABLE, batch_of
from driftline.curate.metadata.withdrawals import Withdrawal, address_digest, withdraw, withdrawals
from driftline.curate.release import Release
from driftline.curate.release.changes import compare_releases
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.browse.server import application
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.run_folder import open_collection
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.state import folder_of


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("withdraw") / "run"
    album(root / "photos", 6)
    (root / "driftline.yaml").write_text(photo_config("  per_class: 5"))
    assert driftline("run", str(root)).returncode == 0
    return root


def test_a_photo_leaves_the_release_with_the_next_plain_run_and_its_owner_can_check(published: Path) -> None:
    before = Release.open(published)
    gone, stays = before.table["id"].to_pylist()[:2]
    own = {released: id_ for id_, released in released_ids(published).items()}[gone]
    done = driftline("withdraw", str(published), gone, "--reason", "=asked by mail")
    assert done.stdout == (
        f"withdrawn: {own}\nRelease 1.0.0 holds them: raise release.version before you publish again.\n"
        f"Next: driftline run {published}\n"
    )
    assert driftline("run", str(published), "--set", "release.version=1.0.1").returncode == 0
    release = Release.open(published)
    assert gone not in release.table["id"].to_pylist()
    assert release.withdrawn([gone, stays]) == [gone]
    assert [path for path in release.path.rglob("*") if path.is_file() and gone.encode() in path.read_bytes()] == []
    assert driftline("run", str(published), "--set", "release.version=1.0.1").returncode == 0
    assert gone not in Release.open(published).table["id"].to_pylist(), "it stays away"

    assert f"withdrawn: 1 photos, {own} ({published / 'withdrawals.csv'})" in driftline("status", str(published)).stdout
    kept = {path: path.read_bytes() for path in (published / "kept").iterdir()}
    answer = json.loads(driftline("withdraw", str(published), gone, "--json").stdout)
    assert (answer["withdrawn"], answer["already"]) == ([], [own])
    assert {path: path.read_bytes() for path in (published / "kept").iterdir()} == kept != {}
    (row,) = withdrawals(published / "withdrawals.csv")
    assert (row.id, row.reason, row.release) == (own, "'=asked by mail", "1.0.0")


def test_an_unknown_photo_is_refused_before_anything_is_written(published: Path, tmp_path: Path) -> None:
    known = Release.open(published).table["id"][3].as_py()
    before = withdrawals(published / "withdrawals.csv")
    with pytest.raises(UnknownName, match="read a photo with the id 'nonsense'"):
        dl.withdraw(published, [known, "nonsense"])
    assert withdrawals(published / "withdrawals.csv") == before


def test_the_next_page_shows_it_no_more(tmp_path, monkeypatch):
    root = unpacked("finished", tmp_path)

    def opened() -> TestClient:
        app, path = application(open_collection(root), 8)
        return TestClient(app, base_url=f"http://127.0.0.1:8{path}", headers={"origin": "http://127.0.0.1:8"})

    with opened() as page:
        before = page.get("view").json()
        number, *_ = before["photos"][0]
        id_ = page.get(f"photo/{number}").json()["facts"]["id"]
        assert page.get(f"thumb/{number}").status_code == 200
    dl.withdraw(root, id_)
    with opened() as browser:
        tile = browser.get("view").json()["photos"][0]
        assert (tile[3], tile[5], tile[6]) == ("withdrawn", False, id_)
        assert [browser.get(f"{kind}/{number}").status_code for kind in ("thumb", "picture")] == [404, 404]
        facts = browser.get(f"photo/{number}").json()["facts"]
        assert {"title", "place", "uploader"} & facts.keys() == set()
        assert browser.get(f"trace/{number}").json() == {"lines": []}
        assert browser.get("view").json()["total"] == before["total"], "counts stay until the next run"


def table_run(root: Path, store: Path, query: str = "") -> list[str]:
    """Ids that pass the filters of a run on a table of addresses."""
    root.mkdir()
    rows = "".join(f"{root.name}{i},http://h/{i}.jpg{query},2012\n" for i in range(4))
    (root / "t.csv").write_text(f"name,url,year\n{rows}")
    (root / "driftline.yaml").write_text(
        "collection: {source: delimited, path: t.csv, columns: {id: name, url: url, uploaded: year}}\n"
        f"filter: {{upload_after_capture: false}}\nstore: {{path: {store}}}\nembed: {{model: driftline-photo-world}}\n"
        "retrieve: {concepts: [car]}\n"
    )
    return passed(root)


def passed(root: Path) -> list[str]:
    done = driftline("run", str(root), "--until", "filter")
    assert done.returncode == 0, done.stderr
    return pq.read_table(sorted((folder_of(root, "filter") / "table").glob("*")))["id"].to_pylist()


def test_other_runs_with_the_same_store_refuse_its_address(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert table_run(tmp_path / "a", store) == ["a0", "a1", "a2", "a3"]
    answer = dl.withdraw(tmp_path / "a", "http://h/2.jpg")
    assert answer["withdrawn"] == ["a2"]
    assert passed(tmp_path / "a") == ["a0", "a1", "a3"]
    assert table_run(tmp_path / "b", store) == ["b0", "b1", "b3"]
    assert table_run(tmp_path / "c", tmp_path / "another") == ["c0", "c1", "c2", "c3"]
    assert "h/2" not in (store / "withdrawals.csv").read_text()


def test_browse_hides_what_the_next_run_leaves_out(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for name in ("a", "b"):
        table_run(tmp_path / name, store, "?token=secret")
    table_run(tmp_path / "c", tmp_path / "another", "?token=secret")
    collections = {name: open_collection(tmp_path / name) for name in "abc"}
    assert [row["id"] for row in collections["b"].photos(range(4)) if row["reason"]] == []
    dl.withdraw(tmp_path / "a", "a2")
    rows = open_collection(tmp_path / "b").photos(range(4))
    assert [row["id"] for row in rows if row["reason"] == "withdrawn"] == ["b2"]
    assert [row["place"] for row in rows if row["reason"] == "withdrawn"] == [None]
    assert [row["id"] for row in collections["c"].photos(range(4)) if row["reason"]] == []
    (tmp_path / "list.csv").write_text("id\nc1\n")
    file = tmp_path / "c" / "driftline.yaml"
    file.write_text(file.read_text().replace("capture: false", "capture: false, withdrawn: ../list.csv"))
    rows = open_collection(tmp_path / "c").photos(range(4))
    assert [row["id"] for row in rows if row["reason"] == "withdrawn"] == ["c1"]


def test_a_photo_is_listed_once(tmp_path: Path) -> None:
    one = Withdrawal("a", "2026-01-02", "", "", address_digest("http://h/a.jpg"))
    other = one._replace(id="b", address="")
    assert withdraw(tmp_path / "list.csv", [one]) == [one]
    assert withdraw(tmp_path / "list.csv", [one, other]) == [other]
    assert [row.id for row in withdrawals(tmp_path / "list.csv")] == ["a", "b"]


def test_without_addresses_no_url_is_hashed() -> None:
    batch = batch_of([{"id": "a", "url": None}, {"id": "b", "url": "http://h/b.jpg"}], TABLE)
    rows = [Withdrawal("", "", "", "", address_digest("http://h/b.jpg"))]
    assert was_withdrawn(rows)(batch).to_pylist() == [False, True]
    assert was_withdrawn([rows[0]._replace(id="a", address="")])(batch).to_pylist() == [True, False]


@pytest.mark.parametrize("url", ["http://öx.de/a b.jpg", "HTTP://xn--x-0ga.de:80/a%20b.jpg", "http://ÖX.de/a b.jpg#x"])
def test_case_26_a_withdrawn_address_is_refused_in_every_spelling(url: str) -> None:
    batch = batch_of([{"id": "a", "url": url}, {"id": "b", "url": "http://öx.de/A b.jpg"}], TABLE)
    rows = [Withdrawal("", "", "", "", address_digest("http://öx.de:80/a b.jpg"))]
    assert was_withdrawn(rows)(batch).to_pylist() == [True, False]


# ---- the place of a withdrawn photo stays empty, and nothing else changes, twice


LABELS: dict[str, tuple[str, ...]] = {  # how the images are labelled → settings
    "people": ("validation.method=crowd", "validation.workers=1", "validation.agree=1"),
    "folders": (),
}
LABELS["people, rounds"] = (*LABELS["people"], "release.short=reopen")


def released(folder: Path, *changes: str) -> Release:
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


@pytest.mark.proof("journey")
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("buckets", ["{kind: calendar, unlabelled: []}", "{kind: equal, count: 3, unlabelled: []}"])
def test_the_place_of_a_withdrawn_photo_stays_empty_and_nobody_is_asked(labels, buckets, tmp_path):
    folder = tmp_path / "run"
    album(folder / "photos", 6)
    (folder / "driftline.yaml").write_text(photo_config("  per_class: 4"))
    sets = [*LABELS[labels], f"buckets={buckets}", "release.per_class=3", "release.splits=2"]
    before = released(folder, *sets)
    for number, bucket in ((1, 1), (2, 2)):
        shutil.copytree(before.path, tmp_path / f"{number}")
        gone = next(
            row["id"] for row in before.table.to_pylist() if row["bucket"] == bucket and row["split_0"] == "test"
        )
        done = driftline("withdraw", str(folder), gone)
        assert done.returncode == 0, done.stderr
        previous = [f"release.previous={tmp_path / '2'}"] if number == 2 else []  # also without it the sides stay
        options = [f"--set={change}" for change in (*sets, f"release.version=1.0.{number}", *previous)]
        done = inside("run", folder, *options)
        assert done.returncode == 0, "nobody is asked"
        after = Release.open(folder)
        assert table(after) == {id_: row for id_, row in table(before).items() if id_ != gone}
        if previous:
            assert after.facts["changes"]["level"] == "patch"
        compared = compare_releases(Release.open(tmp_path / f"{number}"), after)["buckets"]
        assert [entry["compare"] for entry in compared] == ["none" if i == bucket else "all" for i in range(3)]
        assert not [path for path in after.path.rglob("*") if path.is_file() and gone.encode() in path.read_bytes()]
        before = after


@pytest.mark.proof("journey")
def test_growing_keeps_photos_that_were_answered(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    album(folder / "photos", 4)
    (folder / "driftline.yaml").write_text(photo_config("  per_class: 2"))
    sets = (*LABELS["people"], "release.per_class=2", "release.splits=2")
    before = table(released(folder, *sets))
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
