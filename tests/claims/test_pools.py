"""Promises around splits: what is learned from shares nothing with tests, and what excludes tests means every split."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.helpers import photo_config
from support.living import context

from driftline.curate.core.atomic_io import read_json, sha256_bytes, write_text
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders.weights import UNKNOWN, seen
from driftline.curate.images.near_duplicates import hashes_of
from driftline.curate.pretrain import small_clip
from driftline.curate.pretrain.pool import gather, open_pool
from driftline.curate.pretrain.small_clip import captioned
from driftline.curate.release import Release
from driftline.curate.release.unlabelled import COPY, TEST, UPLOADER, Tested
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.reporting.audit import audit
from driftline.pipelines.reporting.audit_page import lines, page
from driftline.pipelines.run.runner import run

LAST = {0: "2009-05-12", 1: "2010-05-12", 2: "2011-05-12"}  # of each bucket, of the photos below


SOURCE = (
    "{source: delimited, path: photos.csv, columns: {path: path, uploaded: uploaded, user: user, label: label}, "
    "root: photos}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three years of two things, 12 photos each, three splits; uploaders have several photos in all years, and some
    photos of the unlabelled year 2009 are copies of later ones, compressed again by somebody else."""
    out = tmp_path_factory.mktemp("pools") / "run"
    (out / "photos").mkdir(parents=True)
    lines = ["path,uploaded,user,label"]
    for year in (2009, 2010, 2011):
        for thing in ("car", "bus"):
            for i in range(12):
                name = f"{year}-{thing}-{i}.jpg"
                copied = year == 2009 and i >= 10
                picture = photo([thing], 0.2, rng_for(2010 if copied else year, thing, i - 10 if copied else i))
                picture.save(out / "photos" / name, quality=40 if copied else 90, comment=b"fetched")
                user = f"copier {i}" if copied else f"{thing} {i // 2}" if i < 8 or year > 2009 else f"past {i}"
                lines.append(f"{name},{year}-05-{i + 1:02d},{user},{thing}")
    write_text(out / "photos.csv", "\n".join(lines) + "\n")
    text = photo_config("  per_class: 8", collection=SOURCE).replace("unlabelled: []", "unlabelled: [0]")
    more = "per_class: 8, splits: 3, ids: path, columns: [user], unlabelled: images"
    text = text.replace("per_class: 4, splits: 1", more)
    write_text(out / "driftline.yaml", text)
    run(context(out))
    return out


@pytest.fixture(scope="module")
def release(folder: Path) -> Release:
    return Release.open(folder)


def rows_tested(release: Release) -> list[dict[str, object]]:
    splits = release.facts["splits"]
    return [row for row in release.table.to_pylist() if any(row[name] == "test" for name in splits)]


def links(release: Release, ids: set[str], folder: Path) -> dict[str, set[str]]:
    """By brute force: which of the photos `ids` are tests, have the uploader of a test, or look like one."""
    users, digests, data = {}, {}, {}
    for part in folder.glob("stages/*_ingest/table/*.parquet"):
        users |= dict(rows_of(pq.read_table(part), "id", "user"))
    for name in (folder / "photos").iterdir():
        data[sha256_bytes(name.read_bytes())] = name.read_bytes()
    digests = dict(rows_of(pq.read_table(next(folder.glob("stages/*_fetch/index.parquet"))), "id", "sha256"))
    tests = rows_tested(release)
    hashes = {i: hashes_of([data[digests[i]]])[0] for i in ids | {row["id"] for row in tests}}
    return {
        TEST: ids & {row["id"] for row in tests},
        UPLOADER: {i for i in ids if users[i] in {row["user"] for row in tests}},
        COPY: {i for i in ids if any((hashes[i] ^ hashes[row["id"]]).bit_count() <= 4 for row in tests)},
    }


NOTHING: dict[str, set[str]] = {TEST: set(), UPLOADER: set(), COPY: set()}


class TestPublishedPool:
    def test_unlabelled_images_share_no_uploader_and_no_copy_with_tests_of_any_split(self, folder, release):
        rows = pq.read_table(release.path / "unlabelled.parquet").to_pylist()
        ids = {row["id"] for row in rows}
        assert ids
        assert links(release, ids, folder) == NOTHING

    def test_they_are_counted_by_reason_in_the_card(self, folder: Path, release: Release) -> None:
        counts = release.facts["unlabelled_left_out"]
        members = pq.read_table(next(folder.glob("stages/*_bucket/members.parquet")))
        rest = set(members["id"].to_pylist()) - set(release.table["id"].to_pylist())
        assert sum(counts.values()) == len(rest) - release.facts["unlabelled"]
        assert counts[UPLOADER] > 0
        assert counts[COPY] > 0
        card = (release.path / "README.md").read_text()
        assert f"{counts[UPLOADER]} photos by such\nuploaders and {counts[COPY]} near-duplicates" in card


class TestPretraining:
    @pytest.mark.parametrize("bucket", [0, 1, 2])
    def test_a_bucket_gives_no_test_of_any_split_and_what_is_left_out_is_counted(
        self, folder: Path, release: Release, bucket: int, tmp_path: Path
    ) -> None:
        pool = open_pool(folder, bucket)
        used = {photo.id for photo, _ in pool.images(16)}
        everything = {photo.id for photo, _ in open_pool(folder, bucket, include_tests=True).images(16)}
        assert links(release, used, folder) == NOTHING
        assert len(everything) == 24 == len(used) + pool.dropped.total()
        assert (pool.dropped[TEST] > 0) == (bucket > 0)
        left = gather(folder, bucket, 20, tmp_path / "out")
        assert (len(left.x), left.tests) == (len(used), "left out")
        assert {reason: left.dropped.get(reason, 0) for reason in (TEST, UPLOADER, COPY)} == {
            reason: pool.dropped[reason] for reason in (TEST, UPLOADER, COPY)
        }

    def test_a_run_and_its_release_leave_out_the_same(self, folder: Path, release: Release, tmp_path: Path) -> None:
        of_run, of_release = (gather(place, 0, 20, tmp_path / place.name) for place in (folder, release.path))
        assert of_run.sha256 == of_release.sha256 or sorted(map(bytes, of_run.x)) == sorted(map(bytes, of_release.x))

    def test_uploaders_that_a_release_does_not_say_are_those_of_its_run(self, folder: Path, tmp_path: Path) -> None:
        root = Path(shutil.copytree(folder, tmp_path / "run"))
        path = Release.open(root).path / "metadata.parquet"
        table = pq.read_table(path)
        at, nobody = table.schema.get_field_index("user"), pa.nulls(len(table), pa.string())
        pq.write_table(table.set_column(at, "user", nobody), path)
        assert open_pool(root, 0).dropped == open_pool(folder, 0).dropped

    def test_tests_are_included_only_by_an_explicit_setting_which_is_recorded(self, folder, tmp_path):
        found = gather(folder, 1, 20, tmp_path / "out", include_tests=True)
        assert (len(found.x), found.tests) == (24, "included")
        assert "included" in found.seen.data

    def test_captions_of_a_run_are_of_no_test(self, folder, release, monkeypatch):
        monkeypatch.setattr(small_clip, "FEWEST", 2)
        of_run = captioned(folder, 32)
        assert len(of_run.texts) < 72
        assert of_run.dropped[TEST] == len(Tested.of_release(release).ids)

    def test_without_a_release_tests_are_said_to_be_unknown(self, folder, tmp_path, monkeypatch):
        monkeypatch.setattr(small_clip, "FEWEST", 2)
        bare = Path(shutil.copytree(folder, tmp_path / "bare"))
        shutil.rmtree(next(bare.glob("stages/*_publish")))
        assert gather(bare, 1, 20, tmp_path / "out").tests == captioned(bare, 32).tests == "unknown"


class TestCache:
    def test_a_folder_that_grew_is_read_again(self, tmp_path: Path) -> None:
        source = tmp_path / "in"
        source.mkdir()
        for i in range(6):
            if i == 4:
                assert len(gather(source, 0, 20, tmp_path / "out").x) == 4
            Image.fromarray(np.full((20, 20, 3), 40 * i, np.uint8)).save(source / f"{i}.png")
        assert len(gather(source, 0, 20, tmp_path / "out").x) == 6
        Image.fromarray(np.full((20, 20, 3), 9, np.uint8)).save(source / "0.png")
        assert gather(source, 0, 20, tmp_path / "out").x[0, 0, 0, 0] == 9

    def test_photos_at_another_place_are_not_decoded_again(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        Image.new("RGB", (20, 20), (1, 2, 3)).save(tmp_path / "a" / "x.png")
        gather(tmp_path / "a", 0, 20, tmp_path / "out")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        ticks: list[int] = []
        gather(tmp_path / "b", 0, 20, tmp_path / "out", ticks.append)
        assert not ticks


class TestTimeSeen:
    @pytest.mark.parametrize("bucket", [0, 1])
    def test_it_is_the_newest_photo_that_was_learned(self, folder: Path, bucket: int, tmp_path: Path) -> None:
        found = gather(folder, bucket, 20, tmp_path / "out")
        pool = open_pool(folder, bucket)
        newest = max(photo.uploaded or 0 for photo, _ in pool.images(16))
        assert found.seen.trained_until == str(np.datetime64(newest, "s").astype("datetime64[D]"))
        assert found.seen.trained_until <= LAST[bucket]

    def test_bucket_0_has_seen_no_test_by_the_date(self, folder: Path, release: Release, tmp_path: Path) -> None:
        oldest = min(int(str(row["uploaded"])) for row in rows_tested(release))
        found = gather(folder, 0, 20, tmp_path / "out")
        assert np.datetime64(found.seen.trained_until, "s") < np.datetime64(oldest, "s")

    def test_a_folder_of_pictures_does_not_say_it(self, tmp_path: Path) -> None:
        Image.new("RGB", (20, 20)).save(tmp_path / "x.png")
        assert gather(tmp_path, 0, 20, tmp_path / "out").seen.trained_until == UNKNOWN

    def test_it_is_read_where_may_have_seen_is_decided(self, folder: Path, tmp_path: Path) -> None:

        from driftline.curate.pretrain import SMALL
        from driftline.curate.pretrain.train import pretrain

        images = gather(folder, 1, 72, tmp_path / "moco")
        recipe = replace(SMALL, epochs=1, batch=2, groups=1, queue=2)
        facts = pretrain(images, recipe, tmp_path / "moco", device="cpu")
        assert seen("backbone", "resnet10t", str(tmp_path / "moco")) == images.seen
        assert facts["trained_until"] == read_json(tmp_path / "moco" / "pretrain.json")["trained_until"]
        assert facts["tests"] == "left out"
        assert facts["dropped"][TEST] > 0


def test_an_audit_shows_what_any_split_divides_not_only_the_first(release: Release, tmp_path: Path) -> None:
    """One image of each pair of copies moves to the other side of the last split, and with it its uploader."""
    other = Path(shutil.copytree(release.path, tmp_path / "other"))
    table = pq.read_table(other / "metadata.parquet")
    users = table["user"].to_pylist()
    moved = next(i for i, user in enumerate(users) if users.count(user) > 1)
    sides = table["split_2"].to_pylist()
    sides[moved] = "train" if sides[moved] == "test" else "test"
    column = table.schema.get_field_index("split_2")
    pq.write_table(table.set_column(column, "split_2", pa.array(sides)), other / "metadata.parquet")
    clean, found = audit(release.path), audit(other)
    assert re.search(r"uploaders: 0 of \d+ in both parts of any split", "\n".join(lines(clean)))
    assert "1 of" in (line := next(line for line in lines(found) if line.startswith("uploaders")))
    assert "both parts of split_2" in line
    assert "both parts of split_2" in page(found)
    found["near_copies"] |= {"examples": [release.table["id"].to_pylist()[:2]], "apart": [["split_2"]]}
    assert "in train and test</strong> of split_2" in page(found)
