"""Prolific's API: a campaign from publish to verdicts with two crashes, and what must never be paid twice."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.prolific_server import SHORT, Prolific, prolific_server
from support.stand_ins import EXAMPLES

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.answers.answers import read_answers, read_lines
from driftline.curate.validation.answers.verdicts import agreement, suggested_rejections, tally
from driftline.curate.validation.asking.batches import write_batch
from driftline.curate.validation.asking.platforms import prolific_api as api
from driftline.curate.validation.asking.platforms import prolific_service
from driftline.curate.validation.asking.platforms.prolific_bonus import bonus
from driftline.curate.validation.asking.platforms.prolific_service import TOKEN, Open, Service
from driftline.curate.validation.settings import ValidationSettings

CONCEPTS = [Concept(name="bus", prompts=("bus",), option="a bus"), Concept(name="car", prompts=("car",))]
PLAN = api.StudyPlan("Which of these?", "Look.", "w1", 0.02, 9.0, 3, 4)


@pytest.fixture
def prolific(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prolific]:
    monkeypatch.setattr(api, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(prolific_service, "BACKOFF", 0.001)
    with prolific_server() as service:
        monkeypatch.setenv(TOKEN, service.token)
        yield service


def batch_in(folder: Path) -> dict[str, Any]:
    items = [(f"p{i}", b"image", "jpg") for i in range(12)]
    return write_batch(
        items, CONCEPTS, folder / "batch", 0, ValidationSettings(), {f"p{i}": frozenset({"bus"}) for i in range(4)}
    )


@pytest.fixture
def batch(tmp_path: Path) -> dict[str, Any]:
    return batch_in(tmp_path)


def publish(prolific: Prolific, batch: dict[str, Any], folder: Path, spend: float | None = 5.0) -> dict[str, Any]:
    """With the state on disk only, as a new process has it."""
    addresses = {item: f"https://example.org/{item}.jpg" for item in batch["items"]}
    journal = api.Journal(folder / "study.jsonl")
    return api.publish(Service(prolific.url), batch, addresses, CONCEPTS, PLAN, journal, spend)


def cut_after(prolific: Prolific, call: str, answer: Any = None) -> None:
    """The service carries out this call, and the connection is lost or the answer is another one, once."""

    def after(done: str) -> Any:
        if not done.startswith(call):
            return None
        prolific.after = lambda _: None
        if answer is None:
            raise ConnectionAbortedError
        return answer

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
    journal, service = api.Journal(tmp_path / "study.jsonl"), Service(prolific.url)
    assert api.status(service, journal)["awaiting review"] == 9
    result = api.collect(service, journal, batch["batch"], tmp_path / "answers" / "a.csv")
    assert result == {"answers": 36, "left_out": {}}
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


@contextmanager
def killed_at(line: int, written: bool) -> Iterator[None]:
    """What is done in the block ends at this line of the journal: after it, or before."""
    add, left = api.Journal.add, line

    def dies(self: api.Journal, **entry: Any) -> None:
        nonlocal left
        left -= 1
        if left or written:
            add(self, **entry)
        if not left:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api.Journal, "add", dies)
        with pytest.raises(Killed):
            yield


@pytest.mark.parametrize("written", [True, False], ids=["after the line", "before the line"])
def test_a_kill_at_any_line_of_the_journal_publishes_once(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path, written: bool
) -> None:
    for line in range(1, 11):  # five steps, each begun and ended
        folder, before = tmp_path / str(line), prolific.published
        with killed_at(line, written):
            publish(prolific, batch, folder)
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
    monkeypatch.setenv(TOKEN, "wrong-token")
    with pytest.raises(BadConfig, match="refuses the token of PROLIFIC_TOKEN") as caught:
        publish(prolific, batch, tmp_path)
    assert "wrong-token" not in str(caught.value)
    monkeypatch.delenv(TOKEN)
    with pytest.raises(BadConfig, match="holds no token"):
        Service()


class TestBonus:
    """To pay is not idempotent: each request is in the journal first, and what became of it is asked."""

    def start(self, prolific: Prolific, batch: dict[str, Any], folder: Path, people: int = 3) -> list[str]:
        publish(prolific, batch, folder)
        item = min(batch["items"])
        return [prolific.work(f"p{n}", [item], lambda _: ["bus"]) for n in range(people)]

    def pay(self, prolific: Prolific, folder: Path, spend: float | None, *rows: str) -> dict[str, Any]:
        (folder / "bonus.csv").write_text("\n".join(("SubmissionId,Amount", *rows)) + "\n")
        return bonus(Service(prolific.url), [api.Journal(folder / "study.jsonl")], folder / "bonus.csv", spend)

    def shown(self, prolific: Prolific) -> list[list[int]]:
        prolific.minutes()
        return [one["bonus_payments"] for one in prolific.submissions.values()]

    def test_is_paid_once_also_in_another_file(self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
        one, two, _ = self.start(prolific, batch, tmp_path)
        with pytest.raises(BadConfig, match=r"cost \$1.25 with fees"):
            self.pay(prolific, tmp_path, 1.0, f"{one},1.00")
        assert self.pay(prolific, tmp_path, 2.0, f"{one},1.00") == {"bonuses": 1, "cost_usd": 1.25}
        assert self.pay(prolific, tmp_path, 2.0, f"{one},1.0")["paid_before"] == 1
        later = self.pay(prolific, tmp_path, 2.0, f"{one},1", f"{two},0.50", f"{one},0.40")
        assert later == {"bonuses": 2, "cost_usd": 1.125, "paid_before": 1}
        assert self.shown(prolific) == [[100, 40], [50], []]

    @pytest.mark.parametrize("answer", [None, (200, b"<html>", {}), (502, b"<html>", {}), (409, b"{}", {})], ids=str)
    def test_a_lost_answer_is_read_from_the_service(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, answer: Any
    ) -> None:
        one, two, _ = self.start(prolific, batch, tmp_path)
        prolific.slow = True
        cut_after(prolific, "POST /api/v1/bulk-bonus-payments", answer)
        with pytest.raises(Open):
            self.pay(prolific, tmp_path, 2.0, f"{one},1.00", f"{two},0.20")
        with pytest.raises(Unfinished, match="pay 2 bonuses; Prolific shows 0 of them.*asks again what was paid"):
            self.pay(prolific, tmp_path, 2.0, f"{one},1.00", f"{two},0.20")
        prolific.minutes()
        again = self.pay(prolific, tmp_path, 2.0, f"{one},1.00", f"{two},0.20")
        assert (again["bonuses"], again["paid_before"]) == (0, 2)
        assert self.shown(prolific) == [[100], [20], []]

    @pytest.mark.parametrize("written", [True, False], ids=["after the line", "before the line"])
    @pytest.mark.parametrize("line", [1, 2, 3, 4])
    def test_a_kill_at_any_line_of_the_journal_pays_once(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        line: int, written: bool,
    ) -> None:  # fmt: skip
        ids = self.start(prolific, batch, tmp_path)
        monkeypatch.setattr("driftline.curate.validation.asking.platforms.prolific_bonus.PAID_AT_ONCE", 2)
        rows = [f"{id_},1.00" for id_ in ids]
        with killed_at(line, written):
            self.pay(prolific, tmp_path, 9.0, *rows)
        if line in (1, 3) and written:  # begun, and never asked for
            with pytest.raises(Unfinished, match="shows 0 of them"):
                self.pay(prolific, tmp_path, 9.0, *rows)
            now = time.time()
            monkeypatch.setattr(time, "time", lambda: now + 90_000)
        self.pay(prolific, tmp_path, 9.0, *rows)
        assert self.shown(prolific) == [[100], [100], [100]]

    @pytest.mark.parametrize(
        ("fault", "error"),
        [("expires", BadConfig), ("limited", Unfinished), ("refused", DriftlineError)],
    )
    def test_a_request_that_was_refused_is_asked_again(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, fault: str, error: type[Exception]
    ) -> None:
        one, *_ = self.start(prolific, batch, tmp_path)

        def stop(call: str) -> Any:
            if "/pay/" in call:
                prolific.expires, prolific.limited = (
                    (0 if fault == "expires" else None),
                    (9 if fault == "limited" else 0),
                )
                return (404, b"{}", {}) if fault == "refused" else None
            return None

        prolific.before = stop
        with pytest.raises(error):
            self.pay(prolific, tmp_path, 2.0, f"{one},1.00")
        prolific.before, prolific.expires, prolific.limited = lambda _: None, None, 0
        assert self.pay(prolific, tmp_path, 2.0, f"{one},1.00") == {"bonuses": 1, "cost_usd": 1.25}
        assert self.shown(prolific)[0] == [100]

    def test_a_journal_of_an_earlier_version_holds(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path
    ) -> None:
        one, two, _ = self.start(prolific, batch, tmp_path)
        journal = api.Journal(tmp_path / "study.jsonl")
        journal.add(step=f"bonus {one},1.0\n{two},2")
        journal.add(step=f"bonus {one},1.0\n{two},2", result={"bonuses": 2, "cost_usd": 3.75})
        assert self.pay(prolific, tmp_path, 9.0, f"{one},1.00", f"{two},2.00")["bonuses"] == 0

    @pytest.mark.parametrize(
        "row", ["{},-1", "{},nan", "{},1.005", "{},1e3", "{},0", "{},", "{}\tx,1", "{},1\n{},1.00"]
    )
    def test_a_line_that_is_no_bonus_is_refused_before_anything_is_asked(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, row: str
    ) -> None:
        with pytest.raises(BadInput, match="bonus.csv, line "):
            self.pay(prolific, tmp_path, 9.0, row.replace("{}", "sub0"))
        assert not prolific.calls


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
        return bonus(Service(prolific.url), studies, table, spend)

    table.write_text("SubmissionId,Amount\n" + "".join(f"{id_},1.00\n" for id_ in ids[1:]))
    with pytest.raises(BadConfig, match=r"cost \$3.75 with fees"):
        pay(3.0)
    assert pay(4.0) == {"bonuses": 3, "cost_usd": 3.75}
    assert pay(4.0) == {"bonuses": 0, "cost_usd": 0.0, "paid_before": 3}
    assert [prolific.bonuses[id_] for id_ in prolific.paid] == [f"{ids[1]},1.00", f"{ids[2]},1.00\n{ids[3]},1.00"]
    table.write_text(f"SubmissionId,Amount\nsub99,1.00\n{ids[0]},1.00\n")
    with pytest.raises(BadInput, match="names 1 submissions that no study of this run has, 'sub99' the first"):
        pay(4.0)


def test_what_comes_before_publish_says_so(prolific: Prolific, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="has no published study"):
        api.status(Service(prolific.url), api.Journal(tmp_path / "study.jsonl"))


def test_a_damaged_journal_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    path.write_text('{"format": 1}\nnonsense\n{"st')
    with pytest.raises(BadInput, match="line 2"):
        api.Journal(path)


def collected(prolific: Prolific, batch: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[str | None]]:
    """What `collect` says, and the fault of each answer."""
    journal = api.Journal(folder / "study.jsonl")
    result = api.collect(Service(prolific.url), journal, batch["batch"], folder / "a.csv")
    answers = read_answers(read_lines([folder / "a.csv"])[batch["batch"]], batch, "k")
    return result, answers["fault"].to_pylist()


@pytest.mark.parametrize(
    ("state", "fault"),
    [("APPROVED", None), ("AWAITING REVIEW", None), ("PARTIALLY APPROVED", None), ("REJECTED", "rejected")]
    + [(state, "returned") for state in ("RETURNED", "TIMED-OUT", "SCREENED OUT", "ACTIVE", "RESERVED", "UNKNOWN")],
)
def test_answers_are_marked_by_the_state_of_their_submission(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path, state: str, fault: str | None
) -> None:
    """Case 30."""
    publish(prolific, batch, tmp_path)
    prolific.work("ann", sorted(batch["items"])[:4], lambda item: ["bus"], status=state)
    left_out = {} if fault is None else {state.lower(): 4}
    assert collected(prolific, batch, tmp_path) == ({"answers": 4, "left_out": left_out}, [fault] * 4)


def test_who_gave_a_submission_back_may_take_part_again(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path
) -> None:
    """Case 30."""
    publish(prolific, batch, tmp_path)
    for state in ("RETURNED", "APPROVED"):
        prolific.work("ann", sorted(batch["items"])[:4], lambda item: ["bus"], status=state)
    assert sorted(collected(prolific, batch, tmp_path)[1], key=str) == [None] * 4 + ["returned"] * 4


def test_a_name_that_nothing_filled_in_is_marked(prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
    """Case 30: two people would be one."""
    publish(prolific, batch, tmp_path)
    for _ in range(2):
        prolific.work("{{%PROLIFIC_PID%}}", sorted(batch["items"])[:4], lambda item: ["bus"])
    assert collected(prolific, batch, tmp_path)[1] == ["placeholder"] * 8


def test_answers_of_a_withdrawn_study_do_not_count(prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
    publish(prolific, batch, tmp_path)
    prolific.work("ann", sorted(batch["items"])[:4], lambda item: ["bus"])
    prolific.studies.clear()
    prolific.submissions.clear()
    service, journal = Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
    with pytest.raises(DriftlineError, match="HTTP 404: .*No Study matches"):
        api.status(service, journal)
    assert collected(prolific, batch, tmp_path) == ({"answers": 4, "left_out": {"unknown": 4}}, ["returned"] * 4)


def test_a_second_answer_of_one_participant_is_a_duplicate(
    prolific: Prolific, batch: dict[str, Any], tmp_path: Path
) -> None:
    """Case 30."""
    publish(prolific, batch, tmp_path)
    for label in ("bus", "car"):
        prolific.work("ann", sorted(batch["items"])[:4], lambda item, label=label: [label])
    assert sorted(collected(prolific, batch, tmp_path)[1], key=str) == [None] * 4 + ["duplicate"] * 4


def test_a_response_without_an_item_is_refused(prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
    publish(prolific, batch, tmp_path)
    prolific.work("ann", ["x"], lambda item: ["bus"])
    prolific.responses[0]["metadata"] = None
    with pytest.raises(DriftlineError, match="names the item None"):
        api.collect(Service(prolific.url), api.Journal(tmp_path / "study.jsonl"), batch["batch"], tmp_path / "a.csv")


class TestLists:
    """Case 29: Prolific lists twenty submissions a page unless asked."""

    def start(self, prolific: Prolific, batch: dict[str, Any], folder: Path, people: int) -> list[str]:
        """A published study to which so many people answered for one image; their submissions."""
        publish(prolific, batch, folder)
        item = min(batch["items"])
        return [prolific.work(f"p{n}", [item], lambda _: ["bus"]) for n in range(people)]

    @pytest.mark.parametrize("extras", [True, False], ids=["as Prolific's tool reads it", "as documented"])
    @pytest.mark.parametrize(("people", "pages"), [(21, 1), (100, 1), (250, 3)])
    def test_all_are_collected_approved_and_paid(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, people: int, pages: int, extras: bool
    ) -> None:
        """Case 29."""
        prolific.extras = extras
        ids = self.start(prolific, batch, tmp_path, people)
        prolific.calls.clear()
        assert collected(prolific, batch, tmp_path) == ({"answers": people, "left_out": {}}, [None] * people)
        assert len(set(prolific.calls)) == len(prolific.calls) == pages + 2, "a count, the pages, the responses"
        service, journal = Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
        for _ in range(2):  # approved twice before Prolific gets to it
            prolific.slow = True
            assert api.decide(service, journal, {}, approve=True) == {"approved": people, "rejected": 0}
        prolific.slow = False
        prolific.minutes()
        assert prolific.rewards == dict.fromkeys(ids, 1)
        (tmp_path / "bonus.csv").write_text("SubmissionId,Amount\n" + "".join(f"{id_},0.01\n" for id_ in ids))
        paid = [bonus(service, [journal], tmp_path / "bonus.csv", 5.0)["bonuses"] for _ in range(2)]
        assert (paid, len(prolific.paid)) == ([people, 0], -(-people // 200))

    def test_ten_thousand_are_read_in_a_minute(self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
        """1,001 are one count and eleven pages, none asked twice: 10,000 are 101 requests, with a latency of 50 ms 5
        seconds; and at 20 a page, if Prolific gave no more, 501 requests and 25 seconds."""
        self.start(prolific, batch, tmp_path, 1001)
        service, journal = Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
        for cap, most in ((None, 12), (20, 52)):
            prolific.cap = cap
            prolific.calls.clear()
            assert len(api.submissions(service, journal)) == 1001
            assert len(set(prolific.calls)) == len(prolific.calls) == most

    @pytest.mark.parametrize("past_end", [200, 404], ids=["empty", "404"])
    @pytest.mark.parametrize(
        ("fault", "sentence"),
        [
            (lambda page, rows: rows[:-1] if page == 3 else rows, "is empty on page 4, after 249 of 250 entries"),
            (lambda page, rows: [] if page == 1 else rows, "is empty on page 1, after 0 of 250"),
            (lambda page, rows: [] if page == 3 else rows, "is empty on page 3, after 200 of 250 entries"),
            (lambda page, rows: [{"id": "sub7"}] if page == 2 else rows, "repeats entries on page 2"),
        ],
        ids=["one gone", "first page missing", "last page missing", "repeated"],
    )
    def test_pages_that_do_not_fit_stop_and_the_same_command_goes_on(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        fault: Any, sentence: str, past_end: int,
    ) -> None:  # fmt: skip
        """Case 29."""
        self.start(prolific, batch, tmp_path, 250)
        prolific.past_end = past_end
        service, journal = Service(prolific.url), api.Journal(tmp_path / "study.jsonl")
        listed = Prolific._list_submissions

        def odd(own: Prolific, query: dict[str, str]) -> tuple[int, Any]:
            status, document = listed(own, query)
            return status, document if status != 200 else {"results": fault(int(query["page"]), document["results"])}

        with monkeypatch.context() as patch:
            patch.setattr(Prolific, "_list_submissions", odd)
            with pytest.raises(Unfinished, match=sentence):
                api.decide(service, journal, {}, approve=True)
        assert api.decide(service, journal, {}, approve=True) == {"approved": 250, "rejected": 0}

    def test_people_who_come_while_pages_are_read_do_no_harm(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path
    ) -> None:
        """Case 29: a total that changes under way; the newest come last."""
        self.start(prolific, batch, tmp_path, 250)

        def comes(call: str) -> None:
            if "page=2" in call:
                prolific.work("late", [], lambda _: [])

        prolific.after = comes
        assert len(api.submissions(Service(prolific.url), api.Journal(tmp_path / "study.jsonl"))) == 251

    def test_the_stand_in_ignores_what_the_document_does_not_name(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path
    ) -> None:
        """Case 29: a client that asks in another dialect gets the first twenty, again and again."""
        ids = self.start(prolific, batch, tmp_path, 21)
        call = Service(prolific.url).call
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
        others = {f"s{n}": {"id": f"s{n}", "internal_name": None} for n in range(150)}
        prolific.studies |= others  # the newest come first
        assert publish(prolific, batch, tmp_path)["study"] == "study0"
        assert len(prolific.studies) == 151


DOCUMENT = json.loads((EXAMPLES / "prolific.json").read_text())["answers"]


def ask(prolific: Prolific, method: str, path: str, body: Any = None, token: str = "Token secret-token") -> Any:
    """(status, document) of one call of the stand-in itself."""
    data = b"" if body is None else json.dumps(body).encode()
    status, text, headers = prolific.serve(method, f"/api/v1{path}", {"Authorization": token}, data)
    assert not headers, "no header is documented"
    return status, json.loads(text)


def check_fields(page: str, document: Any, *more: str) -> None:
    """An answer has the fields that the document requires, and no others than it names."""
    page_ = DOCUMENT[page]
    for name in more:
        page_ = page_[name]
    assert set(page_["required"]) <= set(document) <= {*page_["required"], *page_.get("optional", [])}, page


def check_lists(prolific: Prolific, study: str) -> None:
    """ "List submissions", and the list of studies, which has no pages."""
    facts = DOCUMENT["List submissions"]

    def rows(**query: Any) -> list[dict[str, Any]]:
        words = "&".join(f"{name}={value}" for name, value in {"study": study, **query}.items())
        status, document = ask(prolific, "GET", f"/submissions/?{words}")
        assert (status, list(document)) == (facts["status"], facts["required"])
        return list(document["results"])

    whole = rows(page_size=500, ordering="started_at")
    for row in whole:
        check_fields("List submissions", row, "entry")
    assert {row["status"] for row in whole} == set(facts["entry"]["status"])
    assert [row["started_at"] for row in whole] == sorted(row["started_at"] for row in whole)
    assert rows(page_size=500, ordering="-started_at") == whole[::-1]
    size = facts["page_size"]
    assert rows(ordering="started_at") == rows(ordering="started_at", page=facts["page"]) == whole[:size]
    assert rows(ordering="started_at", limit=100, offset=5, cursor="x") == whole[:size], "unknown parameters"
    assert rows(ordering="started_at", page=2, page_size=7) == whole[7:14]
    for state in facts["entry"]["status"]:
        named = [row for row in whole if row["status"] == state]
        assert rows(ordering="started_at", page_size=500, status=state.replace(" ", "_").lower()) == named
    assert {row["status"] for row in rows(returned="yes", page_size=500)} == {"RETURNED"}
    assert "RETURNED" not in {row["status"] for row in rows(returned="F", page_size=500)}
    assert len(rows(submitted_from="27/11/2026")) == 0 < len(rows(submitted_before="27/11/2026"))
    assert (
        ask(prolific, "GET", "/submissions/")[0]
        == ask(prolific, "GET", f"/submissions/?study={study}&active=x")[0]
        == 400
    )
    _, counts = ask(prolific, "GET", f"/studies/{study}/submissions/counts/")
    check_fields("Count study submissions by status", counts)
    assert counts["TOTAL"] == len(whole) == sum(n for state, n in counts.items() if state != "TOTAL")
    pages = [ask(prolific, "GET", f"/studies/?page={n}&page_size=1") for n in (1, 2)]
    assert pages[0] == pages[1]
    assert list(pages[0][1]) == DOCUMENT["List all studies"]["required"]


def check_money(prolific: Prolific, study: str) -> None:
    """Decisions, approvals and bonuses: what may be sent twice, and what pays twice."""
    prolific.slow = True
    a, b, c = (prolific.work(f"q{n}", [], lambda _: []) for n in range(3))
    body = dict(DOCUMENT["Approve or reject a submission"]["request"], message="x" * 100)
    assert ask(prolific, "POST", f"/submissions/{a}/transition/", body | {"message": "x" * 99})[0] == 400
    status, answer = ask(prolific, "POST", f"/submissions/{a}/transition/", body)
    check_fields("Approve or reject a submission", answer)
    assert ask(prolific, "POST", f"/submissions/{a}/transition/", {"action": "APPROVE"}) == (status, answer)
    facts = DOCUMENT["Bulk approve submissions"]
    for _ in range(2):
        answer = ask(prolific, "POST", "/submissions/bulk-approve/", {"submission_ids": [a, b]})
        assert answer == (facts["status"], facts["text"])
        assert prolific.submissions[b]["status"] == "AWAITING REVIEW", "asynchronous"
    prolific.minutes()
    assert [prolific.rewards[id_] for id_ in (a, b, c)] == [0, 1, 0]
    assert ask(prolific, "POST", "/submissions/bulk-approve/", {"submission_ids": [b] * (facts["most"] + 1)})[0] == 400
    facts, lines = DOCUMENT["Set up bonuses"], f"{b},4.25\n{c},4.25"
    status, order = ask(prolific, "POST", "/submissions/bonus-payments/", {"study_id": study, "csv_bonuses": lines})
    check_fields("Set up bonuses", order)
    assert (status, order["amount"]) == (facts["status"], facts["example"]["amount"]), "cents"
    assert order["total_amount"] == order["amount"] + order["fees"] + order["vat"]
    many = "\n".join([f"{b},0.01"] * (facts["most"] + 1))
    for wrong in ("nobody,1.00", many):
        status, document = ask(
            prolific, "POST", "/submissions/bonus-payments/", {"study_id": study, "csv_bonuses": wrong}
        )
        assert (status, list(document)) == (400, DOCUMENT["Error"]["required"])
        assert list(document["error"]) == DOCUMENT["Error"]["detail"]
    facts = DOCUMENT["Pay bonuses"]
    for _ in range(2):
        status, text = ask(prolific, "POST", f"/bulk-bonus-payments/{order['id']}/pay/", facts["request"])
        assert (status, text.split(" with ID ")[0]) == (facts["status"], facts["text"].split(" with ID ")[0])
        assert ask(prolific, "GET", f"/submissions/{b}/")[1].get("bonus_payments") == [], "asynchronous"
    prolific.minutes()
    status, answer = ask(prolific, "GET", f"/submissions/{b}/")
    check_fields("Retrieve a submission", answer)
    assert answer["bonus_payments"] == [425, 425], "not idempotent"
    prolific.slow = False


def check_document(prolific: Prolific) -> None:
    """The stand-in answers as the document says."""
    study = list(prolific.studies)[-1]
    assert DOCUMENT["Transition a study's status"]["states"].index(prolific.studies[study]["status"]) == 2
    for n, state in enumerate(DOCUMENT["List submissions"]["entry"]["status"] * 4):
        prolific.work(f"w{n % 30}", [], lambda _: [], status=state)
    check_lists(prolific, study)
    check_money(prolific, study)
    status, document = ask(prolific, "POST", "/study-cost-calculator/", {"reward": 100, "total_available_places": 5})
    assert (status, list(document)) == (200, DOCUMENT["Calculate the study cost"]["required"])
    batch = list(prolific.batches)[-1]
    assert ask(prolific, "GET", f"/data-collection/batches/{batch}/status")[1] == {"status": "READY"}
    responses = ask(prolific, "GET", f"/data-collection/batches/{batch}/responses?page=9&page_size=1")[1]
    check_fields("Get Batch Responses", responses)
    for record in responses["results"] or []:
        check_fields("Get Batch Responses", record, "entry")
        assert list(record["response"]) == DOCUMENT["Get Batch Responses"]["entry"]["response"]
    assert ask(prolific, "GET", "/submissions/nobody/")[0] == 404
    assert ask(prolific, "GET", "/studies/", token="Bearer secret-token")[0] == 401
    prolific.limited = 1
    assert ask(prolific, "GET", "/studies/")[0] == 429


def story(prolific: Prolific, batch: dict[str, Any], folder: Path) -> Any:
    """What the client says and the service did, of a small study with 109 submissions, from publish to bonuses."""
    results: list[Any] = [publish(prolific, batch, folder)]
    items = sorted(batch["items"])
    ids = [prolific.work(f"p{n}", [items[n % 12]], lambda _: ["bus"]) for n in range(101)]
    for state in DOCUMENT["List submissions"]["entry"]["status"]:
        prolific.work(state, items[:1], lambda _: ["bus"], status=state)
    service, journal = Service(prolific.url), api.Journal(folder / "study.jsonl")
    results += [api.status(service, journal), collected(prolific, batch, folder)]
    results.append(api.decide(service, journal, {ids[0]: "all answers are wrong"}, approve=True))
    (folder / "bonus.csv").write_text(f"SubmissionId,Amount\n{ids[1]},1.00\n")
    cut_after(prolific, "POST /api/v1/bulk-bonus-payments")
    with pytest.raises(Open):
        bonus(service, [journal], folder / "bonus.csv", 2.0)
    results += [bonus(service, [journal], folder / "bonus.csv", 2.0), [*prolific.submissions.values()]]
    return results, prolific.rewards, len(prolific.calls)


class TestDocument:
    """The stand-in is checked against what the document says, and a client or a check feels every word of it."""

    def test_the_examples_have_the_fields_that_the_document_names(self) -> None:
        for page in ("Retrieve a submission", "Set up bonuses"):
            check_fields(page, DOCUMENT[page]["example"])
        check_fields("List submissions", DOCUMENT["List submissions"]["entry"]["example"], "entry")

    def test_the_stand_in_follows_the_document(self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path) -> None:
        publish(prolific, batch, tmp_path)
        prolific.work("ann", [min(batch["items"])], lambda _: ["bus"])
        check_document(prolific)

    @pytest.mark.parametrize(
        "mutation",
        [{"page": "number"}, {"page_size": "limit"}, {"ordering": "sort"}, {"study": "study_id"}, {"study_id": "study"}]
        + [{"submission_ids": "ids"}, {"action": "transition"}, {"csv_bonuses": "csv"}, {"Token": "Bearer"}]
        + [{"bonus_payments": "bonuses"}, {"TOTAL": "COUNT"}, {"PUBLISH": "START"}, {"READY": "DONE"}]
        + [{"UNPUBLISHED": "DRAFT"}, *({s: f"{s}!"} for s in DOCUMENT["List submissions"]["entry"]["status"])]
        + [{"page_size": 30}, {"page": 0}, {"approve": 90}, {"bonus": 0}, {"pay": 1}],
        ids=lambda mutation: "-".join(map(str, *mutation.items())),
    )
    def test_a_rule_that_changes_is_noticed(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        mutation: dict[str, Any], expected_story: Any,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(api, "POLLS", 2)
        (name, value), *_ = mutation.items()
        (prolific.words if isinstance(value, str) else prolific.numbers)[name] = value
        try:
            same = story(prolific, batch, tmp_path) == expected_story
            if same:
                check_document(prolific)
        except (DriftlineError, AssertionError, TypeError):
            return
        assert not same

    @pytest.fixture(scope="class")
    def expected_story(self, tmp_path_factory: pytest.TempPathFactory) -> Any:
        """Without a mutation."""
        with pytest.MonkeyPatch.context() as patch, prolific_server() as service:
            patch.setattr(api, "POLL_SECONDS", 0.0)
            patch.setenv(TOKEN, service.token)
            folder = tmp_path_factory.mktemp("story")
            return story(service, batch_in(folder), folder)


class TestBadInput:
    """Whatever the service answers, a command ends in one sentence, and the same command goes on."""

    @pytest.mark.parametrize(
        ("answer", "error", "sentence"),
        [
            ((200, b"<!doctype html><title>Maintenance</title>", {}), Unfinished, "is not JSON"),
            ((200, b'{"error": {"status": 500, "title": "secret-token"}}', {}), Unfinished, "has an error inside"),
            ((500, b"<html>", {}), Unfinished, "status 500|HTTP 500"),
            ((429, b"{}", {}), Unfinished, "did not answer .*status 429"),
            ((429, b"{}", {"Retry-After": "99999999999"}), Unfinished, "asks to wait for 31,622,400 seconds"),
            ((429, b"{}", {"Retry-After": "soon, \xff"}), Unfinished, "did not answer .*status 429"),
            ((401, b"{}", {}), BadConfig, "Export another one. The same command continues"),
        ],
        ids=["HTML", "error inside", "500", "429", "429 for a year", "429 for nonsense", "token expired"],
    )
    def test_from_any_call_on(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        answer: Any, error: type[Exception], sentence: str,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(prolific_service, "TRIES", 2)
        now, days = time.time(), 0

        def broken_from(number: int, command: Any) -> bool:
            """Run a command whose calls from `number` on get that answer, then undisturbed; whether it came so far."""
            nonlocal days
            end = len(prolific.calls) + number
            prolific.before = lambda call: answer if len(prolific.calls) > end and "/s3/" not in call else None
            failure: Exception | None = None
            try:
                command()
            except error as stopped:
                failure = stopped
            prolific.before = lambda _: None
            days += 2  # bonuses that nobody knows of
            monkeypatch.setattr(time, "time", lambda: now + days * 86_400)
            command()
            if failure is not None:
                assert re.search(sentence, str(failure))
                assert "secret-token" not in str(failure)
            return failure is not None

        for number in count():
            another = batch | {"batch": f"b{number}"}
            if not broken_from(number, lambda: publish(prolific, another, tmp_path / another["batch"])):  # noqa: B023
                break
        assert (number, prolific.published) == (13, 14)
        prolific.calls.clear()
        folder, item = tmp_path / another["batch"], min(batch["items"])
        service, journal = Service(prolific.url), api.Journal(folder / "study.jsonl")

        def pay() -> None:
            (folder / "bonus.csv").write_text("SubmissionId,Amount\n" + "".join(f"{id_},1.00\n" for id_ in ids))
            bonus(service, [api.Journal(folder / "study.jsonl")], folder / "bonus.csv", 99.0)

        ids: list[str] = []
        for command, calls in (
            (lambda: api.collect(service, journal, "b", folder / "a.csv"), 3),
            (lambda: api.decide(service, journal, {}, True), 3),
            (pay, 4),
        ):
            for number in range(calls + 1):
                ids.append(prolific.work(f"p{len(ids)}", [item], lambda _: ["bus"]))
                assert broken_from(number, command) == (number < calls)
        prolific.minutes()
        assert [one["bonus_payments"] for one in prolific.submissions.values()] == [[100]] * len(ids)
        assert set(prolific.rewards.values()) == {1}

    TEXTS = (None, "", "\u202e\U0001d11e\x00\r\n", "\ud800", 7, ["x"])

    @pytest.mark.parametrize(
        ("call", "place"),
        [("/submissions/?", f"results.0.{name}") for name in SHORT]
        + [("/responses", f"results.0.{name}") for name in ("id", "participant_id", "submission_id", "task_id")]
        + [("/responses", f"results.0.{name}") for name in ("metadata", "metadata.item", "response")]
        + [("/responses", f"results.0.response.{name}") for name in ("instruction_id", "answer", "answer.0.value")]
        + [("/responses", "results"), ("/responses", "meta"), ("/submissions/?", "results"), ("/counts/", "TOTAL")],
    )
    def test_any_text_in_any_field(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, call: str, place: str
    ) -> None:
        publish(prolific, batch, tmp_path)
        for who in ("ann", "bob"):
            prolific.work(who, sorted(batch["items"])[:2], lambda _: ["bus"])

        def edit(done: str, document: Any) -> Any:
            if call in done:
                document = deepcopy(document)
                *path, last = (int(word) if word.isdigit() else word for word in place.split("."))
                value = document
                for word in path:
                    value = value[word]
                value[last] = text
            return document

        journal = api.Journal(tmp_path / "study.jsonl")
        for text in self.TEXTS:  # noqa: B007, read by edit
            prolific.edit = edit
            with suppress(DriftlineError):
                api.collect(Service(prolific.url), journal, batch["batch"], tmp_path / "a.csv")
            prolific.edit = lambda _, document: document
            result, faults = collected(prolific, batch, tmp_path)
            assert (result, faults.count(None)) == ({"answers": 4, "left_out": {}}, 4)

    @pytest.mark.parametrize("text", [None, "", "DRAFT", "\u202e\x00", 7])
    def test_a_state_that_is_none_publishes_nothing(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, text: Any
    ) -> None:
        prolific.edit = lambda call, document: (
            document | {"status": text} if call == "GET /api/v1/studies/study0/" else document
        )
        with pytest.raises(BadInput, match="says that the study is"):
            publish(prolific, batch, tmp_path)
        prolific.edit = lambda _, document: document
        publish(prolific, batch, tmp_path)
        assert prolific.published == 1

    @pytest.mark.parametrize("cents", [float("nan"), 1e9, None, "much"])
    def test_a_price_that_is_none_publishes_nothing(
        self, prolific: Prolific, batch: dict[str, Any], tmp_path: Path, cents: Any
    ) -> None:
        prolific.edit = lambda call, document: {"total_cost": cents} if "cost" in call else document
        with pytest.raises(DriftlineError):
            publish(prolific, batch, tmp_path)
        assert prolific.published == 0
