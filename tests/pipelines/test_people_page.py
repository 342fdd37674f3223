"""docs/guides/people.md, sentence by sentence: each has a check here, and a sentence without one fails."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.annotated import PEOPLE, annotated, annotated_copy, context_of
from support.console import driftline

from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.export import EXPORTS
from driftline.curate.release import Release
from driftline.curate.store.database import open_store, register_run
from driftline.curate.validation.answers.answers import KEY, hashed, worker_key
from driftline.curate.validation.answers.standing import deletions
from driftline.eval.run import evaluate
from driftline.pipelines.annotation.answer_store import AnswerStore
from driftline.pipelines.annotation.batches import prolific_action
from driftline.pipelines.annotation.server import answer_store_of, application
from driftline.pipelines.annotation.study import Participants, Study, alarms, study_of, write_links
from driftline.pipelines.run import deleting
from driftline.pipelines.run.forgetting import forget
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.state import INTENT, folder_of
from driftline.stream_builder.builders.release import from_release

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "people.md"
ADDRESS = "203.0.113.9"


def sentences() -> list[str]:
    """Every sentence and every row of a table; no heading, and no head of a table."""
    lines: list[str] = []
    for part in re.split(r"\n\s*\n", PAGE.read_text(encoding="utf-8")):
        if part.startswith("|"):
            lines += part.splitlines()[2:]
        elif not part.startswith("#"):
            lines += re.split(r"(?<=\.)\s+", " ".join(part.split()))
    return [sentence for sentence in lines if sentence]


def holds(folder: Path, *words: str) -> list[str]:
    """Files below a folder whose bytes or rows have one of these words."""
    places = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += str(pq.read_table(path).to_pylist()).encode()
        places += [path.relative_to(folder).as_posix()] if any(word.encode() in content for word in words) else []
    return places


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@dataclass
class World:
    """What the checks look at; made when it is needed."""

    place: Path

    @cached_property
    def kept(self) -> Path:
        """A run with a release and answers; not to be changed."""
        return annotated()

    @cached_property
    def hashes(self) -> list[str]:
        return [hashed(name, (self.kept / KEY).read_text()) for name in PEOPLE]

    @cached_property
    def own(self) -> Path:
        """A copy of it, which the page and a study write into."""
        return annotated_copy(self.place / "own")

    @cached_property
    def forgotten(self) -> Path:
        """A copy whose answers were deleted, and its next release."""
        root = annotated_copy(self.place / "forgotten")
        forget(context_of(root), yes=True)
        shutil.copytree(root, self.place / "at-once")
        run(context_of(root, "release.version=1.0.1"))
        return root

    @cached_property
    def without_one(self) -> Path:
        """A copy whose first person was forgotten, and its next release."""
        root = annotated_copy(self.place / "without-one")
        forget(context_of(root), yes=True, person=PEOPLE[0])
        run(context_of(root, "release.version=1.0.1"))
        return root

    @cached_property
    def at_once(self) -> Path:
        """The same before the next release."""
        assert self.forgotten
        return self.place / "at-once"

    def client(self, study: Study | None) -> TestClient:
        """A browser on another machine."""
        app, path = application(context_of(self.own), 80, "testserver", study)
        return TestClient(
            app, f"http://testserver:80{path}", client=(ADDRESS, 50_000), headers={"host": "testserver:80"}
        )

    def participants(self, admit: str) -> Participants:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROLIFIC_TOKEN", "t")
            return Participants(study_of("C1", 2, "", admit), "b", "key", self.own / "annotate" / "b.sqlite", str)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("people"))


COMING = {"PROLIFIC_PID": "p1", "STUDY_ID": "s1", "SESSION_ID": "x1"}


def the_page_has_these_parts(world: World) -> None:
    parts = re.findall(r"^## (.*)", PAGE.read_text(encoding="utf-8"), re.M)
    assert {"What is asked", "Where it is", "How long, and how it is deleted"} <= set(parts)
    assert "who can read it" in PAGE.read_text(encoding="utf-8")


def fields(page: str) -> set[str]:
    """Names of the fields that a person fills in."""
    shown = re.findall(r"<(?:input|select|textarea)\b[^>]*>", page)
    return {name for tag in shown if 'type="hidden"' not in tag for name in re.findall(r'name="(\w+)"', tag)}


def the_page_asks_for_a_name_answers_and_comments(world: World) -> None:
    with world.client(None) as browser:
        start = browser.get("").text
        question = browser.get("label", params={"annotator": "new"}).text
    assert fields(start) == {"annotator", "concept"}
    assert fields(question) <= {"labels", "sensitive", "comment"}
    comment = re.search(r'<input name="comment"[^>]*>', question)
    assert comment is None or "required" not in comment[0]


def a_study_asks_for_no_name(world: World) -> None:
    with world.client(study_of("C1", 2, "")) as browser:
        assert fields(browser.get("", params=COMING).text) <= {"labels", "sensitive", "comment"}
        assert fields(browser.get("").text) == set()


def no_address_is_written(world: World) -> None:
    with world.client(study_of("C1", 2, "")) as browser:
        page = browser.get("", params=COMING).text
        values = dict(re.findall(r'name="(annotator|item)" value="([^"]*)"', page))
        if "item" in values:
            form = values | {"labels": "none", "sensitive": "no"}
            assert browser.post("answer", data=form, headers={"origin": "http://testserver:80"}).status_code == 200
        for number in range(5):
            who = browser.get("", params=COMING | {"PROLIFIC_PID": f"q{number}"}).text
            name = re.findall(r'name="annotator" value="([^"]*)"', who)[0]
            browser.post("undo", data={"annotator": name}, headers={"origin": "http://testserver:80"})
    assert len(alarms(world.own)) == 1, "addresses were compared"
    assert holds(world.own, ADDRESS) == []


def answers_stay_in_the_folder(world: World) -> None:
    assert holds(world.kept, "Canary", *world.hashes)
    assert not [place for place in forget(context_of(world.own))["files"] if str(world.own) not in place["file"]]


def annotate_is_private(world: World) -> None:
    folder = world.kept / "annotate"
    assert mode(folder) == 0o700
    (answers,) = folder.glob("*.sqlite")
    with closing(AnswerStore(answers)) as store:
        (row, *_) = store.rows()
        assert (row[2], row[5]) == (PEOPLE[0], 2)
    assert holds(folder, "CanaryComment")


def answers_are_private_where_we_write_them(world: World) -> None:
    (path,) = (world.kept / "answers").glob("annotate-*.csv")
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert PEOPLE[0] in path.read_text()


def journals_are_private(world: World) -> None:
    from driftline.curate.validation.asking.platforms.prolific_api import Journal

    journal = Journal(world.place / "prolific" / "study-b.jsonl")
    journal.begin("bonus sub1,1.00")
    assert (mode(journal.path), mode(journal.path.parent)) == (0o600, 0o700)
    assert "sub1" in journal.path.read_text()


def the_key_is_private(world: World) -> None:
    assert mode(world.kept / KEY) == 0o600


def tally_holds_hashes(world: World) -> None:
    rows = pq.read_table(folder_of(world.kept, "tally") / "answers.parquet").to_pylist()
    assert {row["worker"] for row in rows} == set(world.hashes)
    assert any(row["assignment"] for row in rows)
    facts = json.loads((folder_of(world.kept, "tally") / "agreement.json").read_text())["workers"]
    assert {row["worker"] for row in facts} == set(world.hashes)


def the_store_holds_hashes(world: World) -> None:
    with open_store(world.own / "store") as store:
        rows = store.base.execute("SELECT worker, assignment FROM answers").fetchall()
    assert {worker for worker, _ in rows} == set(world.hashes)


def a_hash_needs_the_key(world: World) -> None:
    key = (world.kept / KEY).read_text()
    assert len(bytes.fromhex(key)) * 8 == 256
    assert hashed("ann", key) != hashed("ann", "0" * 64)


def another_folder_has_another_key(world: World) -> None:
    for name in ("one", "two"):
        (world.place / name).mkdir()
    assert worker_key(world.place / "one") != worker_key(world.place / "two")


def what_is_published_names_nobody(world: World) -> None:
    release, out = Release.open(world.kept), world.place / "published"
    for name in EXPORTS:
        EXPORTS[name](release, out / name)
    stream = from_release(release)
    stream.save(out / "stream")
    evaluate(stream, "clear-iid", ["nearest-mean"], [0], {}, out=out / "rows")
    shutil.copytree(release.path, out / "release")
    assert holds(out, "Canary", *world.hashes) == []
    assert json.loads(release.table["votes"][0].as_py())


def links_are_signed(world: World) -> None:
    path = write_links(context_of(world.own), "http://127.0.0.1:1/secret/", study_of("C1", 2, "", "links"))
    assert path.parent == world.own / "annotate"
    links = re.findall(r"participant=(p\d{3})&token=([0-9a-f]{32})", path.read_text())
    assert len({token for _, token in links}) == len(links) > 0
    with pytest.raises(BadInput, match="This link is not valid"):
        world.participants("links").admitted({"participant": "p001", "token": "0" * 32})


def prolific_confirms(world: World) -> None:
    people = world.participants("prolific")
    people.submissions["s1", "x1"] = "p1"
    assert people.admitted(COMING) == "p1"
    with pytest.raises(BadInput, match="Prolific knows no open submission"):
        people.admitted(COMING | {"PROLIFIC_PID": "p2"})


def without_admit_any_id_is_let_in(world: World) -> None:
    assert world.participants("all").admitted(COMING | {"PROLIFIC_PID": "anybody"}) == "anybody"


def a_participant_gets_so_many(world: World) -> None:
    batch = {"batch": "b", "items": {f"i{n}": str(n) for n in range(9)}, "concepts": ["car"], "workers": 3}
    with closing(AnswerStore(world.place / "annotate" / "b.sqlite", batch)) as store:
        store.assign("p1", 2, 3, 60)
        assert len(store.queue("p1")) == 2


def nobody_acts_for_another(world: World) -> None:
    people = world.participants("all")
    assert people.named(people.carried("p1")) == "p1"
    with pytest.raises(BadInput, match="of no participant of this study"):
        people.named(people.carried("p2").replace("p2", "p1"))


def an_alarm_names_a_file(world: World) -> None:
    messages: list[str] = []
    people = world.participants("all")
    people.say = messages.append
    request = type("Request", (), {"headers": {}, "client": type("Client", (), {"host": ADDRESS})})
    for number in range(4):
        assert messages == []
        people.answered(f"p{number}", request)  # type: ignore[arg-type]
    path = world.own / "annotate" / "b.alarms.json"
    assert str(path) in messages[0]
    assert str(path) in driftline("status", str(world.own)).stdout


def nothing_goes_by_itself(world: World) -> None:
    before = holds(world.own, "Canary")
    run(context_of(world.own))
    assert holds(world.own, "Canary") == before


def forget_lists_everything(world: World) -> None:
    listed = {
        Path(place["file"]).relative_to(world.kept).as_posix() for place in forget(context_of(world.kept))["files"]
    }
    assert listed == {*holds(world.kept, "Canary", *world.hashes), KEY}


def everything_is_deleted(world: World) -> None:
    assert holds(world.at_once, "Canary", *world.hashes, (world.kept / KEY).read_text()) == []
    assert not (world.at_once / KEY).exists()


def verdicts_and_counts_stay(world: World) -> None:
    before, after = (pq.read_table(folder_of(r, "tally") / "verdicts.parquet") for r in (world.kept, world.forgotten))
    assert before.equals(after)
    assert {"concept", "bucket", "asked", "accepted"} <= set(deletions(world.forgotten)[0]["cells"][0])


def labels_are_the_same(world: World) -> None:
    names = ["id", "class", "bucket", "votes"]
    before, after = (Release.open(root).table.select(names) for root in (world.kept, world.forgotten))
    assert before.equals(after)


def the_card_says_it(world: World) -> None:
    (entry,) = deletions(world.forgotten)
    card = (Release.open(world.forgotten).path / "README.md").read_text()
    assert f"{entry['date']}, after release 1.0.0: the {entry['answers']} answers of 2 people" in card


def new_answers_count(world: World) -> None:
    root = world.at_once
    with closing(answer_store_of(context_of(annotated_copy(world.place / "new")))) as store:
        batch = store.batch
    with closing(AnswerStore(next((root / "annotate").glob("*.sqlite")), batch)) as store:
        store.answer("new", next(iter(batch["items"])), ["car"], False, 1)
    run(context_of(root))
    assert len(pq.read_table(folder_of(root, "tally") / "answers.parquet")) == 1


def a_kill_is_resumed(world: World) -> None:
    root = annotated_copy(world.place / "killed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deleting, "delete_answers", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        context = context_of(root)
        with pytest.raises(KeyboardInterrupt):
            forget(context, yes=True)
    assert (root / INTENT).is_file()
    run(context_of(root))
    assert holds(root, "Canary") == []


def other_runs_are_named(world: World) -> None:
    with open_store(world.own / "store") as store:
        register_run(store, world.place / "another")
    shown = driftline("forget", str(world.own)).stdout
    assert f"{world.place / 'another'} uses the same store" in shown


def prolific_and_backups_keep_their_own(world: World) -> None:
    with pytest.raises(BadConfig, match="Prolific keeps its own copy: delete it there"):
        prolific_action(context_of(world.forgotten), "collect")
    assert holds(world.kept, "Canary"), "a copy of the folder that was forgotten"


def one_person_is_forgotten(world: World) -> None:
    root = world.without_one
    assert holds(root, PEOPLE[0], world.hashes[0]) == []
    assert holds(root, PEOPLE[1], world.hashes[1]) != []
    assert (root / KEY).is_file()
    before, after = (pq.read_table(folder_of(r, "tally") / "verdicts.parquet") for r in (world.kept, root))
    assert before.equals(after)


def votes_of_nobody_are_seen(world: World) -> None:
    (path,) = (world.without_one / "answers").glob("votes-*.csv")
    assert (mode(path), path.read_text().count("nobody-")) == (0o600, 23)


def a_photo_is_withdrawn(world: World) -> None:
    assert (PAGE.parent / "withdraw.md").is_file()
    assert driftline("withdraw", "--help").returncode == 0


CHECKS: dict[str, Callable[[World], None]] = {
    (
        "What driftline stores of people who annotate: where, how long, who can read it, how you delete it."
    ): the_page_has_these_parts,
    (
        "The page asks for a name, answers, and comments that nobody has to write."
    ): the_page_asks_for_a_name_answers_and_comments,
    (
        "Participants of an external study give no name: their id comes from Prolific or your link."
    ): a_study_asks_for_no_name,
    "No network address is written.": no_address_is_written,
    "Answers stay in the run folder `DIR` and its store.": answers_stay_in_the_folder,
    "| `DIR/annotate/` | names, answers, seconds, comments, links, alarms | only its owner |": annotate_is_private,
    (
        "| `DIR/answers/` | results files: names or ids of a platform, answers | only its owner, if driftline "
        "wrote them |"
    ): answers_are_private_where_we_write_them,
    "| `DIR/prolific/` | studies; submissions that got a bonus | only its owner |": journals_are_private,
    "| `DIR/workers.key` | the key of the hashes | only its owner |": the_key_is_private,
    (
        "| `DIR/stages/08_tally/` | answers, assignments and facts of each worker, under a hash | who can read `DIR` |"
    ): tally_holds_hashes,
    (
        "| the store | answers and assignments under a hash, for later runs | who can read the store |"
    ): the_store_holds_hashes,
    (
        "A hash is made of the name and a random key of 256 bits: nobody without the key can try names."
    ): a_hash_needs_the_key,
    "Another folder has another key.": another_folder_has_another_key,
    "Releases, exports, streams and rows hold counts of votes, no name and no hash.": what_is_published_names_nobody,
    (
        "`driftline annotate DIR --study CODE --admit links` writes a signed link for each participant into "
        "`DIR/annotate/`."
    ): links_are_signed,
    "`--admit prolific` lets in whose submission Prolific confirms.": prolific_confirms,
    "Without `--admit`, who has the address may take any id.": without_admit_any_id_is_let_in,
    "A participant gets at most `--count` images.": a_participant_gets_so_many,
    "Nobody answers, or takes back, for another.": nobody_acts_for_another,
    (
        "The console and `driftline status` name a file of people who share an address, from four on."
    ): an_alarm_names_a_file,
    "Nothing is deleted by itself.": nothing_goes_by_itself,
    (
        "After a release, `driftline forget DIR` lists every file that holds something of these people."
    ): forget_lists_everything,
    (
        "`driftline forget DIR --yes` deletes names, hashes, answers, assignments, comments, links and the key."
    ): everything_is_deleted,
    "Verdicts and votes of each image stay, and counts of classes and buckets.": verdicts_and_counts_stay,
    "Later releases have the same labels.": labels_are_the_same,
    "Their card says when how many answers were deleted.": the_card_says_it,
    "New answers count.": new_answers_count,
    "After a kill, the same command or next run goes on.": a_kill_is_resumed,
    "`driftline forget` names other runs with the same store.": other_runs_are_named,
    "It reaches neither Prolific's records nor your backups.": prolific_and_backups_keep_their_own,
    (
        "`driftline forget DIR --person NAME --yes` does so for one person: the key stays, and answers as votes of "
        "nobody."
    ): one_person_is_forgotten,
    "Who has `DIR` can tell which votes these are.": votes_of_nobody_are_seen,
    "Who took a photo, or is in it, asks you to [withdraw](withdraw.md) it.": a_photo_is_withdrawn,
}


@pytest.mark.parametrize("sentence", sentences())
def test_every_sentence_of_the_page_is_so(sentence: str, world: World) -> None:
    assert sentence in CHECKS, f"no check for: {sentence}"
    CHECKS[sentence](world)


def test_no_check_is_of_a_sentence_that_is_gone() -> None:
    assert CHECKS.keys() == set(sentences())
