"""Nothing finished is lost: typos, changed settings, outages, kills between two steps, damaged files."""

import hashlib
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.console import python
from support.faults import picture
from support.helpers import album, photo_config
from support.living import context
from support.stand_ins import Answer, Query, StandIn, serve

import driftline as dl
from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.errors import BadConfig, DriftlineError, MissingFile, Unfinished
from driftline.curate.core.run_log import RunLog
from driftline.curate.fetch.run import fetch_shard
from driftline.pipelines.actions.common import context_of_last
from driftline.pipelines.run.living import heal
from driftline.pipelines.run.runner import plan, run, status
from driftline.pipelines.stages.embed import Embed
from driftline.pipelines.stages.state import StageState, beside, folder_of, kept_changes, settle

ALL_DONE = ["done"] * 9


def tree(folder: Path) -> dict[str, str]:
    """Name → SHA-256 of every file."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def states(root: Path, *changes: str) -> list[str]:
    return [entry["state"] for entry in status(context(root, *changes))]


def actions(root: Path, *changes: str) -> dict[str, str]:
    return {p.stage: p.action for p in plan(context(root, *changes))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on own photos; not to be changed."""
    root = tmp_path_factory.mktemp("built") / "run"
    album(root / "photos")
    (root / "driftline.yaml").write_text(photo_config("  per_class: 6"))
    run(context(root))
    assert states(root) == ALL_DONE
    return root


@pytest.fixture
def finished(built: Path, tmp_path: Path) -> Path:
    """A copy of it; photos stay where they are, their paths are in the tables."""
    shutil.copytree(built, tmp_path / "run")
    return tmp_path / "run"


class TestTypos:
    @pytest.mark.parametrize("change", [  # 11 equal buckets, and buckets.unlabelled names the twelfth
        "embed.model=ViT-B-33", "embed.weights=missing.pt", "embed.from=nowhere", "filter.where=selec",
        "filter.withdrawn=missing.csv", "buckets.kind=cuts", "buckets.kind=equal", "collection.path=nowhere",
        "validation.gold=missing.csv", "release.judgement=missing.md", "release.previous=nowhere",
        "release.withdrawn=missing.csv",
    ])  # fmt: skip
    def test_a_setting_that_cannot_work_leaves_every_byte(self, change: str, finished: Path) -> None:
        changes = [change]
        if change.startswith("embed.weights"):
            changes.append("embed.model=RN50")
        if change == "buckets.kind=equal":
            changes.append("buckets.unlabelled=[11]")
        before = tree(finished / "stages")
        with pytest.raises(DriftlineError):
            run(context(finished, *changes))
        assert tree(finished / "stages") == before
        assert states(finished) == ALL_DONE

    def test_settings_of_a_late_stage_are_checked_before_an_early_one_works(self, finished: Path) -> None:
        with pytest.raises(DriftlineError):
            run(context(finished, "filter.where=title IS NOT NULL", "release.judgement=missing.md"))
        assert states(finished) == ALL_DONE


def test_a_path_that_does_not_exist_is_named_in_full_from_the_files_folder(finished, monkeypatch):
    monkeypatch.chdir(finished.parent)
    with pytest.raises(MissingFile, match=f"There is no folder {finished}/albums/mine"):
        run(context(Path(finished.name), "collection.path=albums/mine"))


class TestSwap:
    def test_old_output_is_there_until_the_new_one_is_complete(self, finished, monkeypatch):
        folder = folder_of(finished, "embed")
        before = tree(folder)
        seen = []

        def broken(self: Embed, inputs: Any, out: Path) -> Any:
            seen.append(out)
            raise BadConfig("broken")

        monkeypatch.setattr(Embed, "run", broken)
        with pytest.raises(BadConfig, match="broken"):
            run(context(finished, "embed.batch=7"))
        assert seen == [beside(folder, "next")]
        assert tree(folder) == before
        monkeypatch.undo()
        run(context(finished, "embed.batch=7"))
        assert states(finished, "embed.batch=7") == ALL_DONE
        assert sorted(p.name for p in folder.parent.iterdir() if "embed" in p.name) == ["05_embed"]

    def test_unfinished_new_output_is_continued(self, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = Embed.run

        def killed(self: Embed, inputs: Any, out: Path) -> Any:
            whole(self, inputs, out)
            (out / "encoder.json").unlink()
            raise KeyboardInterrupt

        monkeypatch.setattr(Embed, "run", killed)
        with pytest.raises(KeyboardInterrupt, match="Stopped in embed. Kept: ingest, filter, fetch, .* Go on: drift"):
            run(context(finished, "embed.batch=7"))
        monkeypatch.undo()
        new = beside(folder_of(finished, "embed"), "next")
        part = new / "img_emb" / "img_emb_00000.npy"
        inode = part.stat().st_ino
        assert actions(finished, "embed.batch=7")["embed"] == "resume"
        assert states(finished) == ALL_DONE, "with the old settings nothing has happened"
        run(context(finished, "embed.batch=7"))
        kept = folder_of(finished, "embed") / "img_emb" / "img_emb_00000.npy"
        assert kept.stat().st_ino == inode

    @pytest.mark.parametrize("steps", range(6))
    def test_a_kill_between_any_two_steps_of_the_swap_ends_in_the_new_output(self, steps: int, tmp_path: Path) -> None:
        folder = tmp_path / "05_embed"
        new, old = beside(folder, "next"), beside(folder, "old")
        for place, text in ((folder, "old"), (new, "new")):
            place.mkdir()
            (place / "data").write_text(text)
            (place / "done.json").write_text("{}")
        (new / "begun.json").write_text("{}")
        doings = [lambda: folder.rename(old), lambda: new.rename(folder), lambda: (folder / "begun.json").unlink()]
        doings += [lambda: (old / "done.json").unlink(), lambda: shutil.rmtree(old)]
        for doing in doings[:steps]:
            doing()
        settle(folder)
        assert tree(tmp_path).keys() == {"05_embed/data", "05_embed/done.json"}
        assert (folder / "data").read_text() == "new"

    def test_a_stage_that_was_stopped_twice_counts_all_its_seconds(self, finished: Path) -> None:
        state = StageState(Embed(context(finished, "embed.batch=7")))
        for seconds in (0, 5, 10):
            work, spent = state.begin(False, None)
            assert spent == seconds
            (work / "part").touch()
            os.utime(work / "part", (1000, 1000))
            os.utime(work / "begun.json", (995, 995))

    def test_begun_json_beside_done_json_is_removed(self, finished: Path) -> None:
        before = tree(finished / "stages")
        write_json(folder_of(finished, "embed") / "begun.json", {"fingerprint": "x"})
        run(context(finished))
        assert tree(finished / "stages") == before


class TestIdentity:
    FREE = ("fetch.retries=5", "fetch.timeout=3", "fetch.deadline=9", "fetch.threads=2", "embed.device=cpu")

    @pytest.mark.parametrize("change", FREE)
    def test_what_does_not_change_the_output_repeats_nothing(self, change: str, finished: Path) -> None:
        assert set(actions(finished, change).values()) == {"skip"}

    def test_an_edited_photo_of_the_same_size_is_noticed(self, finished: Path) -> None:
        photo = next((finished / "photos" / "car").glob("*.jpg"))
        data = bytearray(photo.read_bytes())
        data[len(data) // 2] ^= 1
        times = photo.stat()
        photo.write_bytes(bytes(data))
        os.utime(photo, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert states(finished)[0] == "stale"

    def test_an_edited_tar_of_the_same_size_is_noticed_without_verify(self, finished: Path) -> None:
        tar = folder_of(finished, "fetch") / "00000.tar"
        data = bytearray(tar.read_bytes())
        data[len(data) // 2] ^= 1
        tar.write_bytes(bytes(data))
        assert states(finished)[2] == "damaged"

    def test_a_tar_with_a_new_date_is_as_it_was(self, finished: Path) -> None:
        os.utime(folder_of(finished, "fetch") / "00000.tar")
        assert states(finished) == ALL_DONE

    def test_a_new_date_of_a_photo_changes_nothing(self, finished: Path) -> None:
        os.utime(next((finished / "photos" / "car").glob("*.jpg")))
        assert states(finished) == ALL_DONE


class TestConfirmation:
    def slow(self, root: Path, stage: str, seconds: float) -> None:
        """As if a stage had taken long; seconds are no part of any identity."""
        mark = folder_of(root, stage) / "done.json"
        write_json(mark, read_json(mark) | {"seconds": seconds})

    def test_work_that_is_repeated_is_announced(self, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.slow(finished, "embed", 90.0)
        loud = replace(context(finished, "embed.batch=7"), run_log=RunLog())
        run(loud, until="embed")
        assert "embed (settings or inputs changed, 2 min last time)" in capsys.readouterr().err


class Shop(StandIn):
    """Photos at /N; while `open` is False, connections are closed without an answer."""

    open = True
    asked = 0

    def fault(self, method: str, path: str) -> str | None:
        return None if self.open else "drop"

    def reply(self, method: str, path: str, query: Query, headers: Any, body: bytes) -> Answer:
        self.asked += 1
        number = int(path.strip("/"))
        return 404 if number % 10 == 9 else 200, picture(seed=number % 50), {}


@pytest.fixture
def shop() -> Iterator[Shop]:
    with serve(Shop()) as running:
        yield running


@pytest.fixture
def web(shop: Shop, tmp_path: Path) -> Path:
    """A run on 40 photos behind addresses, in shards of ten."""
    root = tmp_path / "web"
    root.mkdir()
    lines = [f"{shop.address}/{i},20{10 + i % 3}-05-01" for i in range(40)]
    (root / "photos.csv").write_text("url,day\n" + "\n".join(lines) + "\n")
    source = "{source: delimited, path: photos.csv, columns: {url: url, uploaded: day}}"
    text = photo_config("  per_class: 6", collection=source)
    (root / "driftline.yaml").write_text(text + "fetch: {shard_size: 10, retries: 0, backoff: 0, threads: 2}\n")
    return root


def lose_after_two_shards(web: Path, shop: Shop) -> None:
    """Fetch while the server goes after the first two shards."""
    whole = fetch_shard

    def then_closed(one: Any) -> Any:
        shop.open = one.number < 2
        return whole(one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("driftline.curate.fetch.run.fetch_shard", then_closed)
        with pytest.raises(Unfinished):
            run(context(web), until="fetch")


class TestOutage:
    def faults(self, root: Path) -> list[str | None]:
        found: list[str | None] = pq.read_table(folder_of(root, "fetch") / "index.parquet")["fault"].to_pylist()
        return found

    def test_an_outage_is_no_result_and_the_same_command_goes_on(self, web: Path, shop: Shop) -> None:
        shop.open = False
        with pytest.raises(Unfinished, match=r"connection_failed .*an outage, not a result.*The same command"):
            run(context(web), until="fetch")
        assert states(web)[2] == "unfinished"
        assert "outage" in status(context(web))[2]["note"]
        shop.open = True
        run(context(web), until="fetch")
        assert Counter(self.faults(web)) == {None: 36, "http_404": 4}
        assert shop.asked == 40

    def test_good_shards_and_good_photos_stay(self, web: Path, shop: Shop) -> None:
        lose_after_two_shards(web, shop)
        folder = folder_of(web, "fetch")
        before = {n: (folder / f"0000{n}.tar").stat().st_ino for n in range(2)}
        shop.open, shop.asked = True, 0
        run(context(web), until="fetch")
        assert shop.asked == 20, "only the misses are asked for again"
        assert {n: (folder / f"0000{n}.tar").stat().st_ino for n in range(2)} == before

    def test_finished_photos_outlive_a_changed_setting_during_an_outage(self, web: Path, shop: Shop) -> None:
        run(context(web), until="fetch")
        before = tree(folder_of(web, "fetch"))
        shop.open = False
        with pytest.raises(Unfinished):
            run(context(web, "fetch.max_edge=900", "store.use=false"), until="fetch")
        assert tree(folder_of(web, "fetch")) == before
        run(context(web, "fetch.retries=3"), until="fetch")
        assert tree(folder_of(web, "fetch")) == before

    def test_a_fetch_that_an_outage_stopped_is_healed(self, web: Path, shop: Shop) -> None:
        lose_after_two_shards(web, shop)
        shop.open, shop.asked = True, 0
        counts = heal(context(web), ["network"])
        assert shop.asked == 20, "good shards and photos stay"
        assert (counts["healed"], counts["vanished"]) == (18, {"http_404": 4})
        assert states(web)[2] == "done"

    def test_dead_addresses_are_a_result_if_asked(self, web: Path, shop: Shop) -> None:
        run(context(web), until="filter")
        shop.open = False
        with pytest.raises(DriftlineError, match="kept none of 40"):
            run(context(web, "fetch.outage=1"), until="fetch")


class TestDamage:
    @pytest.mark.parametrize("verify", [False, True])
    @pytest.mark.parametrize("how", ["lost", "cut"])
    def test_a_lost_or_cut_file_is_named_and_repaired(self, how: str, verify: bool, finished: Path) -> None:
        before = tree(finished / "stages")
        file = folder_of(finished, "embed") / "img_emb" / "img_emb_00000.npy"
        file.unlink() if how == "lost" else file.write_bytes(file.read_bytes()[:-1])
        entry = status(context(finished), verify)[4]
        assert entry["state"] == "damaged"
        assert f"img_emb/img_emb_00000.npy missing or changed. Repair: driftline run {finished}" in entry["note"]
        run(context(finished))
        after = tree(finished / "stages")
        assert {n for n in before if before[n] != after.get(n)} <= {"05_embed/done.json"}
        assert states(finished) == ALL_DONE

    def test_changed_bytes_are_found_by_verify(self, finished: Path) -> None:
        file = folder_of(finished, "fetch") / "00000.tar"
        data, times = bytearray(file.read_bytes()), file.stat()
        data[5000] ^= 1
        file.write_bytes(bytes(data))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # with a new date it is found without
        assert states(finished) == ALL_DONE
        entries = status(context(finished), verify=True)
        assert entries[2]["state"] == "damaged"
        assert f"00000.tar missing or changed. Repair: driftline heal {finished}" in entries[2]["note"]
        run(replace(context(finished), verify=True))
        assert {entry["state"] for entry in status(context(finished), verify=True)} == {"done"}

    @pytest.mark.parametrize(("change", "asked"), [("store.use=false", 10), ("store.use=true", 0)])
    def test_good_shards_are_not_fetched_again(self, web: Path, shop: Shop, change: str, asked: int) -> None:
        run(context(web), until="fetch")
        (folder_of(web, "fetch") / "00002.tar").unlink()
        shop.asked = 0
        assert actions(web)["fetch"] == "repair"
        run(context(web, change), until="fetch")
        assert shop.asked == asked

    @pytest.mark.parametrize("stage", ["ingest", "fetch", "publish"])
    def test_a_broken_done_mark_blocks_nothing(self, stage: str, finished: Path) -> None:
        mark = folder_of(finished, stage) / "done.json"
        mark.write_text('{"stage": ')
        position = [entry["stage"] for entry in status(context(finished))].index(stage)
        assert states(finished)[position] == "damaged"
        run(context(finished))
        assert states(finished) == ALL_DONE

    def test_a_broken_done_mark_costs_no_request(self, web: Path, shop: Shop) -> None:
        run(context(web), until="fetch")
        (folder_of(web, "fetch") / "done.json").write_text("")
        shop.asked = 0
        run(context(web), until="fetch")
        assert shop.asked == 0


class TestStatus:
    def test_it_works_when_the_source_is_unplugged(self, finished: Path) -> None:
        (finished / "photos").rename(finished / "elsewhere")
        entries = status(context(finished))
        assert [entry["state"] for entry in entries] == ALL_DONE
        assert "There is no folder" in entries[0]["note"]
        with pytest.raises(MissingFile):
            run(context(finished))

    def test_the_last_runs_changes_are_remembered(self, finished: Path) -> None:
        run(context(finished, "release.per_class=3"))
        assert kept_changes(finished) == ["release.per_class=3"]
        assert [entry["state"] for entry in dl.status(finished)["stages"]] == ALL_DONE
        pages = context_of_last(finished, None, True)  # of browse, annotate, …
        assert (pages.config.release.per_class, pages.changes) == (3, ("release.per_class=3",))
        changes = ("release.per_class=3", "seed=1")
        assert context_of_last(finished, ["seed=1"], True).changes == changes
        assert context_of_last(finished, ["release={}"], True).changes == ("release={}",)
        path = finished / "driftline.yaml"
        path.write_text(path.read_text().replace("release: {per_class: 4", "release: {per_class: 5"))
        assert context_of_last(finished, None, True).config.release.per_class == 5, "the file was edited later"


# root may write everything: without this capability it is a user like others
NOBODY = """
import ctypes, sys
head, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
libc.capget(head, data)
data[0] &= ~(1 << 1)  # CAP_DAC_OVERRIDE
assert libc.capset(head, data) == 0
from driftline.pipelines.cli import main
"""


class TestReadOnly:
    @pytest.fixture
    def locked(self, finished: Path) -> Iterator[Path]:
        """A finished run that its reader may not change."""
        folders = [finished, *(path for path in finished.rglob("*") if path.is_dir())]
        for path in finished.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        finished.chmod(0o555)
        yield finished
        for path in folders:
            path.chmod(0o755)

    def said(self, *words: str) -> subprocess.CompletedProcess[str]:
        return python(f"{NOBODY}sys.argv = ['driftline', *{words!r}]\nmain()\n", Path.cwd())

    def test_it_can_be_looked_at(self, locked: Path) -> None:
        before = tree(locked)
        stages = json.loads(self.said("status", str(locked), "--json").stdout)["stages"]
        assert [stage["state"] for stage in stages] == ALL_DONE
        assert "It is in the release." in self.said("trace", str(locked), "car/2010-05-01.jpg").stdout
        assert self.said("status", str(locked), "--dropped").returncode == 0
        assert tree(locked) == before

    def test_a_run_says_so_in_one_sentence(self, locked: Path) -> None:
        done = self.said("run", str(locked))
        assert done.returncode == 1
        assert done.stderr.startswith(f"driftline: {locked} cannot be written. Here driftline status")
        assert len(done.stderr.splitlines()) == 1
