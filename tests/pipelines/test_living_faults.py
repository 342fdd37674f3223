"""A run that grows is killed, meets a full disk, other bytes behind an address; frozen buckets keep their members."""

import hashlib
import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.console import driftline, inside
from support.helpers import album, photo_config
from support.living import Town, context, counted, grow_killed, linked_copy, tree

from driftline.curate.bucketing.assign import assign, assign_frozen, freeze
from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.errors import BadInput
from driftline.curate.core.seeding import rng_for
from driftline.curate.images.near_duplicates import near_stored
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import Outcome, history, images_of, keep_misses
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages import STAGES


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("town"), 70)


@pytest.fixture(scope="module")
def started_once(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run up to embed on the first 40 lines; not to be changed."""
    return town.built(tmp_path_factory.mktemp("started"), 40, "embed")


@pytest.fixture
def started(started_once: Path, tmp_path: Path) -> Path:
    """A copy of it, with its hard links."""
    return linked_copy(started_once, tmp_path / "run")


@pytest.mark.proof("processes")
def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    def misses(who: int) -> None:
        for i in range(20):
            with open_store(tmp_path) as store:
                keep_misses(
                    store, [("http://shared", Outcome(b"", fault="timeout")), (f"{who}/{i}", Outcome(b"", fault="x"))]
                )

    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=misses, args=(who,)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with open_store(tmp_path) as store:
        assert len(history(store, "http://shared")) == 80
        assert store.base.execute("SELECT COUNT(DISTINCT address) FROM attempts").fetchone() == (81,)


def test_other_bytes_behind_an_address_are_both_kept_and_dated(started: Path, town: Town) -> None:
    index = pq.read_table(started / "stages" / "03_fetch" / "00000.parquet", columns=["id", "sha256"]).drop_null()
    id_, old = index["id"][0].as_py(), index["sha256"][0].as_py()
    photo = town.world.folder / "photos" / f"{id_}.jpg"
    kept = photo.read_bytes()
    other = sorted(p for p in photo.parent.glob("*.jpg") if p != photo)[0].read_bytes()
    started_at = time.time()
    try:
        photo.write_bytes(other)
        with counted(town):
            run(context(started), start="fetch", until="fetch")
    finally:
        photo.write_bytes(kept)
    with open_store(started / "store") as store:
        known = history(store, f"http://127.0.0.1:{town.world.port}/photos/{id_}.jpg")
        images = dict(images_of(store, [old, hashlib.sha256(other).hexdigest()]))
    new = pq.read_table(started / "stages" / "03_fetch" / "00000.parquet", filters=[("id", "=", id_)])["sha256"]
    assert [one.sha256 for one in known] == [old, new[0].as_py()]
    assert known[0].time <= int(started_at) <= known[1].time
    assert list(images.values()).count(kept) == list(images.values()).count(other) == 1


@pytest.mark.parametrize("name", ["record.json", "borders.json"])
def test_unfinished_files_of_a_killed_process_are_removed(started: Path, name: str) -> None:
    left = started / f".partial-999999-{name}"
    left.write_text("{")
    run(context(started), until="ingest")
    assert not left.exists()


def test_a_store_that_is_no_database_is_one_sentence(started: Path) -> None:
    (started / "store" / "index.sqlite").write_bytes(b"x" * 4096)
    done = driftline("grow", str(started), "--json")
    assert done.returncode == 1
    assert "cannot be used (file is not a database). Expected the index of a store. Move" in done.stderr


def test_rows_that_are_gone_are_reported_and_leave_the_run(started: Path, town: Town) -> None:
    town.write(started, 30)
    with counted(town) as counts:
        found = grow(context(started), until="embed")
    assert found["rows"]["before"] - found["rows"]["now"] == 10
    assert counts == {}
    table = json.loads((started / "stages" / "02_filter" / "done.json").read_text())
    assert table["counts"]["read"] <= 30


class TestFrozen:
    @pytest.mark.parametrize("grow_rule", ["new", "extend-last"])
    @pytest.mark.parametrize("kind", ["equal", "calendar"])
    def test_members_stay_and_later_photos_go_where_the_rule_says(self, kind: str, grow_rule: str) -> None:
        rng = rng_for(0, "frozen", kind)
        times = np.sort(rng.integers(0, 12, 60)).astype(np.int64) * (1 if kind == "equal" else 20_000_000)
        ids = pa.array([str(i) for i in rng.permutation(60)])
        settings = BucketSettings.model_validate({"kind": kind, "count": 7, "grow": grow_rule})
        number, buckets = assign(times, ids, settings)
        members = pa.table({"id": ids, "uploaded": times, "until": pa.nulls(len(ids), pa.int64()), "bucket": number})
        frozen = json.loads(json.dumps(freeze([b.plain() for b in buckets], members, settings)))
        later = np.array([times.max() + 1 + i * 40_000_000 for i in range(3)], np.int64)
        again, opened_ = assign_frozen(
            np.concatenate([times, later]), pa.concat_arrays([ids, pa.array(["x", "y", "z"])]), frozen, settings
        )
        assert again[:60].tolist() == number.tolist()
        new = {"extend-last": 0, "new": 1 if kind == "equal" else 3}[grow_rule]
        assert len(opened_) - len(buckets) in ({new} if kind == "equal" else {new, new - 1})
        assert (again[60:] >= len(buckets) - 1).all()
        assert sum(b.count for b in opened_) == 63

    def test_photos_before_the_first_bucket_are_in_none(self) -> None:
        settings = BucketSettings(count=2)
        times, ids = np.arange(10, 20, dtype=np.int64), pa.array([str(i) for i in range(10)])
        number, buckets = assign(times, ids, settings)
        members = pa.table({"id": ids, "uploaded": times, "until": pa.nulls(len(ids), pa.int64()), "bucket": number})
        frozen = freeze([b.plain() for b in buckets], members, settings)
        again, _ = assign_frozen(np.array([3, 12], np.int64), pa.array(["a", "b"]), frozen, settings)
        assert again.tolist() == [-1, 0]


def test_near_copies_of_stored_hashes_are_those_of_all_pairs() -> None:
    rng = rng_for(0, "near stored")
    stored = rng.integers(0, 1 << 63, 3000).astype(np.uint64)
    new = np.concatenate([stored[:50] ^ np.uint64(0b1011), rng.integers(0, 1 << 63, 50).astype(np.uint64)])
    for bits in (0, 2, 3, 6):
        all_pairs = np.bitwise_count(new[:, None] ^ stored[None]) <= bits
        assert near_stored(new, stored, bits).tolist() == all_pairs.any(1).tolist()


class TestAttempts:
    """A grow that fails or is killed: cars of 2013, no bus, then more of 2014."""

    @pytest.fixture(scope="class")
    def finished_once(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        root = tmp_path_factory.mktemp("attempts") / "run"
        album(root / "photos", 3)
        config = photo_config("  per_class: 6").replace("{kind: calendar", "{kind: equal, count: 3")
        (root / "driftline.yaml").write_text(config)
        run(context(root))
        return root

    @pytest.fixture
    def finished(self, finished_once: Path, tmp_path: Path) -> Path:
        return linked_copy(finished_once, tmp_path / "run")

    def arrive(self, root: Path, year: int) -> None:
        for i, photo in enumerate(sorted((root / "photos" / "car").glob("2010*"))):
            with Image.open(photo) as image:
                image.rotate(10 * (i + year % 10)).save(photo.with_name(f"{year}-05-{i + 1:02d}.jpg"))

    def lasting(self, root: Path) -> dict[str, str]:
        """What a failed attempt leaves as it was."""
        own = {
            name: (root / name).read_text() for name in ("borders.json", "earlier.parquet") if (root / name).exists()
        }
        return own | {name: sha for name, sha in tree(root, "publish").items() if "/release/" in name}

    def calm(self, root: Path, tmp_path: Path, *years: int) -> dict[str, str]:
        """What an undisturbed one writes, in the same place: tables have paths of photos."""
        saved = linked_copy(root, tmp_path / "saved")
        for year in years:
            self.arrive(root, year)
        grow(context(root))
        written = tree(root) | {"borders": (root / "borders.json").read_text()}
        shutil.rmtree(root)
        linked_copy(saved, root)
        return written

    def test_it_freezes_nothing_whatever_stage_fails_and_counts_since_the_last_finished_one(
        self, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calm, before = self.calm(finished, tmp_path, 2013, 2014), self.lasting(finished)
        self.arrive(finished, 2013)

        def fail(*given: object) -> None:
            raise BadInput("injected")

        for name in STAGES:
            with monkeypatch.context() as patch:
                patch.setattr(STAGES[name], "run", fail)
                with pytest.raises(BadInput, match="injected"):
                    grow(context(finished))
            assert self.lasting(finished) == before
        self.arrive(finished, 2014)
        summary = grow(context(finished))
        grown = [summary[what]["now"] - summary[what]["before"] for what in ("rows", "images")]
        assert (summary["state"], grown) == ("done", [6, 6])
        assert len(summary["buckets"]["now"]) == len(summary["buckets"]["before"]) + 1
        assert tree(finished) | {"borders": (finished / "borders.json").read_text()} == calm
        assert not (finished / "growing").exists()

    @pytest.mark.parametrize("stage", os.environ.get("DRIFTLINE_KILLED", "bucket publish").split())
    def test_a_killed_one_ends_in_the_bytes_of_an_undisturbed_one(self, finished, tmp_path, stage):
        calm, before = self.calm(finished, tmp_path, 2013), self.lasting(finished)
        self.arrive(finished, 2013)
        grow_killed(finished, stage)
        assert self.lasting(finished) == before
        rows = grow(context(finished))["rows"]
        assert rows["now"] - rows["before"] == 3
        assert tree(finished) | {"borders": (finished / "borders.json").read_text()} == calm

    def test_other_buckets_after_a_failed_one_are_cut_as_if_it_had_not_been(self, finished, monkeypatch):
        self.arrive(finished, 2013)
        with monkeypatch.context() as patch:
            patch.setattr(STAGES["retrieve"], "run", lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                grow(context(finished))
        run(context(finished, "buckets={kind: calendar, unlabelled: []}"))
        buckets = json.loads((finished / "stages" / "04_bucket" / "buckets.json").read_text())
        assert [bucket["name"] for bucket in buckets] == ["2010", "2011", "2012", "2013"]
        assert not (finished / "borders.json").exists()
        assert not (finished / "growing").exists(), "the attempt ended with this run"

    def test_a_dry_run_names_the_buckets_of_the_deed(self, finished: Path) -> None:
        self.arrive(finished, 2013)
        told = json.loads(inside("grow", finished, "--dry-run", "--json").stdout)
        grow(context(finished))
        buckets = json.loads((finished / "stages" / "04_bucket" / "buckets.json").read_text())
        assert told["buckets"] == [{"name": b["name"], "photos": b["count"]} for b in buckets]

    def test_heal_says_first_what_it_mended(self, finished: Path) -> None:
        assert inside("heal", finished).stdout.startswith("nothing was damaged\n")
        (finished / "stages" / "05_embed" / "img_emb" / "img_emb_00000.npy").unlink()
        (finished / "stages" / "03_fetch" / "00000.tar").unlink()
        first, second, *_ = inside("heal", finished).stdout.splitlines()
        assert first.startswith("mended fetch: 00000.tar missing or changed")
        assert second == "mended embed: img_emb/img_emb_00000.npy missing or changed"
