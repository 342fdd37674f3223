"""People who annotated are forgotten after a release: no byte names them, and the labels and counts stay."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.annotated import PEOPLE, annotated_copy, answer
from support.console import driftline
from support.helpers import album, photo_config
from support.living import context as context_of
from support.small_runs import made

import driftline as dl
from driftline.curate.core.atomic_io import csv_text, read_json, write_text
from driftline.curate.core.errors import BadInput, Busy, MissingFile
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.metadata.withdrawals import today
from driftline.curate.release import Release
from driftline.curate.store.database import open_store
from driftline.curate.validation.answers.answer_store import COLUMNS
from driftline.curate.validation.answers.answers import KEY, hashed
from driftline.curate.validation.answers.stored import FORGOTTEN, deletions, freeze
from driftline.curate.validation.answers.verdicts import VERDICTS
from driftline.curate.validation.asking.batches import NONE
from driftline.pipelines.annotation.batches import open_batch, questions
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.run import leaving
from driftline.pipelines.run.leaving import forget
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.ask import standing_of
from driftline.pipelines.stages.state import INTENT, StageState, folder_of


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


def labels(release: Release) -> list[tuple[Any, ...]]:
    names = ("id", "bucket", "class", "votes", "people", "judges", "agreement", "sha256", "split_0")
    rows = release.table.to_pylist()
    return [tuple(row.get(name) for name in names) for row in rows]


def test_no_byte_names_anybody_and_a_later_release_has_the_same_labels_and_says_so(root: Path) -> None:
    before, listed = labels(Release.open(root)), traces(root)
    assert len(before) > 10
    plan = forget(context_of(root))
    assert traces(root) == listed, "without --yes nothing is deleted"
    assert {Path(place).relative_to(root).as_posix() for place in plan["files"]} == {*listed, KEY}
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
    assert entry["agreement"]["answers"] == 46


def test_only_their_owner_reads_files_with_answers_also_after_they_were_copied(root: Path) -> None:
    def open_to_others() -> list[str]:
        """Files with a name or a hash of one, but the store's."""
        places = [root / name for name in traces(root)]
        return [str(path) for path in places if path.stat().st_mode & 0o077 and path.name != "index.sqlite"]

    assert open_to_others() == [], "as the run wrote them"
    for name in traces(root):
        (root / name).chmod(0o644)  # as a copy by somebody else's tool
    with closing(answer_store_of(context_of(root))) as store:
        store.skip(PEOPLE[0], next(iter(store.batch["items"])))
    run(context_of(root), start="tally")
    assert open_to_others() == [], "all are written again, or looked at"


STEPS: tuple[tuple[Any, str], ...] = (
    (leaving, "freeze"),
    (leaving, "sync_folder"),
    (leaving, "delete_answers"),
    (leaving, "_empty_tally"),
    (StageState, "amend"),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[1])
def test_a_kill_at_any_step_loses_no_label_and_the_same_command_goes_on(root, step, monkeypatch):
    stopped(root, monkeypatch, step)
    assert (root / INTENT).is_file()
    forget(context_of(root), yes=True)
    assert traces(root) == []
    (entry,) = deletions(root)
    assert (entry["answers"], len(standing_of(context_of(root)).answered())) == (46, 23)


def test_what_a_kill_left_of_an_export_is_no_answer_and_is_forgotten_too(root: Path) -> None:
    left = root / "answers" / ".partial-1-annotate-x.csv"
    left.write_text("WorkerId\nZoeCanary\n")
    forget(context_of(root), yes=True)
    assert not left.exists()


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
    stopped(root, monkeypatch, (leaving, "delete_answers"))
    assert driftline("status", str(root)).stdout.splitlines()[-1] == (
        f"answers are being deleted; that was interrupted. Go on: driftline forget {root} --yes"
    )
    run(context_of(root))
    assert (traces(root), labels(Release.open(root))) == ([], before)


def test_new_photos_alone_are_asked_then_and_their_answers_count(root: Path) -> None:
    before = labels(Release.open(root))
    forget(context_of(root), yes=True)
    assert driftline("status", str(root)).stdout.splitlines()[-1] == (
        f"answers deleted on {today()}, after release 1.0.0: 46 of 2 people to 23 images; their labels stay"
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


def test_while_a_page_is_open_nothing_is_deleted_and_enough_later_answers_decide(root: Path) -> None:
    context = context_of(root)
    accepted = next(row[0] for row in labels(Release.open(root)))
    own = next(id_ for id_, name in released_ids(root).items() if name == accepted)
    item = next(item for item, id_ in open_batch(context).facts["items"].items() if id_ == own)
    with closing(answer_store_of(context)), pytest.raises(Busy, match="A page of driftline annotate uses"):
        forget(context, yes=True)
    assert forget(context, yes=True)["deleted"]
    with closing(answer_store_of(context)) as store:
        assert store.batch["items"] == {}, "nobody is asked again"
    batch = read_json(folder_of(root, "ask") / "batch.json")["batch"]
    lines = [(item, f"A{who}", who, "Submitted", "", 3, batch, item, NONE, "no", "") for who in ("new", "newer")]
    write_text(root / "answers" / "later.csv", csv_text(COLUMNS, lines))
    run(context)
    assert accepted not in [row[0] for row in labels(Release.open(root))]


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


def test_the_command_lists_first(root: Path) -> None:
    shown = driftline("forget", str(root)).stdout
    assert "to be deleted: 46 answers of 2 people to 23 images; labels and counts stay" in shown
    assert shown.splitlines()[-1] == "Add --yes to delete them."
    assert dl.forget(root, yes=True)["deleted"]
    assert driftline("forget", str(root), "--yes").stdout.splitlines()[0] == "There is nothing to delete."


def test_labels_that_judges_gave_stay_too(tmp_path: Path) -> None:
    root = tmp_path / "run"
    album(root / "photos", 6)
    judges = "judges: [{name: m, kind: clip, margin: 0.0}], skip_people: agreed, audit_share: 0.3"
    crowd = f"{{method: crowd, workers: 2, agree: 2, {judges}}}"
    (root / "driftline.yaml").write_text(photo_config("  per_class: 5", validation=crowd))
    run(context_of(root))
    assert 0 < answer(root) < 25
    while any("because" in entry for entry in run(context_of(root))):
        answer(root)
    before, card = Release.open(root), (Release.open(root).path / "README.md").read_text()
    unseen = next(line for line in card.splitlines() if "No person saw" in line)
    assert "drawn at random, people confirmed" in unseen
    forget(context_of(root), yes=True)
    assert not any("because" in entry for entry in run(context_of(root, "release.version=1.0.1")))
    after = Release.open(root)
    assert labels(after) == labels(before)
    assert unseen in (after.path / "README.md").read_text()


def test_what_stays_does_not_depend_on_the_order_of_the_concepts(tmp_path: Path) -> None:
    row = {
        "id": "a",
        "concept": "bus",
        "decision": "bus",
        "votes": "{}",
        "answers": 3,
        "agreement": 1.0,
        "sensitive": 0,
    }
    for people, options in (({"a": 3}, {"bus": "1", "car": "2"}), ({}, {"car": "2", "bus": "1"})):
        freeze(tmp_path, {}, pa.Table.from_pylist([row], VERDICTS), people, {"a": "5e"}, options)
    assert pq.read_table(tmp_path / FORGOTTEN)["people"].to_pylist() == [3]
