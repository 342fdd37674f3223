"""MTurk's API against a server on loopback that speaks its protocol: never paid twice, nothing lost, reasons given."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.mturk_server import NAMESPACE, Turk, serve

from curate.core.errors import BadConfig, BadInput
from curate.retrieval.settings import Concept
from curate.validation.answers import fields_of, read_answers, read_lines
from curate.validation.batches import question_page
from curate.validation.mturk import (
    Plan,
    RunLog,
    approve,
    client,
    collect,
    publish,
    question,
    read_rejections,
    status,
)

CONCEPTS = [Concept(name="bus", prompts=("bus",), option="bus"), Concept(name="car", prompts=("car",), option="car")]
PAGE = question_page(CONCEPTS)
BATCH = {"batch": "b1", "items": {f"i{n}": f"p{n}" for n in range(5)}, "concepts": ["bus", "car"]}
PLAN = Plan("Which?", "Tick what you see.", 0.02, 3)
ADDRESSES = {item: f"https://images.example/{item}.jpg?a=1&b=2" for item in BATCH["items"]}


@pytest.fixture
def turk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turk]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with serve(Turk()) as running:
        yield running


def publish_all(turk: Turk, folder: Path, **how: Any) -> int:
    run_log = RunLog(folder / "run_log.jsonl")
    return publish(client(turk.endpoint), turk.endpoint, BATCH, PAGE, ADDRESSES, PLAN, run_log, lambda n: None, **how)


def test_every_item_is_published_once_however_often_one_asks(turk: Turk, tmp_path: Path) -> None:
    assert publish_all(turk, tmp_path) == 5
    assert publish_all(turk, tmp_path) == 0
    assert len(turk.hits) == 5
    assert {h["MaxAssignments"] for h in turk.hits.values()} == {3}


def test_an_answer_that_got_lost_is_asked_for_again_with_the_same_token(turk: Turk, tmp_path: Path) -> None:
    cuts = iter([True])

    def cut_once(operation: str) -> None:
        if operation == "CreateHITWithHITType" and next(cuts, False):
            raise ConnectionError

    turk.after = cut_once
    assert publish_all(turk, tmp_path) == 5
    assert len(turk.hits) == 5


@pytest.mark.parametrize("forgets", [False, True], ids=["within a day", "after the token expired"])
def test_a_kill_after_publishing_and_before_knowing_pays_once(turk: Turk, tmp_path: Path, forgets: bool) -> None:
    """The journal says "asking" and no more: the service is asked for the token, and nothing is made again."""

    class Killed(Exception):
        pass

    service = client(turk.endpoint)
    original = service.create_hit_with_hit_type

    def dies_after_the_third(**asked: Any) -> Any:
        answer = original(**asked)
        if len(turk.hits) == 3:
            raise Killed
        return answer

    service.create_hit_with_hit_type = dies_after_the_third
    run_log = RunLog(tmp_path / "run_log.jsonl")
    with pytest.raises(Killed):
        publish(service, turk.endpoint, BATCH, PAGE, ADDRESSES, PLAN, run_log, lambda n: None)
    turk.forgets_tokens = forgets
    assert publish_all(turk, tmp_path) == 2
    assert len(turk.hits) == 5
    assert len(set(RunLog(tmp_path / "run_log.jsonl").hits().values())) == 5


def test_half_a_line_of_the_journal_is_a_call_that_was_not_made(turk: Turk, tmp_path: Path) -> None:
    publish_all(turk, tmp_path)
    path = tmp_path / "run_log.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rfind(b'{"event": "hit"') + 9])
    assert publish_all(turk, tmp_path) == 0
    assert len(turk.hits) == 5


def test_answers_come_back_through_the_same_importer(turk: Turk, tmp_path: Path) -> None:
    publish_all(turk, tmp_path)
    run_log = RunLog(tmp_path / "run_log.jsonl")
    for item, hit in run_log.hits().items():
        for worker in ("ann", "bob", "eve"):
            turk.work(
                hit, worker, "bus|car" if (item, worker) == ("i0", "eve") else "bus", "yes" if item == "i1" else "no"
            )
    service = client(turk.endpoint)
    assert collect(service, run_log, "b1", tmp_path / "results.csv") == 15
    table = read_answers(read_lines([tmp_path / "results.csv"])[BATCH["batch"]], BATCH, "key")
    assert table["fault"].null_count == 15
    assert sorted({tuple(labels) for labels in table["labels"].to_pylist()}) == [("bus",), ("bus", "car")]
    assert sum(table["sensitive"].to_pylist()) == 3
    assert set(table["seconds"].to_pylist()) == {12}
    before = (tmp_path / "results.csv").read_bytes()
    collect(service, run_log, "b1", tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_bytes() == before


def test_approval_pays_for_all_but_the_rejected_who_are_told_why(turk: Turk, tmp_path: Path) -> None:
    publish_all(turk, tmp_path)
    run_log = RunLog(tmp_path / "run_log.jsonl")
    ids = [turk.work(hit, "ann", "bus") for hit in run_log.hits().values()]
    with (tmp_path / "reject.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["AssignmentId", "Reject"], [ids[0], "failed the gold questions"], [ids[1], ""]])
    service = client(turk.endpoint)
    rejected = read_rejections(tmp_path / "reject.csv")
    assert approve(service, run_log, rejected) == {"approved": 4, "rejected": 1}
    assert turk.feedback[ids[0]] == "failed the gold questions"
    assert approve(service, run_log, rejected) == {"approved": 0, "rejected": 0}
    assert status(service, run_log, PLAN) == {"hits": 5, "expected": 15, "approved": 4, "rejected": 1}


class TestMoney:
    def test_the_estimate_has_amazons_least_fee(self) -> None:
        assert PLAN.cost(100) == 9.0

    @pytest.mark.parametrize("limit", [None, 0.3])
    def test_production_needs_a_limit_above_the_estimate(self, turk: Turk, tmp_path: Path, limit: float | None) -> None:
        with pytest.raises(BadConfig, match=r"costs about \$0\.45; --max-spend"):
            publish_all(turk, tmp_path, production=True, max_spend=limit)
        assert not turk.hits

    def test_a_batch_goes_on_where_it_began(self, turk: Turk, tmp_path: Path) -> None:
        publish_all(turk, tmp_path)
        with serve(Turk()) as other, pytest.raises(BadConfig, match="was published at"):
            publish_all(other, tmp_path)

    def test_images_that_browsers_refuse_are_refused_before(self, turk: Turk, tmp_path: Path) -> None:
        plain = dict.fromkeys(ADDRESSES, "http://images.example/x.jpg")
        with pytest.raises(BadConfig, match="is not https"):
            publish(
                client(turk.endpoint), turk.endpoint, BATCH, PAGE, plain, PLAN, RunLog(tmp_path / "j"), lambda n: None
            )


class TestDocuments:
    def test_a_question_cannot_end_its_cdata(self) -> None:
        import xml.etree.ElementTree as ElementTree

        text = question(PAGE + "]]><evil/>", "https://x/y.jpg", "i1", "https://w/submit")
        content = ElementTree.fromstring(text)[0].text or ""
        assert "]]><evil/>" in content
        assert 'action="https://w/submit"' in content
        assert 'name="assignmentId"' in content

    def test_a_question_that_is_too_large_is_an_error(self) -> None:
        with pytest.raises(BadConfig, match="MTurk takes 65,535"):
            question(PAGE + "x" * 70_000, "https://x/y.jpg", "i1", "https://w/submit")

    def test_answers_with_entities_are_refused(self) -> None:
        with pytest.raises(BadInput, match="document type"):
            fields_of('<!DOCTYPE x [<!ENTITY a "b">]><QuestionFormAnswers/>')
        with pytest.raises(BadInput, match="cannot be read"):
            fields_of("<Question")

    def test_repeated_selections_are_one_answer(self) -> None:
        chosen = "<SelectionIdentifier>bus</SelectionIdentifier><SelectionIdentifier>car</SelectionIdentifier>"
        answer = f"<Answer><QuestionIdentifier>labels</QuestionIdentifier>{chosen}</Answer>"
        document = f'<QuestionFormAnswers xmlns="{NAMESPACE}">{answer}</QuestionFormAnswers>'
        assert fields_of(document) == {"labels": "bus|car"}
