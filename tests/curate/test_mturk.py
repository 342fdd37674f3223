"""MTurk's API against a server on loopback: nothing is paid twice or lost, rejections have reasons."""

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
    Journal,
    Plan,
    approve,
    client,
    collect,
    publish,
    question_xml,
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
    journal = Journal(folder / "journal.jsonl")
    return publish(client(turk.endpoint), turk.endpoint, BATCH, PAGE, ADDRESSES, PLAN, journal, lambda n: None, **how)


def test_every_item_is_published_once_by_repeated_calls(turk: Turk, tmp_path: Path) -> None:
    assert publish_all(turk, tmp_path) == 5
    assert publish_all(turk, tmp_path) == 0
    assert len(turk.hits) == 5
    assert {h["MaxAssignments"] for h in turk.hits.values()} == {3}


def test_a_lost_response_is_requested_again_with_the_same_token(turk: Turk, tmp_path: Path) -> None:
    cuts = iter([True])

    def cut_once(operation: str) -> None:
        if operation == "CreateHITWithHITType" and next(cuts, False):
            raise ConnectionError

    turk.after = cut_once
    assert publish_all(turk, tmp_path) == 5
    assert len(turk.hits) == 5


@pytest.mark.parametrize("forgets", [False, True], ids=["within a day", "after the token expired"])
def test_a_kill_between_request_and_response_pays_once(turk: Turk, tmp_path: Path, forgets: bool) -> None:
    """The journal ends with "asking": the service is asked for the token, and nothing is published again."""

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
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(Killed):
        publish(service, turk.endpoint, BATCH, PAGE, ADDRESSES, PLAN, journal, lambda n: None)
    turk.forgets_tokens = forgets
    assert publish_all(turk, tmp_path) == 2
    assert len(turk.hits) == 5
    assert len(set(Journal(tmp_path / "journal.jsonl").hits().values())) == 5


def test_an_incomplete_line_of_the_journal_is_a_call_that_was_not_made(turk: Turk, tmp_path: Path) -> None:
    publish_all(turk, tmp_path)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rfind(b'{"event": "hit"') + 9])
    assert publish_all(turk, tmp_path) == 0
    assert len(turk.hits) == 5


def test_collected_answers_are_read_like_downloaded_ones(turk: Turk, tmp_path: Path) -> None:
    publish_all(turk, tmp_path)
    journal = Journal(tmp_path / "journal.jsonl")
    for item, hit in journal.hits().items():
        for worker in ("ann", "bob", "eve"):
            turk.work(
                hit, worker, "bus|car" if (item, worker) == ("i0", "eve") else "bus", "yes" if item == "i1" else "no"
            )
    service = client(turk.endpoint)
    assert collect(service, journal, "b1", tmp_path / "results.csv") == 15
    table = read_answers(read_lines([tmp_path / "results.csv"])[BATCH["batch"]], BATCH, "key")
    assert table["fault"].null_count == 15
    assert sorted({tuple(labels) for labels in table["labels"].to_pylist()}) == [("bus",), ("bus", "car")]
    assert sum(table["sensitive"].to_pylist()) == 3
    assert set(table["seconds"].to_pylist()) == {12}
    before = (tmp_path / "results.csv").read_bytes()
    collect(service, journal, "b1", tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_bytes() == before


def test_approval_pays_all_but_the_rejected_who_get_a_reason(turk: Turk, tmp_path: Path) -> None:
    publish_all(turk, tmp_path)
    journal = Journal(tmp_path / "journal.jsonl")
    ids = [turk.work(hit, "ann", "bus") for hit in journal.hits().values()]
    with (tmp_path / "reject.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["AssignmentId", "Reject"], [ids[0], "failed the gold questions"], [ids[1], ""]])
    service = client(turk.endpoint)
    rejected = read_rejections(tmp_path / "reject.csv")
    assert approve(service, journal, rejected) == {"approved": 4, "rejected": 1}
    assert turk.feedback[ids[0]] == "failed the gold questions"
    assert approve(service, journal, rejected) == {"approved": 0, "rejected": 0}
    assert status(service, journal, PLAN) == {"hits": 5, "expected": 15, "approved": 4, "rejected": 1}


class TestMoney:
    def test_the_estimate_includes_the_minimum_fee(self) -> None:
        assert PLAN.cost(100) == 9.0

    @pytest.mark.parametrize("limit", [None, 0.3])
    def test_production_needs_a_limit_above_the_estimate(self, turk: Turk, tmp_path: Path, limit: float | None) -> None:
        with pytest.raises(BadConfig, match=r"costs about \$0\.45; --max-spend"):
            publish_all(turk, tmp_path, production=True, max_spend=limit)
        assert not turk.hits

    def test_a_batch_stays_at_its_endpoint(self, turk: Turk, tmp_path: Path) -> None:
        publish_all(turk, tmp_path)
        with serve(Turk()) as other, pytest.raises(BadConfig, match="was published at"):
            publish_all(other, tmp_path)

    def test_image_addresses_that_browsers_refuse_are_an_error(self, turk: Turk, tmp_path: Path) -> None:
        plain = dict.fromkeys(ADDRESSES, "http://images.example/x.jpg")
        with pytest.raises(BadConfig, match="is not https"):
            publish(
                client(turk.endpoint), turk.endpoint, BATCH, PAGE, plain, PLAN, Journal(tmp_path / "j"), lambda n: None
            )


class TestDocuments:
    def test_a_question_cannot_end_its_cdata(self) -> None:
        import xml.etree.ElementTree as ElementTree

        text = question_xml(PAGE + "]]><evil/>", "https://x/y.jpg", "i1", "https://w/submit")
        content = ElementTree.fromstring(text)[0].text or ""
        assert "]]><evil/>" in content
        assert 'action="https://w/submit"' in content
        assert 'name="assignmentId"' in content

    def test_a_question_that_is_too_large_is_an_error(self) -> None:
        with pytest.raises(BadConfig, match="Expected at most 65,535"):
            question_xml(PAGE + "x" * 70_000, "https://x/y.jpg", "i1", "https://w/submit")

    def test_answers_with_xml_entities_are_refused(self) -> None:
        with pytest.raises(BadInput, match="document type"):
            fields_of('<!DOCTYPE x [<!ENTITY a "b">]><QuestionFormAnswers/>')
        with pytest.raises(BadInput, match="cannot be read"):
            fields_of("<Question")

    def test_repeated_selections_are_one_answer(self) -> None:
        chosen = "<SelectionIdentifier>bus</SelectionIdentifier><SelectionIdentifier>car</SelectionIdentifier>"
        answer = f"<Answer><QuestionIdentifier>labels</QuestionIdentifier>{chosen}</Answer>"
        document = f'<QuestionFormAnswers xmlns="{NAMESPACE}">{answer}</QuestionFormAnswers>'
        assert fields_of(document) == {"labels": "bus|car"}
