"""People who annotated are forgotten after a release: no byte names them, and the labels and counts stay."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.annotated import PEOPLE, annotated_copy, answer, context_of
from support.console import driftline
from support.helpers import album, photo_config
from support.small_runs import made

import driftline as dl
from driftline.curate.core.atomic_io import write_json, write_text
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile, UnknownName
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.metadata.withdrawals import today
from driftline.curate.release import Release
from driftline.curate.store.database import open_store, register_run
from driftline.curate.validation.answers.answers import KEY, NOBODY, hashed
from driftline.curate.validation.answers.standing import deletions
from driftline.curate.validation.asking.batches import NONE
from driftline.pipelines.annotation.answer_store import AnswerStore
from driftline.pipelines.annotation.batches import open_batch, prolific_action
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.forecast.again import questions
from driftline.pipelines.run import deleting, one_person
from driftline.pipelines.run.forgetting import forget
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.person_files import files_with
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.state import INTENT, StageState, folder_of
from driftline.pipelines.stages.ask import standing_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return annotated_copy(tmp_path)


def traces(root: Path) -> list[str]:
    """Files that hold something of a person: a name, a comment, a submission, or a hash of a name."""
    key = (root / KEY).read_text() if (root / KEY).is_file() else ""
    return holds(root, "Canary", *((hashed(name, key) for name in PEOPLE) if key else ()))


def holds(root: Path, *words: str) -> list[str]:
    """Files below a run folder with one of these words, in bytes or rows."""
    places = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        rows = str(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else b""
        content = path.read_bytes() + rows
        places += [path.relative_to(root).as_posix()] if any(word.encode() in content for word in words) else []
    return places


def agreement_rows(root: Path) -> list[dict[str, Any]]:
    """The facts of each worker."""
    rows: list[dict[str, Any]] = json.loads((folder_of(root, "tally") / "agreement.json").read_text())["workers"]
    return rows


def labels(release: Release) -> list[tuple[Any, ...]]:
    names = ("id", "bucket", "class", "votes", "people", "judges", "agreement", "sha256", "split_0")
    rows = release.table.to_pylist()
    return [tuple(row.get(name) for name in names) for row in rows]


def test_no_byte_names_anybody_and_a_later_release_has_the_same_labels_and_says_so(root: Path) -> None:
    before, listed = labels(Release.open(root)), traces(root)
    assert len(before) > 10
    plan = forget(context_of(root))
    assert traces(root) == listed, "without --yes nothing is deleted"
    assert {Path(place["file"]).relative_to(root).as_posix() for place in plan["files"]} == {*listed, KEY}
    keyed = {name: hashed(name, (root / KEY).read_text()) for name in PEOPLE}
    done = forget(context_of(root), yes=True)
    assert (done["answers"], done["people"], done["images"]) == (46, 2, 23)
    everything = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert [word for word in ("Canary", *keyed.values()) if word.encode() in everything] == []
    assert labels(Release.open(root)) == before, "the release of before stays"

    run(context_of(root, "release.version=1.0.1"))
    after = Release.open(root)
    assert labels(after) == before
    assert traces(root) == []
    card = (after.path / "README.md").read_text()
    assert "after release 1.0.0: the 46 answers of 2 people to 23 images were deleted" in card
    assert "2 workers gave 46 answers; Fleiss' κ" in card
    (entry,) = after.facts["provenance"]["agreement"]["deleted"]
    cells = {(cell["concept"], cell["bucket"]): cell for cell in entry["cells"]}
    assert cells["car", 1] == {
        "concept": "car", "bucket": 1, "asked": 4, "accepted": 3, "answers": 8, "agreement": 0.875,
    }  # fmt: skip


STEPS: tuple[tuple[Any, str], ...] = (
    (deleting, "keep_verdicts"),
    (AnswerStore, "delete_all"),
    (deleting, "sync_folder"),
    (deleting, "write_text"),
    (deleting, "delete_answers"),
    (deleting, "write_parquet"),
    (StageState, "amend"),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[1])
def test_a_kill_at_any_step_loses_no_label_and_the_same_command_goes_on(
    root: Path, step: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(root, monkeypatch, step)
    assert (root / INTENT).is_file()
    forget(context_of(root), yes=True)
    assert traces(root) == []
    (entry,) = deletions(root)
    assert (entry["answers"], len(standing_of(context_of(root)).answered())) == (46, 23)


class Killed(BaseException):
    pass


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def stopped(root: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str]) -> None:
    """A deletion that ends where it would do this step."""
    monkeypatch.setattr(*step, killed)
    context = context_of(root)
    with pytest.raises(Killed):
        forget(context, yes=True)
    monkeypatch.undo()


def test_a_run_finishes_what_was_killed_before_it_does_anything(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = labels(Release.open(root))
    stopped(root, monkeypatch, (AnswerStore, "delete_all"))
    assert driftline("status", str(root)).stdout.splitlines()[-1] == (
        f"answers are being deleted; that was interrupted. Go on: driftline forget {root} --yes"
    )
    run(context_of(root))
    assert (traces(root), labels(Release.open(root))) == ([], before)


def test_new_photos_alone_are_asked_then_and_their_answers_count(root: Path) -> None:
    before = labels(Release.open(root))
    forget(context_of(root), yes=True)
    assert driftline("status", str(root)).stdout.splitlines()[-1] == (
        f"answers deleted on {today()}, after release 1.0.0: 46 of 2 people to 23 images; their verdicts stay"
    )
    album(root / "photos", 6)
    more = ("retrieve.per_class=6", "release.per_class=6")
    asked = questions(context_of(root, *more))
    assert asked is not None
    assert asked["images"] == 0, "what plan and grow --max-usd count"
    grown = grow(context_of(root, *more))
    assert grown["state"] == "waiting"
    new = set(open_batch(context_of(root, *more)).facts["items"].values())
    assert 0 < len(new) <= 13
    assert len([id_ for id_ in new if "05-05" in id_ or "05-06" in id_]) >= 12
    answer(root, *more)
    with pytest.raises(BadInput, match="holds answers that came after the last run"):
        forget(context_of(root, *more), yes=True)
    run(context_of(root, *more))
    after = labels(Release.open(root))
    assert {row[0]: row[2:4] for row in before}.items() <= {row[0]: row[2:4] for row in after}.items()
    assert len(after) > len(before)
    assert forget(context_of(root, *more), yes=True)["answers"] == 2 * len(new)
    run(context_of(root, *more))
    assert [row[:4] for row in labels(Release.open(root))] == [row[:4] for row in after]
    assert len(deletions(root)) == 2


def test_an_open_page_goes_on_and_enough_new_answers_decide(root: Path) -> None:
    context = context_of(root)
    accepted = next(row[0] for row in labels(Release.open(root)))
    own = next(id_ for id_, name in released_ids(root).items() if name == accepted)
    with closing(answer_store_of(context)) as store:
        item = next(item for item, id_ in store.batch["items"].items() if id_ == own)
        forget(context, yes=True)
        for name in ("new", "newer"):
            store.answer(name, item, [NONE], False, 1)
    run(context)
    assert accepted not in [row[0] for row in labels(Release.open(root))]
    with closing(answer_store_of(context)) as store:
        assert store.batch["items"] == {}, "nobody is asked again"


def test_a_study_whose_answers_were_deleted_is_not_collected_again(root: Path) -> None:
    forget(context_of(root), yes=True)
    assert (root / "prolific" / "study-b1.jsonl").read_text() == '{"format": 1}\n{"step": "study", "result": "s1"}\n'
    for action in ("collect", "status", "bonus"):
        with pytest.raises(BadConfig, match=f"were deleted on {today()}.*Prolific keeps its own copy"):
            prolific_action(context_of(root), action)


def test_what_others_answered_in_the_same_store_before_does_not_count_again(root: Path) -> None:
    before = labels(Release.open(root))
    with open_store(root / "store") as store, store.transaction() as base:
        base.execute("UPDATE answers SET batch = 'other', labels = '[\"none\"]', time = 1")  # of another run by now
    forget(context_of(root), yes=True)
    run(context_of(root))
    assert labels(Release.open(root)) == before


def test_a_run_without_a_release_or_without_people_has_nothing_to_forget(root: Path) -> None:
    shutil.rmtree(folder_of(root, "publish"))
    with pytest.raises(MissingFile, match="has no release yet"):
        forget(context_of(root))
    finished = made("finished")
    with pytest.raises(MissingFile, match="has no answers of people"):
        forget(context_of(finished))


def test_the_command_lists_first_and_names_other_runs_with_the_store(root: Path) -> None:
    with open_store(root / "store") as store:
        register_run(store, root.parent / "other")
    shown = driftline("forget", str(root)).stdout
    assert "to be deleted: 46 answers of 2 people to 23 images; verdicts and counts stay" in shown
    assert f"{root.parent / 'other'} uses the same store: forget there first" in shown
    assert shown.splitlines()[-2] == "Add --yes to delete them."
    assert dl.forget(root, yes=True)["deleted"]
    assert driftline("forget", str(root), "--yes").stdout.splitlines()[0] == "There is nothing to delete."


@pytest.mark.parametrize("person", PEOPLE)
def test_one_person_is_forgotten_and_nothing_else_changes(root: Path, person: str) -> None:
    """One answered on the page, one in results of a crowd."""
    (other,) = {*PEOPLE} - {person}
    key = (root / KEY).read_text()
    write_json(root / "annotate" / "b.alarms.json", [[person, other], [person, other, "third"]])
    before = Release.open(root)
    rows = {row["worker"]: row for row in agreement_rows(root)}
    listed = holds(root, person, hashed(person, key))
    plan = forget(context_of(root), person=person)
    assert holds(root, person, hashed(person, key)) == listed, "without --yes nothing is deleted"
    assert {*listed} <= {Path(place["file"]).relative_to(root).as_posix() for place in plan["files"]}
    done = forget(context_of(root), yes=True, person=person)
    assert (done["answers"], done["people"], done["images"]) == (23, 1, 23)
    for _ in range(2):  # at once, and after the next run
        everything = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
        assert [word for word in (person, hashed(person, key)) if word.encode() in everything] == []
        assert holds(root, person, hashed(person, key)) == []
        assert agreement_rows(root) == [rows[hashed(other, key)]]
        run(context_of(root, "release.version=1.0.1"))
    after = Release.open(root)
    assert labels(after) == labels(before)
    facts = [release.facts["provenance"]["agreement"] for release in (before, after)]
    others = {"deleted": None, "median_seconds": None}  # no time of a vote stays
    assert {**facts[1], **others} == {**facts[0], **others}
    card = (after.path / "README.md").read_text()
    assert "one person who answered was forgotten" in card
    assert "2 workers gave 46 answers" in card
    assert holds(root, other) != []
    votes = pq.read_table(folder_of(root, "tally") / "answers.parquet").to_pylist()
    nobody = [row for row in votes if row["worker"].startswith(NOBODY)]
    assert len({row["worker"] for row in nobody}) == len(nobody) == 23
    assert {(row["assignment"], row["seconds"], row["time"]) for row in nobody} == {(None, None, None)}
    with closing(answer_store_of(context_of(root))) as store:
        assert store.following("new") == [], "nothing is asked again"
    assert forget(context_of(root), yes=True)["answers"] == 46
    assert traces(root) == []


STEPS_OF_ONE: tuple[tuple[Any, str], ...] = (
    (one_person, "write_text"),
    (AnswerStore, "delete_all"),
    (one_person, "replace"),
    (one_person, "anonymise"),
    (one_person, "keep_record"),
    (one_person, "write_parquet"),
    (StageState, "amend"),
)


@pytest.mark.parametrize("step", STEPS_OF_ONE, ids=lambda step: step[1])
def test_a_kill_while_one_person_is_forgotten_loses_no_vote(
    root: Path, step: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, before = (root / KEY).read_text(), labels(Release.open(root))
    monkeypatch.setattr(*step, killed)
    with pytest.raises(Killed):
        forget(context_of(root), yes=True, person=PEOPLE[1])
    monkeypatch.undo()
    run(context_of(root, "release.version=1.0.1"))
    assert holds(root, PEOPLE[1], hashed(PEOPLE[1], key), INTENT) == []
    assert not (root / INTENT).exists()
    assert labels(Release.open(root)) == before
    assert len(deletions(root)) == 1


def test_one_person_who_is_unknown_or_whose_answers_are_weighted_is_refused(root: Path) -> None:
    with pytest.raises(UnknownName, match=r"holds nothing of 'ZoeCanari'\. Did you mean 'ZoeCanary'"):
        dl.forget(root, person="ZoeCanari")
    with pytest.raises(BadConfig, match="validation.aggregate is one-coin: each answer is weighted"):
        forget(context_of(root, "validation.aggregate=one-coin"), person=PEOPLE[0])
    shown = driftline("forget", str(root), "--person", PEOPLE[0]).stdout.splitlines()
    assert shown[-2:] == [
        "to be deleted: 23 answers of 1 people to 23 images; each stays as a vote of nobody",
        "Add --yes to delete them.",
    ]
    assert driftline("forget", str(root), "--person", PEOPLE[0], "--yes").returncode == 0
    assert driftline("status", str(root)).stdout.splitlines()[-1] == (
        f"one person forgotten on {today()}, after release 1.0.0: 23 answers to 23 images are votes of nobody"
    )


def test_of_each_file_only_what_is_of_the_person_goes(root: Path) -> None:
    task: dict[str, Any] = {"data": {"batch": "b", "item": "i"}, "drafts": [], "annotations": [
        {"id": 1, "completed_by": "bob", "result": []}, {"id": 2, "completed_by": {"email": "eve"}, "result": []},
    ]}  # fmt: skip
    quoted = 'WorkerId,Input.batch,Input.item,Answer.labels\r\nbob,b,i,car\r\neve,b,i,"a\r\nb"\r\n'
    write_text(root / "answers" / "more.csv", quoted)
    write_json(root / "answers" / "studio.json", [task])
    write_text(root / "annotate" / "links-b.csv", "participant,link\np1,http://h\nbob,http://h/2\n")
    rest = {path.name: text for path, _, text in files_with(context_of(root), ["bob", "label-studio bob"], ())}
    assert rest.keys() == {"more.csv", "studio.json", "links-b.csv"}
    assert rest["more.csv"] == quoted.replace("bob,b,i,car\r\n", "")
    assert rest["links-b.csv"] == "participant,link\np1,http://h\n"
    (left,) = json.loads(rest["studio.json"])
    assert left == {"data": task["data"], "annotations": task["annotations"][1:]}
    rest = {path.name: text for path, _, text in files_with(context_of(root), ["nobody else"], ["CanarySubmission"])}
    assert rest == {"study-b1.jsonl": '{"format": 1}\n{"step": "study", "result": "s1"}\n'}


def test_labels_that_judges_gave_stay_too(tmp_path: Path) -> None:
    root = tmp_path / "run"
    album(root / "photos", 6)
    judges = "judges: [{name: m, kind: margin}], skip_people: confident, skip_confidence: 0.6, audit_share: 0.3"
    text = photo_config("  per_class: 5").replace(
        "{method: catalogue}", f"{{method: crowd, workers: 2, agree: 2, {judges}}}"
    )
    (root / "driftline.yaml").write_text(text)
    run(context_of(root))
    assert 0 < answer(root) < 25
    while any("because" in entry for entry in run(context_of(root))):
        answer(root)
    before, card = Release.open(root), (Release.open(root).path / "README.md").read_text()
    unseen = next(line for line in card.splitlines() if "No person saw" in line)
    forget(context_of(root), yes=True)
    assert not any("because" in entry for entry in run(context_of(root)))
    after = Release.open(root)
    assert labels(after) == labels(before)
    assert unseen in (after.path / "README.md").read_text()
