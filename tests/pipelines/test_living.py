"""Nothing paid for is thrown away: what was fetched, embedded or answered is used again, and the bytes are the same."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.console import driftline
from support.helpers import photo_config
from support.living import LOOSE, Town, answer, context, counted, linked_copy, requests, tree

from driftline.curate.core.errors import BadInput, Busy, Unconfirmed
from driftline.curate.core.seeding import rng_for
from driftline.curate.store.database import FORMAT, open_store
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.commands.build import plan_text as text
from driftline.pipelines.forecast import forecast
from driftline.pipelines.run.living import grow, heal
from driftline.pipelines.run.runner import plan, run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.photos import trace
from driftline.pipelines.stages.state import alone, folder_of


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("town"), 110)


@pytest.fixture(scope="module")
def built_once(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run up to retrieve; not to be changed."""
    root = town.run(tmp_path_factory.mktemp("built") / "run", 110, LOOSE)
    with counted(town) as counts:
        run(context(root), until="retrieve")
    assert requests(counts) > 80
    assert counts["images"] > 80
    return root


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """A copy of it, with its hard links."""
    return linked_copy(built_once, tmp_path / "run")


def states(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["state"] for entry in entries]


OTHER_FILTER = "filter.where=id not like '%7'"


class TestStore:
    @pytest.mark.parametrize(
        "change",
        [
            OTHER_FILTER,
            "filter.upload_after_capture=true",
            "fetch.shard_size=40",
            "buckets.count=2",
            "retrieve.per_class=2",
        ],
    )
    def test_other_settings_ask_for_nothing_again_and_write_what_an_empty_store_writes(
        self, built: Path, town: Town, tmp_path: Path, change: str
    ) -> None:
        fresh = town.run(tmp_path / "fresh", 110, LOOSE)
        with counted(town) as counts:
            run(context(built, change), until="retrieve")
            assert counts == {}
            run(context(fresh, change, "store.use=false"), until="retrieve")
        assert tree(built) == tree(fresh)
        assert not (fresh / "store").exists()

    def test_two_runs_share_a_store(self, built: Path, town: Town, tmp_path: Path) -> None:
        other = town.run(tmp_path / "other", 110, LOOSE)
        with counted(town) as counts:
            run(context(other, f"store.path={built / 'store'}"), until="embed")
        assert counts == {}
        assert tree(other) == tree(built, "ingest", "filter", "fetch", "bucket", "embed")
        tars = [folder_of(root, "fetch") / "00001.tar" for root in (built, other)]
        assert tars[0].samefile(tars[1])
        with open_store(built / "store") as store:
            assert {Path(path) for (path,) in store.base.execute("SELECT path FROM runs")} == {built, other}

    def test_a_plan_says_what_is_needed_although_there_is_a_store(self, built: Path) -> None:
        other = context(built, OTHER_FILTER)
        found = forecast(other, plan(other))
        assert found["again"].items() >= {"requests": 0, "embeddings": 0}.items()
        assert "again      about 0 requests" in text(plan(other), found)
        with_limit = context(built, "fetch.min_edge=20")
        assert 0 < forecast(with_limit, plan(with_limit))["again"]["requests"] < 40
        waiting = context(built)
        assert forecast(waiting, plan(waiting))["questions"]["images"] > 0

    def test_a_stage_that_is_repeated_on_purpose_asks_again(self, built: Path, town: Town) -> None:
        before = tree(built)
        with counted(town) as counts:
            run(context(built), start="fetch", until="embed")
        assert requests(counts) > 80
        assert counts["images"] > 80
        assert tree(built) == before

    def test_shards_are_linked_and_not_stored_twice(self, built: Path) -> None:
        files = list((built / "store" / "files").iterdir())
        assert len(files) == 8
        assert all(path.stat().st_nlink > 1 for path in files)

    def test_a_damaged_shard_is_named_and_its_photos_are_asked_for_again(self, built: Path, town: Town) -> None:
        before = tree(built)
        tar = built / "stages" / "03_fetch" / "00001.tar"
        data = bytearray(tar.read_bytes())
        data[600] ^= 1
        tar.write_bytes(bytes(data))  # the same inode as in the store
        found = driftline("verify", str(built / "store"), "--json")
        assert found.returncode == 1
        (damaged,) = json.loads(found.stdout)["damaged"]
        assert damaged["photos"] > 15
        assert "driftline heal" in found.stderr
        with counted(town) as counts:
            run(context(built, verify=True), until="retrieve")
        assert 0 < requests(counts) < 30
        assert tree(built) == before
        assert driftline("verify", str(built / "store")).returncode == 0

    def test_gc_lists_what_no_run_needs_and_deletes_only_if_asked(self, built: Path, town: Town) -> None:
        assert json.loads(driftline("heal", str(built), "--gc", "--json").stdout)["files"] == []
        with counted(town) as counts:
            run(context(built, "filter.where=uploaded < 1100000000"), until="embed")
            listed = json.loads(driftline("heal", str(built), "--gc", "--json").stdout)
            assert len(listed["files"]) > 3
            assert listed["freed"] > 10_000
            assert not listed["deleted"]
            assert driftline("heal", str(built), "--gc", "--yes").returncode == 0
            run(context(built, "filter.where=uploaded < 1200000000"), until="embed")
            assert requests(counts) > 0
        assert driftline("verify", str(built / "store")).returncode == 0

    @pytest.mark.parametrize("number", [2, 7])
    def test_a_store_of_another_format_is_refused_by_name(self, built: Path, number: int) -> None:
        with closing(sqlite3.connect(built / "store" / "index.sqlite")) as base:
            base.execute(f"PRAGMA user_version = {number}")
        with pytest.raises(BadInput, match=rf"index.sqlite has the format {number}; this driftline reads {FORMAT}"):
            run(context(built), start="fetch", until="fetch")

    def test_status_says_how_large_the_store_is(self, built: Path) -> None:
        files = [path for path in (built / "store").rglob("*") if path.is_file()]
        found = json.loads(driftline("status", str(built), "--json").stdout)["store"]
        assert (found["files"], found["bytes"]) == (len(files), sum(path.stat().st_size for path in files))


NAMES = ("car", "phone", "lamp")
THIRD = f"retrieve.concepts=[{', '.join(f'{{name: {name}, prompts: [a {name}]}}' for name in NAMES)}]"


class TestAnswers:
    def test_a_new_concept_is_another_page_and_without_it_old_answers_count(self, built, town, tmp_path):
        run(context(built), until="ask")
        first = answer(context(built), town, "first")
        assert states(run(context(built), until="tally"))[:8] == ["done"] * 8
        before = tree(built, "ask", "tally")
        entries = run(context(built, THIRD))
        assert "wait for answers" in entries[6]["because"]
        asked = set(pq.read_table(built / "stages" / "07_ask" / "items.parquet")["id"].to_pylist())
        second = answer(context(built, THIRD), town, "second")
        assert set(second) == asked > set(first) & asked, "nobody saw the new option"
        assert states(run(context(built, THIRD), until="tally"))[:8] == ["done"] * 8

        fresh = tmp_path / "fresh"
        subprocess.run(["cp", "-a", str(built), str(fresh)], check=True)
        for path in [fresh / "store", fresh / "answers"]:
            shutil.rmtree(path)
        shutil.rmtree(fresh / "batches", ignore_errors=True)
        alone = context(fresh, THIRD, "store.use=false")
        run(alone, start="ask", until="ask")
        answer(alone, town, "all")
        run(alone, until="tally")
        assert tree(built, "ask", "tally") == tree(fresh, "ask", "tally")
        assert states(run(context(built), until="tally"))[:8] == ["done"] * 8, "who saw more options answered these"
        assert [path for path in before if path not in tree(built, "ask", "tally")] == []

    def test_answers_of_an_unknown_batch_are_named_and_stop_nothing(self, built: Path, town: Town) -> None:
        run(context(built), until="ask")
        answer(context(built), town, "first")
        path = built / "answers" / "first.csv"
        (built / "answers" / "strange.csv").write_text(re.sub(",[0-9a-f]{8,},", ",other,", path.read_text(), count=1))
        run(context(built), until="tally")
        assert "1 answers do not count: " in said(built)
        assert "strange.csv, line 2: Input.batch is 'other', which this run never asked" in said(built)


def said(root: Path) -> str:
    """Everything that a run said."""
    return (root / "log.jsonl").read_text()


PUBLISHED = (
    "buckets.count=2",
    "retrieve.per_class=12",
    "retrieve.overlap=allow",
    "retrieve.concepts=[{name: bus, prompts: [a bus]}, {name: phone, prompts: [a phone]}]",
    "release.per_class=2",
    "release.unlabelled=images",
)


class TestGrow:
    @pytest.mark.proof("journey")
    def test_three_steps_give_the_bytes_of_one_build_with_the_same_borders(self, town: Town, tmp_path: Path) -> None:
        grown, whole = town.run(tmp_path / "grown", 60, LOOSE), tmp_path / "whole"
        asked = []
        with counted(town) as counts:
            run(context(grown, *PUBLISHED), until="ask")
            asked.append(answer(context(grown, *PUBLISHED), town, "first"))
            run(context(grown, *PUBLISHED))
            embedded = [len(pq.read_table(sorted((grown / "stages" / "05_embed" / "metadata").glob("*"))))]
            for lines, name in ((85, "second"), (110, "third")):
                town.write(grown, lines)
                found = grow(context(grown, *PUBLISHED))
                assert found["state"] == "waiting"
                assert found["rows"]["now"] - found["rows"]["before"] == 25
                assert len(found["buckets"]["now"]) == len(found["buckets"]["before"]) + 1
                embedded.append(found["images"]["now"] - found["images"]["before"])
                asked.append(answer(context(grown, *PUBLISHED), town, name))
                assert grow(context(grown, *PUBLISHED))["state"] == "done"
            before = counts.copy()
            grow(context(grown, *PUBLISHED))
            other = run(context(grown, *PUBLISHED, "release.splits=2", "validation.agree=1"))
            assert (counts, states(other)) == (before, ["done"] * 9), "other splits, another threshold"
            run(context(grown, *PUBLISHED))
        town.run(whole, 110, LOOSE)
        shutil.copy(grown / "borders.json", whole)
        shutil.copy(grown / "workers.key", whole)  # else its pseudonyms are others
        with counted(town) as at_once:
            run(context(whole, *PUBLISHED, "store.use=false"), until="ask")
            everything = answer(context(whole, *PUBLISHED, "store.use=false"), town, "all")
            run(context(whole, *PUBLISHED, "store.use=false"))
        assert tree(grown) == tree(whole)
        assert json.loads((grown / "stages/09_publish/release/croissant.json").read_text())["isLiveDataset"], "case 42"
        assert len([name for name in tree(grown, "publish") if name.endswith(".tar")]) == 2 * 4
        assert {k: n for k, n in counts.items() if k != "images"} == {k: n for k, n in at_once.items() if k != "images"}
        assert sum(embedded) == len(pq.read_table(sorted((whole / "stages" / "05_embed" / "metadata").glob("*"))))
        assert sorted(id_ for ids in asked for id_ in ids) == everything

    def test_new_and_changed_files_of_a_folder_are_noticed_by_content(self, town: Town, tmp_path: Path) -> None:
        (tmp_path / "driftline.yaml").write_text(photo_config("  per_class: 1"))
        some = sorted((town.world.folder / "photos").glob("*.jpg"))
        shown = [tmp_path / "photos" / "car" / f"{2010 + i}-05-01.jpg" for i in range(6)]
        shown[0].parent.mkdir(parents=True)
        for path, source in zip(shown[:4], some, strict=False):
            shutil.copyfile(source, path)
        run(context(tmp_path), until="embed")
        os.utime(shown[0])
        before = tree(tmp_path)
        assert grow(context(tmp_path), until="embed")["images"] == {"before": 4, "now": 4}
        assert tree(tmp_path) == before, "another time, the same content"
        times = shown[1].stat()
        for path, source in zip((shown[1], *shown[4:]), some[4:], strict=False):
            shutil.copyfile(source, path)
        os.utime(shown[1], ns=(times.st_atime_ns, times.st_mtime_ns))
        found = grow(context(tmp_path), until="embed")
        assert (found["rows"], found["images"]) == ({"before": 4, "now": 6}, {"before": 4, "now": 6})
        assert len(found["buckets"]["now"]) == 6
        assert tree(tmp_path, "fetch") != {name: sha for name, sha in before.items() if "_fetch/" in name}

    def test_a_limit_of_money_stops_before_people_are_asked(self, built: Path, town: Town) -> None:
        with pytest.raises(Unconfirmed, match=r"cost about \$[0-9.]+\. --max-usd allows \$0\.10"):
            grow(context(built), cost=0.1)
        assert not (built / "stages" / "07_ask").exists()

    def test_a_second_process_is_refused_by_name(self, built: Path) -> None:
        with alone(built), pytest.raises(Busy, match=r"Another driftline process \(process \d+ on"):
            grow(context(built))


class TestHeal:
    def test_misses_are_asked_again_by_reason_and_their_history_is_kept(self, built, town):
        index = pq.read_table(built / "stages" / "03_fetch" / "index.parquet")
        gone = index.filter(pc.equal(index["fault"], "http_404"))["id"].to_pylist()
        behaviour = town.world.folder / "behaviour.json"
        before = behaviour.read_text()
        try:
            behaviour.write_text(json.dumps({k: v for k, v in json.loads(before).items() if k != gone[0]}))
            with counted(town) as counts:
                found = heal(context(built), ["http_404"])
            assert requests(counts) == found["asked"] == len(gone)
            assert found["healed"] == 1
            assert found["vanished"]["http_404"] == len(gone) - 1
        finally:
            behaviour.write_text(before)
        with counted(town) as counts:  # as a heal that was stopped, when it is given again
            assert heal(context(built), ["http_451"])["asked"] == requests(counts) == 0
        (fetched,) = [e for e in trace(built, gone[0])["events"] if e["stage"] == "fetch"]
        assert [a["got"] for a in fetched["attempts"]] == ["http_404", fetched["sha256"]]
        with counted(town) as counts:
            assert heal(context(built))["healed"] == 0
        assert all(json.loads(before).get(url.rpartition("/")[2][:-4]) != "gone" for url in counts if url != "images")

    def test_a_damaged_file_of_the_store_is_fetched_again(self, built: Path, town: Town) -> None:
        before = tree(built)
        tar = built / "stages" / "03_fetch" / "00001.tar"
        data = tar.read_bytes()
        tar.write_bytes(data[:700] + b"X" + data[701:])
        with counted(town):
            (damaged,) = heal(context(built))["damaged"]
        assert damaged["state"] == "changed"
        assert tree(built) == before
        assert driftline("verify", str(built / "store")).returncode == 0


def annotate(at: Context, town: Town, who: str, most: int = 1000) -> list[str]:
    """Answer what the local page asks this person, and leave as after a kill, without an export; returns the photos."""
    store = answer_store_of(at)
    truth, photos = town.world.truth(), []
    while len(photos) < most and (coming := store.following(who, 1)):
        photos.append(store.batch["items"][coming[0]])
        thing = truth[photos[-1]][0]
        store.answer(who, coming[0], [thing if thing in store.batch["concepts"] else "none"], False, 3)
    store.close()
    return photos


class TestLocalAnswers:
    def test_two_people_answer_two_batches_at_once_and_a_concept_that_changed_is_named(self, built, town):
        here, other = context(built), context(built, THIRD)
        run(here, until="ask")
        first = answer_store_of(here)
        run(other, until="ask")
        second = answer_store_of(other)
        for item in first.batch["items"]:
            first.answer("ann", item, ["car"], False, 1)
            second.answer("bob", min(second.batch["items"]), ["lamp"], False, 1)
        run(other, until="tally")
        n = len(first.batch["items"])
        assert f"tally: {n} answers do not count: the page was another one ('lamp' is new)" in said(built)
        lines = {path.name: path.read_text().count("Submitted") for path in (built / "answers").iterdir()}
        assert lines == {f"annotate-{first.batch['batch']}.csv": n, f"annotate-{second.batch['batch']}.csv": 1}

    def test_answers_to_a_photo_that_is_gone_stay_and_are_counted(self, built: Path, town: Town) -> None:
        run(context(built), until="ask")
        (gone, *_) = annotate(context(built), town, "ann")
        without = context(built, f"filter.where=id <> '{gone}'")
        with counted(town):
            run(without, until="tally")
        assert "tally: 1 answers do not count: their photos are not asked now" in said(built)
        before = {path.name: path.read_bytes() for path in (built / "answers").iterdir()}
        assert len(before) == 1
        run(context(built), until="tally")
        assert {path.name: path.read_bytes() for path in (built / "answers").iterdir()} == before

    def test_a_lost_store_loses_no_answer(self, built: Path, town: Town) -> None:
        here, other = context(built), context(built, "retrieve.per_class=2")
        run(here, until="ask")
        for who in ("ann", "bob"):
            annotate(here, town, who)
        assert states(run(here, until="tally"))[7] == "done"
        shutil.rmtree(built / "store")
        assert states(run(other, until="tally"))[7] == "done", "another batch, with the answers to the first"


# ---- a run of two shards and two workers, where something is taken away


def add(folder: Path, thing: str, numbers: range) -> None:
    """Photos of 32 × 32 pixels that differ, half of them of another year."""
    (folder / thing).mkdir(parents=True, exist_ok=True)
    for i in numbers:
        pixels = rng_for(0, thing, i).integers(0, 256, (32, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / thing / f"{2011 + i % 2}-05-{i % 28 + 1:02d}-{i}.png")


def kept(root: Path, *words: str) -> dict[str, Any]:
    """What the run embedded and published, by a command on two workers."""
    done = driftline(*words[:1], str(root), *words[1:])
    assert done.returncode == 0, done.stderr
    stages = json.loads(driftline("status", str(root), "--json").stdout)["stages"]
    return {stage["stage"]: stage["counts"]["kept"] for stage in stages if stage["counts"]}


@pytest.mark.proof("journey")
def test_photos_leave_and_come_where_a_run_has_two_shards_and_two_workers(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for thing in ("car", "bus"):
        add(root / "photos", thing, range(884))
    (root / "driftline.yaml").write_text(photo_config("  per_class: 20"))
    run = ("run", "--workers", "2")
    assert kept(root, *run)["embed"] == 1768
    assert driftline("withdraw", str(root), "photos/car/2011-05-01-0.png").returncode == 0
    assert kept(root, *run, "--set", "release.version=1.0.1")["embed"] == 1767
    fewer = "filter.where=id not like '%7'"
    few = kept(root, *run, "--set", "release.version=2.0.0", "--set", fewer)["embed"]
    assert 1500 < few < 1700
    kept(root, "heal", "--workers", "2")
    add(root / "photos", "car", range(884, 890))
    assert kept(root, "grow", "--workers", "2")["ingest"] == 1774
