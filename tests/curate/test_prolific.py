"""Prolific's API: a campaign from publish to verdicts with two crashes, and what must never be paid twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.prolific_server import Prolific, prolific_server

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.answers.answers import read_answers, read_lines
from driftline.curate.validation.answers.verdicts import agreement, suggested_rejections, tally
from driftline.curate.validation.asking.batches import write_batch
from driftline.curate.validation.asking.platforms import prolific_api as api
from driftline.curate.validation.asking.platforms.prolific_bonus import bonus
from driftline.curate.validation.settings import ValidationSettings

CONCEPTS = [Concept(name="bus", prompts=("bus",), option="a bus"), Concept(name="car", prompts=("car",))]
PLAN = api.StudyPlan("Which of these?", "Look.", "w1", 0.02, 9.0, 3, 4)


@pytest.fixture
def prolific(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prolific]:
    monkeypatch.setattr(api, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(api, "BACKOFF", 0.001)
    with prolific_server() as service:
        monkeypatch.setenv(api.TOKEN, service.token)
        yield service


@pytest.fixture
def batch(tmp_path: Path) -> dict[str, Any]:
    items = [(f"p{i}", b"image", "jpg") for i in range(12)]
    return write_batch(
        items, CONCEPTS, tmp_path / "batch", 0, ValidationSettings(), {f"p{i}": frozenset({"bus"}) for i in range(4)}
    )


def publish(prolific: Prolific, batch: dict[str, Any], folder: Path, spend: float | None = 5.0) -> dict[str, Any]:
    """With the state on disk only, as a new process has it."""
    addresses = {item: f"https://example.org/{item}.jpg" for item in batch["items"]}
    journal = api.Journal(folder / "study.jsonl")
    return api.publish(api.Service(prolific.url), batch, addresses, CONCEPTS, PLAN, journal, spend)


def cut_after(prolific: Prolific, call: str) -> None:
    """The connection is lost after the service carried out this call, once."""

    def after(done: str) -> None:
        if done.startswith(call):
            prolific.after = lambda _: None
            raise ConnectionAbortedError

    prolific.after = after


def test_a_campaign_with_two_crashes_is_published_once(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path
) -> None:
    for call in ("POST /api/v1/studies/", "POST /api/v1/studies/study0/transition/"):
        cut_after(prolific, call)
        with pytest.raises(Unfinished, match="The same command continues"):
            publish(prolific, batch, tmp_path)
    result = publish(prolific, batch, tmp_path)
    assert publish(prolific, batch, tmp_path) == result
    assert (prolific.published, len(prolific.studies), result["images"]) == (1, 1, 12)
    assert result["cost_usd"] == 0.96  # 9 submissions of 4 images at $0.08, and a third as fee

    items = sorted(batch["items"])
    for group in range(3):
        for who in ("ann", "bob", "bot"):
            said = ["car"] if who == "bot" else ["bus"]
            prolific.work(who, items[4 * group : 4 * group + 4], lambda item, said=said: said)
    journal, service = api.Journal(tmp_path / "study.jsonl"), api.Service(prolific.url)
    assert api.status(service, journal)["awaiting review"] == 9
    assert api.collect(service, journal, batch["batch"], tmp_path / "answers" / "a.csv") == 36
    answers = read_answers(read_lines([tmp_path / "answers" / "a.csv"])[batch["batch"]], batch, "k")
    assert set(answers["seconds"].to_pylist()) == {15}
    known = {batch["items"][item]: frozenset(labels) for item, labels in batch["gold"].items()}
    rejected = dict(suggested_rejections(answers, agreement(answers, known)))
    assert len(rejected) == 3  # all submissions of the bot
    assert api.decide(service, journal, rejected, approve=True) == {"approved": 6, "rejected": 3}
    assert api.decide(service, journal, rejected, approve=True) == {"approved": 0, "rejected": 0}
    api.collect(service, journal, batch["batch"], tmp_path / "answers" / "a.csv")
    answers = read_answers(read_lines([tmp_path / "answers" / "a.csv"])[batch["batch"]], batch, "k")
    asked = [{"id": f"p{i}", "bucket": 0, "concept": "bus"} for i in range(12)]
    verdicts = tally(asked, answers, ValidationSettings(workers=2))
    assert verdicts["verdict"].to_pylist() == ["kept"] * 12


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("written", [True, False], ids=["after the line", "before the line"])
def test_a_kill_at_any_line_of_the_journal_publishes_once(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    add, left = api.Journal.add, 0

    def dies(self: api.Journal, **entry: Any) -> None:
        nonlocal left
        left -= 1
        if left or written:
            add(self, **entry)
        if not left:
            raise Killed

    for line in range(1, 11):  # five steps, each begun and ended
        monkeypatch.setattr(api.Journal, "add", dies)
        left, folder, before = line, tmp_path / str(line), prolific.published
        with pytest.raises(Killed):
            publish(prolific, batch, folder)
        monkeypatch.setattr(api.Journal, "add", add)
        result = publish(prolific, batch, folder)
        assert publish(prolific, batch, folder) == result
        assert (prolific.published, len(prolific.studies)) == (before + 1, before + 1)
        prolific.studies[result["study"]]["internal_name"] = "of another batch"
    assert len((folder / "study.jsonl").read_bytes().splitlines()) in (10, 11)


def test_no_file_shows_participants_the_item_or_the_expected_class(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path
) -> None:
    publish(prolific, batch, tmp_path)
    (made,) = prolific.batches.values()
    shown = [i for c in made["batch_items"][0]["rows"][0]["columns"] for i in c["items"]]
    assert [i.get("field") for i in shown] == ["image", None, None]
    assert [o["value"] for o in shown[1]["options"]] == ["bus", "car", "none"]


@pytest.mark.parametrize("spend", [None, 0.5, 0.8])
def test_more_than_the_budget_is_not_published(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path, spend: float | None
) -> None:
    with pytest.raises(BadConfig, match="--max-usd is"):
        publish(prolific, batch, tmp_path, spend)
    assert prolific.published == 0


def test_a_rate_limit_is_waited_for(prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
    prolific.limited = 3
    assert publish(prolific, batch, tmp_path)["images"] == 12


def test_a_refused_or_missing_token_is_one_sentence_without_it(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(api.TOKEN, "wrong-token")
    with pytest.raises(BadConfig, match="refuses the token of PROLIFIC_TOKEN") as caught:
        publish(prolific, batch, tmp_path)
    assert "wrong-token" not in str(caught.value)
    monkeypatch.delenv(api.TOKEN)
    with pytest.raises(BadConfig, match="holds no token"):
        api.Service()


def test_a_bonus_is_never_paid_twice(prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
    publish(prolific, batch, tmp_path)
    id_ = prolific.work("ann", sorted(batch["items"])[:4], lambda item: ["bus"])
    table = tmp_path / "bonus.csv"
    table.write_text(f"SubmissionId,Amount\n{id_},1.00\n")

    def pay(spend: float | None) -> dict[str, Any]:
        return bonus(api.Service(prolific.url), [api.Journal(tmp_path / "study.jsonl")], table, spend)

    with pytest.raises(BadConfig, match=r"cost \$1.25 with fees"):
        pay(1.0)
    assert pay(2.0) == {"bonuses": 1, "cost_usd": 1.25}
    assert pay(2.0)["paid_before"]
    assert prolific.paid == ["bonus1"]
    table.write_text(f"SubmissionId,Amount\n{id_},0.50\n")
    cut_after(prolific, "POST /api/v1/bulk-bonus-payments")
    for _ in range(2):
        with pytest.raises(Unfinished):
            pay(2.0)
    assert len(prolific.paid) == 2


def test_a_file_pays_the_submissions_of_two_studies_within_one_limit(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path
) -> None:
    ids = []
    for month in ("may", "june"):
        publish(prolific, batch | {"batch": month}, tmp_path / month)
        ids += [prolific.work(who, sorted(batch["items"])[:4], lambda item: ["bus"]) for who in ("ann", "bob")]
    table = tmp_path / "bonus.csv"

    def pay(spend: float) -> dict[str, Any]:
        studies = [api.Journal(tmp_path / month / "study.jsonl") for month in ("may", "june")]
        return bonus(api.Service(prolific.url), studies, table, spend)

    table.write_text("SubmissionId,Amount\n" + "".join(f"{id_},1.00\n" for id_ in ids[1:]))
    with pytest.raises(BadConfig, match=r"cost \$3.75 with fees"):
        pay(3.0)
    assert pay(4.0) == {"bonuses": 3, "cost_usd": 3.75}
    assert pay(4.0) == {"bonuses": 3, "cost_usd": 3.75, "paid_before": True}
    assert [prolific.bonuses[id_] for id_ in prolific.paid] == [f"{ids[1]},1.00", f"{ids[2]},1.00\n{ids[3]},1.00"]
    table.write_text(f"SubmissionId,Amount\nsub99,1.00\n{ids[0]},1.00\n")
    with pytest.raises(BadInput, match="names 1 submissions that no study of this run has, 'sub99' the first"):
        pay(4.0)


def test_what_comes_before_publish_says_so(prolific: Prolific, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="has no published study"):
        api.status(api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl"))


def test_a_damaged_journal_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    path.write_text('{"format": 1}\nnonsense\n{"st')
    with pytest.raises(BadInput, match="line 2"):
        api.Journal(path)


@pytest.mark.parametrize("state", ["RETURNED", "TIMED-OUT", "SCREENED OUT", "REJECTED"])
def test_answers_of_a_submission_that_ended_so_do_not_count(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path, state: str
) -> None:
    """Case 30."""
    publish(prolific, batch, tmp_path)
    id_ = prolific.work("ann", sorted(batch["items"])[:4], lambda item: ["bus"])
    prolific.submissions[id_]["status"] = state
    api.collect(api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl"), batch["batch"], tmp_path / "a.csv")
    answers = read_answers(read_lines([tmp_path / "a.csv"])[batch["batch"]], batch, "k")
    assert set(answers["fault"].to_pylist()) == {"rejected"}


def test_answers_of_a_withdrawn_study_do_not_count(prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
    publish(prolific, batch, tmp_path)
    prolific.work("ann", sorted(batch["items"])[:4], lambda item: ["bus"])
    prolific.studies.clear()
    prolific.submissions.clear()
    service, journal = api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
    with pytest.raises(DriftlineError, match="HTTP 404: .*No Study matches"):
        api.status(service, journal)
    api.collect(service, journal, batch["batch"], tmp_path / "a.csv")
    answers = read_answers(read_lines([tmp_path / "a.csv"])[batch["batch"]], batch, "k")
    assert set(answers["fault"].to_pylist()) == {"rejected"}


def test_a_second_answer_of_one_participant_is_a_duplicate(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path
) -> None:
    """Case 30."""
    publish(prolific, batch, tmp_path)
    for label in ("bus", "car"):
        prolific.work("ann", sorted(batch["items"])[:4], lambda item, label=label: [label])
    api.collect(api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl"), batch["batch"], tmp_path / "a.csv")
    answers = read_answers(read_lines([tmp_path / "a.csv"])[batch["batch"]], batch, "k")
    assert sorted(answers["fault"].to_pylist(), key=str) == [None] * 4 + ["duplicate"] * 4


def test_a_response_without_an_item_is_refused(prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
    publish(prolific, batch, tmp_path)
    prolific.work("ann", ["x"], lambda item: ["bus"])
    prolific.responses[0]["metadata"] = None
    with pytest.raises(DriftlineError, match="names no item"):
        api.collect(
            api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl"), batch["batch"], tmp_path / "a.csv"
        )


class TestLists:
    """Case 29: Prolific lists twenty submissions a page unless asked."""

    def start(self, prolific: Prolific, batch: dict[str, Any], folder: Path, people: int) -> list[str]:
        """A published study to which so many people answered for one image; their submissions."""
        publish(prolific, batch, folder)
        item = min(batch["items"])
        return [prolific.work(f"p{n}", [item], lambda _: ["bus"]) for n in range(people)]

    @pytest.mark.parametrize("counted", [True, False], ids=["meta.count", "no meta"])
    @pytest.mark.parametrize(("people", "pages"), [(21, 1), (250, 3)])
    def test_all_are_collected_approved_and_paid(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, people: int, pages: int, counted: bool
    ) -> None:
        """Case 29."""
        ids, prolific.counted, calls = self.start(prolific, batch, tmp_path, people), counted, []
        prolific.after = calls.append
        service, journal = api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
        assert api.collect(service, journal, batch["batch"], tmp_path / "a.csv") == people
        lists = [call for call in calls if call.startswith("GET")]
        assert len(lists) == pages + 1, "no request twice"
        answers = read_answers(read_lines([tmp_path / "a.csv"])[batch["batch"]], batch, "k")
        assert answers["fault"].null_count == people, "no submission is taken for a rejected one"
        assert api.decide(service, journal, {}, approve=True) == {"approved": people, "rejected": 0}
        assert {s["status"] for s in prolific.submissions.values()} == {"APPROVED"}
        (tmp_path / "bonus.csv").write_text("SubmissionId,Amount\n" + "".join(f"{id_},0.01\n" for id_ in ids))
        for _ in range(2):
            assert bonus(service, [journal], tmp_path / "bonus.csv", 5.0)["bonuses"] == people
        assert len(prolific.paid) == 1

    @pytest.mark.parametrize("counted", [True, False], ids=["meta.count", "no meta"])
    def test_a_list_that_ends_with_a_full_page_is_whole(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, counted: bool
    ) -> None:
        """Case 29. Responses have no pages: a hundred of them are all."""
        self.start(prolific, batch, tmp_path, 100)
        prolific.counted, prolific.responses = counted, prolific.responses[:100]
        service, journal = api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
        assert len(api.submissions(service, journal)) == 100
        assert api.collect(service, journal, batch["batch"], tmp_path / "a.csv") == 50

    @pytest.mark.parametrize(
        ("fault", "sentence"),
        [
            (lambda page, answer: answer | {"meta": {"count": 250 + page // 3}}, "another total on page 3: 251"),
            (lambda page, answer: answer | {"results": []}, "empty on page 1, after 0 of"),
            (lambda page, answer: answer | ({"results": []} if page == 3 else {}), "page 3, after 200 of 250 entries"),
            (lambda page, answer: answer | ({"results": [{"id": "sub7"}]} if page == 2 else {}), "repeats entries on"),
        ],
        ids=["total", "first page missing", "last page missing", "repeated"],
    )
    def test_pages_that_do_not_fit_stop_and_the_same_command_goes_on(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        fault: Any, sentence: str,
    ) -> None:  # fmt: skip
        """Case 29."""
        self.start(prolific, batch, tmp_path, 250)
        service, journal = api.Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
        page = Prolific.page
        with monkeypatch.context() as patch:
            patch.setattr(Prolific, "page", lambda own, rows, query: (
                200, fault(int(query["page"][0]), page(own, rows, query)[1])
            ))  # fmt: skip
            with pytest.raises(Unfinished, match=sentence):
                api.decide(service, journal, {}, approve=True)
        assert api.decide(service, journal, {}, approve=True) == {"approved": 250, "rejected": 0}

    def test_the_stand_in_ignores_what_the_document_does_not_name(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path
    ) -> None:
        """Case 29: a client that asks in another dialect gets the first twenty, again and again."""
        ids = self.start(prolific, batch, tmp_path, 21)
        call = api.Service(prolific.url).call
        lists = [
            [s["id"] for s in call("GET", f"/submissions/?study=study0&ordering=started_at{more}")["results"]]
            for more in ("&limit=100", "&offset=20", "&page=2", "&page_size=21")
        ]
        assert lists == [ids[:20], ids[:20], ids[20:], ids]

    def test_a_study_after_the_first_twenty_is_not_created_again(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path
    ) -> None:
        """Case 29: the list of studies after a crash."""
        cut_after(prolific, "POST /api/v1/studies/")
        with pytest.raises(Unfinished):
            publish(prolific, batch, tmp_path)
        others = {f"s{n}": {"id": f"s{n}", "internal_name": "another"} for n in range(150)}
        prolific.studies |= others  # the newest come first
        assert publish(prolific, batch, tmp_path)["study"] == "study0"
        assert len(prolific.studies) == 151
