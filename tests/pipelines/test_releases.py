"""What a release holds: rounds until it is full, what is kept beside it, what was taken back, and what changed."""

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.helpers import photo_config
from support.living import context as context_of
from support.living import labels_of, reply

import driftline as dl
from driftline.curate.core.atomic_io import read_json, write_text
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, IntegrityError, MissingFile, Shortage
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.images.shards import read_tar
from driftline.curate.metadata.released_ids import mapped, released_ids
from driftline.curate.metadata.withdrawals import public_digest
from driftline.curate.release import Release
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.run.runner import run, status
from driftline.pipelines.stages.state import folder_of

CONFIG = photo_config("  per_class: 3\n  overlap: allow", short="reopen")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six cars and six buses of each of two years, and two lamps; retrieval asks about three of each first."""
    out = tmp_path_factory.mktemp("releases") / "run"
    for year in (2010, 2011):
        for thing, n in (("car", 6), ("bus", 6), ("lamp", 2)):
            for i in range(n):
                (out / "photos" / thing).mkdir(parents=True, exist_ok=True)
                exif = Image.Exif()
                exif[0x010E] = "at home"
                picture = photo([thing], 0.2, rng_for(year, thing, i))
                picture.save(out / "photos" / thing / f"{year}-05-0{i + 1}.jpg", exif=exif)
    write_text(out / "driftline.yaml", CONFIG)
    run(context_of(out), until="retrieve")
    return out


@pytest.fixture
def folder(photos: Path, tmp_path: Path) -> Path:
    """The same, of the test's own."""
    return Path(shutil.copytree(photos, tmp_path / "run"))


CROWD = ("validation.method=crowd", "validation.workers=2")


class TestRounds:
    def test_candidates_are_asked_until_every_class_is_full(self, folder: Path) -> None:
        run(context_of(folder))
        asked = pq.read_table(folder_of(folder, "tally") / "asked.parquet")
        assert Counter(asked["round"].to_pylist())[1] == 12
        assert max(asked["round"].to_pylist()) >= 2
        release = Release.open(folder)
        assert set(Counter(zip(release.table["bucket"].to_pylist(), release.table["class"].to_pylist(),
                               strict=True)).values()) == {4}  # fmt: skip

    def test_without_it_too_few_is_an_error_that_names_it(self, folder: Path) -> None:
        with pytest.raises(Shortage, match=r"3 of 4[\s\S]*release\.short: reopen"):
            run(context_of(folder, "release.short=fail"))

    def test_people_are_asked_in_further_batches_each_waiting_for_its_answers(self, folder: Path) -> None:
        context = context_of(folder, *CROWD)
        truth = labels_of(folder)
        rounds = []
        for _ in range(6):
            states = {e["stage"]: e["state"] for e in run(context)}
            if states["publish"] == "done":
                break
            assert states["ask"] == "waiting"
            rounds.append(open_batch(context).number)
            reply(context, truth)
        assert rounds == sorted(set(rounds))
        assert len(rounds) >= 2
        answers = pq.read_table(folder_of(folder, "tally") / "answers.parquet")
        verdicts = pq.read_table(folder_of(folder, "tally") / "labels.parquet")
        assert len(set(answers["id"].to_pylist())) == len(set(verdicts["id"].to_pylist()))

    def test_rounds_go_on_after_new_photos_and_a_wider_first_round(self, folder: Path) -> None:
        """The batch of new photos stands before the second round, which the page then opens; photos of a later round
        that the first one asks about now are counted once."""
        truth: dict[str, str] = {}
        answered: set[str] = set()
        for wider in ((), ("retrieve.per_class=4", "release.per_class=5"), ("release.per_class=2",)):
            context = context_of(folder, *CROWD, *wider)
            for _ in range(8):
                entries = run(context)
                if entries[-1]["state"] == "done":
                    break
                truth |= labels_of(folder)
                answered |= set(open_batch(context).facts["items"].values())
                reply(context, truth)
            assert entries[-1]["state"] == "done"
            counts = pq.read_table(folder_of(folder, "tally") / "answers.parquet")["id"].to_pylist()
            assert set(counts) == answered, "also where fewer rounds would do"
            for i in range(12):
                thing = ("car", "bus")[i % 2]
                photo([thing], 0.2, rng_for(2012, i)).save(folder / "photos" / thing / f"2012-05-{i + 1:02d}.jpg")

    def test_no_image_is_asked_twice_and_the_batches_come_out_the_same_again(self, folder, tmp_path):
        context = context_of(folder, *CROWD)
        run(context)
        reply(context, labels_of(folder))
        run(context)
        second = open_batch(context)
        assert second.number == 2
        first = read_json(folder_of(folder, "ask") / "batch.json")
        assert not set(first["items"].values()) & set(second.facts["items"].values())
        before = {p.name: p.read_bytes() for p in second.folder.rglob("*") if p.is_file()}
        shutil.rmtree(second.folder)
        run(context)
        assert {p.name: p.read_bytes() for p in open_batch(context).folder.rglob("*") if p.is_file()} == before

    def test_an_unanswered_round_can_be_left_out(self, folder: Path) -> None:
        context = context_of(folder, *CROWD)
        run(context)
        reply(context, labels_of(folder))
        run(context)
        run(context_of(folder, *CROWD, "validation.accept_incomplete=true"))
        assert set(pq.read_table(folder_of(folder, "tally") / "asked.parquet")["round"].to_pylist()) == {1}
        assert Release.open(folder).table.num_rows > 0

    def test_answers_of_another_run_are_named_whatever_the_round(self, folder, capsys):
        context = replace(context_of(folder, *CROWD), run_log=RunLog())
        run(context)
        reply(context, labels_of(folder))
        write_text(folder / "answers" / "z.csv", "Input.batch,Input.item,Answer.labels\nelse,x,car\n")
        capsys.readouterr()
        run(context)
        assert open_batch(context).number == 2
        assert "z.csv, line 2: Input.batch is 'else', which this run never asked" in capsys.readouterr().err


class TestGold:
    def test_known_answers_are_hidden_in_the_batch_and_judge_the_workers(self, folder: Path) -> None:
        truth = labels_of(folder)
        asked = set(pq.read_table(folder_of(folder, "retrieve") / "candidates.parquet",
                                  filters=[("fate", "=", "kept")])["id"].to_pylist())  # fmt: skip
        extra = sorted(i for i, t in truth.items() if i not in asked and t in ("car", "bus"))[:2]
        lines = ["id,labels", *(f"{i},{truth[i]}" for i in extra)]
        write_text(folder / "gold.csv", "\n".join(lines) + "\n")
        gold = ("validation.gold=gold.csv", "validation.gold_share=0.2", "release.short=fewer")
        context = context_of(folder, *CROWD, *gold)
        run(context)
        batch = open_batch(context)
        assert {batch.facts["items"][i] for i in batch.facts["gold"]} == set(extra)
        reply(context, truth)
        run(context)
        told = read_json(folder_of(folder, "tally") / "agreement.json")
        assert [w["gold_right"] for w in told["workers"]] == [1.0, 1.0]
        assert not set(extra) & set(pq.read_table(folder_of(folder, "tally") / "labels.parquet")["id"].to_pylist())
        assert "gold questions, 100.0% were correct" in (Release.open(folder).path / "README.md").read_text()

    def test_a_photo_that_is_not_there_is_named(self, folder: Path) -> None:
        write_text(folder / "gold.csv", "id,labels\nnowhere,car\n")
        with pytest.raises(BadInput, match="'nowhere' the first"):
            run(context_of(folder, *CROWD, "validation.gold=gold.csv"))


def published(folder: Path, *changes: str) -> Release:
    run(context_of(folder, *changes))
    return Release.open(folder)


class TestBeside:
    """What is kept beside the labelled images, and what may not be."""

    def test_the_remainder_is_listed_for_pre_training(self, folder: Path) -> None:
        release = published(folder)
        listed = set(pq.read_table(release.path / "unlabelled.parquet")["id"].to_pylist())
        assert listed == set(mapped(labels_of(folder), released_ids(folder))) - set(release.table["id"].to_pylist())
        release.verify()

    def test_its_images_may_be_kept_too_stripped_like_the_others(self, folder: Path) -> None:
        release = published(folder, "release.unlabelled=images")
        listed = pq.read_table(release.path / "unlabelled.parquet")["id"].to_pylist()
        found = [
            (name, content)
            for tar in sorted((release.path / "unlabelled").glob("*.tar"))
            for name, content in read_tar(tar)
        ]
        assert [n.partition(".")[0] for n, _ in found if n.endswith(".jpg")] == listed
        assert not any(b"at home" in content for _, content in found)
        beside = [json.loads(content) for name, content in found if name.endswith(".json")]
        assert {(side["label"], side["split"]) for side in beside} == {(-1, "unlabelled")}
        release.verify()

    def test_nobody_is_trained_on_what_people_called_sensitive(self, folder: Path) -> None:
        context = context_of(folder, *CROWD, "release.short=fewer", "release.per_class=2")
        run(context)
        truth = labels_of(folder)
        reply(context, truth)
        path = folder / "answers" / f"people-{open_batch(context).number}.csv"
        item, id_ = sorted(open_batch(context).facts["items"].items())[0]
        rows = [row.replace(",no", ",yes") if item in row else row for row in path.read_text().splitlines()]
        write_text(path, "\n".join(rows) + "\n")
        run(context)
        release = Release.open(folder)
        assert id_ not in release.table["id"].to_pylist()
        assert id_ not in pq.read_table(release.path / "unlabelled.parquet")["id"].to_pylist()


class TestTakenBack:
    def test_withdrawn_images_leave_a_digest_and_nothing_else(self, folder: Path) -> None:
        gone = published(folder).table["id"][0].as_py()
        write_text(folder / "withdrawn.csv", f"id\n{gone}\nnever-seen\n")
        release = published(folder, "release.withdrawn=withdrawn.csv", "release.version=1.0.1")
        assert gone not in release.table["id"].to_pylist()
        assert gone not in pq.read_table(release.path / "unlabelled.parquet")["id"].to_pylist()
        digest = public_digest(gone, release.name)
        assert (release.path / "WITHDRAWN.csv").read_text() == f"salt,digest,since\n{release.name},{digest},1.0.1\n"
        assert release.withdrawn([gone, "never-seen", release.table["id"][0].as_py()]) == [gone]
        counts = {e["stage"]: e["counts"] for e in status(context_of(folder))}
        assert counts["publish"]["dropped"]["withdrawn"] == 1
        assert "WITHDRAWN.csv" in (release.path / "README.md").read_text()

    def test_changes_are_listed_and_require_a_version(self, folder: Path, tmp_path: Path) -> None:
        before = published(folder)
        shutil.copytree(before.path, tmp_path / "v1")
        gone = before.table["id"][0].as_py()
        write_text(folder / "withdrawn.csv", f"id\n{gone}\n")
        changes = ("release.withdrawn=withdrawn.csv", f"release.previous={tmp_path / 'v1'}")
        with pytest.raises(BadConfig, match=r"release\.version is 1\.0\.0; the previous release is 1\.0\.0.*at least"):
            published(folder, *changes)
        release = published(folder, *changes, "release.version=2.0.0")
        told = release.facts["changes"]
        assert (told["images"]["withdrawn"], told["images"]["removed"]) == (1, 0)
        assert "| images, withdrawn | 1 |\n" in (release.path / "CHANGES.md").read_text()
        names = [path for path in release.path.rglob("*") if path.is_file() and gone.encode() in path.read_bytes()]
        assert names == [], "nobody can list what was withdrawn"

    def test_the_same_images_again_are_a_patch(self, folder: Path, tmp_path: Path) -> None:
        shutil.copytree(published(folder).path, tmp_path / "v1")
        release = published(folder, f"release.previous={tmp_path / 'v1'}", "release.version=1.0.1")
        assert release.facts["changes"]["level"] == "patch"
        assert (release.path / "CHANGES.md").read_text().endswith("|---|---|\n")


class TestLicences:
    def test_images_under_another_licence_are_dropped_and_counted(self, folder: Path) -> None:
        with pytest.raises(Shortage):
            published(folder, "release.licences=[Attribution License]", "release.short=fewer")


class TestCard:
    def test_a_person_writes_the_sections_of_the_card(self, folder: Path) -> None:
        told = "\n\n".join(
            f"**{part}.** Said."
            for part in ("Motivation", "Intended uses", "Uses to avoid", "Known biases", "People", "Social impact",
                         "Maintenance")
        )  # fmt: skip
        write_text(folder / "judgement.md", told + "\n\nAnd one thing more.\n")
        release = published(folder, "release.judgement=judgement.md")
        card = (release.path / "README.md").read_text()
        assert "Not written yet" not in card
        assert "And one thing more." in card

    def test_drift_and_scores_are_in_the_card(self, folder: Path) -> None:
        release = published(folder)
        card = (release.path / "README.md").read_text()
        assert "| buckets later | 1 |" in card
        assert "| test buckets | 1 |" in card
        least, *_, greatest = release.facts["scores"]["car"]
        assert f"| car | a car | {least} |" in card
        assert least < greatest


class TestHurt:
    def test_a_shard_that_is_missing_at_publication_is_made_again(self, folder: Path) -> None:
        context = context_of(folder)
        run(context, until="tally")
        (folder_of(folder, "fetch") / "00000.tar").unlink()
        run(context)
        assert {entry["state"] for entry in status(context)} == {"done"}

    def test_a_damaged_image_at_publication_is_named(self, folder: Path) -> None:
        context = context_of(folder)
        run(context, until="tally")
        shard = folder_of(folder, "fetch") / "00000.tar"
        before = shard.stat()
        shard.write_bytes(bytes(byte ^ 1 for byte in shard.read_bytes()))
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))  # a disk's fault: a run sees that a file is newer
        with pytest.raises(DriftlineError, match=r"00000\.tar"):
            run(context)

    def test_a_place_that_is_not_there_is_said_before_its_formats(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match="There is no .*nowhere. Expected a run folder, a release or"):
            dl.export(tmp_path / "nowhere", format="arrays", out=tmp_path / "out")

    def test_a_file_that_does_not_belong_to_the_release_is_named(self, folder: Path, tmp_path: Path) -> None:
        release = published(folder)
        shutil.copytree(release.path, tmp_path / "r")
        (tmp_path / "r" / "shards" / "bucket_2010-00009.tar").write_bytes(b"of another release")
        with pytest.raises(IntegrityError, match=r"bucket_2010-00009\.tar.*does not belong to this release"):
            Release.open(tmp_path / "r").verify()
