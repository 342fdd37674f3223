"""Judges: an endpoint with every fault, answers that are paid once, CLIP, and what they decide without people."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.campaigns import answers_table
from support.vision_server import Vision, vision_server

from driftline.curate.core.errors import BadConfig, Unfinished
from driftline.curate.core.run_log import RunLog
from driftline.curate.retrieval.settings import Concept
from driftline.curate.store.database import Place
from driftline.curate.validation import judges
from driftline.curate.validation.answers.answers import people_of, read_answers
from driftline.curate.validation.answers.stored import StoredAnswers, options_of
from driftline.curate.validation.answers.verdicts import agreement_texts, tally
from driftline.curate.validation.judges import Alone, ask_endpoint, decided_alone, judged, question_of, zero_shot
from driftline.curate.validation.settings import JudgeSettings, ValidationSettings

CONCEPTS = [Concept(name="bus", prompts=("bus",), examples=("tram",)), Concept(name="car", prompts=("car",))]
GOOD = {"labels": ["bus"], "sensitive": False}


def sha(id_: str) -> str:
    return f"{int(id_[1:]):064x}"


def stored(folder: Path) -> StoredAnswers:
    return StoredAnswers(
        Place(folder / "store"), folder, options_of(CONCEPTS), lambda ids: {i: sha(i) for i in ids}, "key"
    )


def ask(folder: Path, vision: Vision, images: int = 3, **settings: Any) -> dict[str, Any]:
    """The answers about some images, whose bytes are their ids."""
    judge = JudgeSettings(name="vlm", url=vision.url, model=settings.pop("model", "vision-1"), **settings)
    photos = {f"p{i}": sha(f"p{i}") for i in range(images)}
    question = question_of(CONCEPTS, "What is it?")
    return ask_endpoint(judge, question, photos, lambda id_: (id_.encode(), "jpg"), stored(folder), RunLog(quiet=True))


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "BACKOFF", 0.01)


def test_every_image_is_answered_once_by_content_question_and_model(tmp_path: Path) -> None:
    def sees(image: bytes) -> Any:
        return GOOD | {"labels": ["car"]} if image == b"p1" else GOOD

    with vision_server(sees=sees) as vision:
        said = ask(tmp_path, vision)
        assert [said[sha(f"p{i}")] for i in range(3)] == [([c], False, None) for c in ("bus", "car", "bus")]
        assert "bus" in json.dumps(vision.bodies[0]["messages"])
        ask(tmp_path, vision, 5)
        assert len(vision.bodies) == 5
        vision.known = "vision-2"
        ask(tmp_path, vision, 1, model="vision-2")
        assert len(vision.bodies) == 6


def test_equal_images_are_asked_once(tmp_path: Path) -> None:
    with vision_server() as vision:
        judge = JudgeSettings(name="vlm", url=vision.url, model="vision-1")
        photos, question = {"a": sha("p1"), "b": sha("p1")}, question_of(CONCEPTS, "?")
        ask_endpoint(judge, question, photos, lambda i: (b"x", "png"), stored(tmp_path), RunLog(quiet=True))
        assert len(vision.bodies) == 1


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("I think it is a bus.", "unreadable"),
        ('{"answer": "bus"}', "unreadable"),
        ("[]", "unreadable"),
        (GOOD | {"labels": "bus"}, "unreadable"),
        (GOOD | {"labels": [["bus"]]}, "unreadable"),
        (GOOD | {"labels": [None]}, "unknown_label"),
        (GOOD | {"sensitive": "no"}, "unreadable"),
        (GOOD | {"labels": ["tram"]}, "unknown_label"),
        (GOOD | {"labels": ["bus", "none"]}, "contradiction"),
        (GOOD | {"labels": []}, "empty"),
        ("[" * 100_000, "unreadable"),
    ],
)
def test_what_is_no_answer_is_kept_with_its_fault_and_not_paid_again(tmp_path: Path, said: Any, fault: str) -> None:
    with vision_server(sees=lambda image: said) as vision:
        for _ in range(2):
            assert ask(tmp_path, vision, 1)[sha("p0")] == ([], False, fault)
        assert len(vision.bodies) == 1


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"refusal": "I cannot help."}, "refused"),
        ({"finish": "content_filter"}, "refused"),
        ({"finish": "length"}, "cut"),
        ({"moods": ["null"]}, "unreadable"),
    ],
)
def test_a_refusal_is_no_answer(tmp_path: Path, values: dict[str, Any], fault: str) -> None:
    with vision_server(**values) as vision:
        assert ask(tmp_path, vision, 1)[sha("p0")][2] == fault


@pytest.mark.parametrize("mood", ["500", "429 bare", "slow", "cut", "broken", "protocol", "list", "error in 200"])
def test_a_passing_fault_is_asked_again(tmp_path: Path, mood: str) -> None:
    with vision_server(moods=[mood]) as vision:
        assert ask(tmp_path, vision, 1, timeout=0.8 if mood == "slow" else 10)[sha("p0")][0] == ["bus"]
        assert len(vision.bodies) == 2


def test_an_account_without_credit_or_a_key_that_expires_keeps_the_answers_so_far(tmp_path, monkeypatch):
    monkeypatch.setenv("VLM_KEY", "sk-secret")
    for mood, error, words in (("quota", Unfinished, "no credit left"), ("401", BadConfig, "answers HTTP 401")):
        folder = tmp_path / mood
        folder.mkdir()
        with vision_server(key="sk-secret", moods=["", mood]) as vision:
            with pytest.raises(error, match=words) as caught:
                ask(folder, vision, 3, in_flight=1, key_variable="VLM_KEY")
            assert "sk-secret" not in str(caught.value)
            assert len(ask(folder, vision, 3, key_variable="VLM_KEY")) == 3
            assert len(vision.bodies) == 2 + 2, "the answer before was not paid again"
        assert not any(b"sk-secret" in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_lasting_fault_names_what_is_missing_and_keeps_the_rest(tmp_path: Path) -> None:
    with vision_server(moods=["500", "500"]) as vision:
        with pytest.raises(Unfinished, match=r"1 of 3 images have no answer of the judge 'vlm' \(1 HTTP 500\)"):
            ask(tmp_path, vision, retries=1, in_flight=1)
        assert len(ask(tmp_path, vision)) == 3
        assert len(vision.bodies) == 2 + 2 + 1


def test_nobody_there_an_unset_key_and_a_redirect_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("VLM_KEY", raising=False)
    with pytest.raises(Unfinished, match="3 connections lost"):
        ask(tmp_path, Vision(address="http://127.0.0.1:9"), retries=0)
    with vision_server(moods=["redirect"]) as vision:
        with pytest.raises(BadConfig, match="export VLM_KEY=…"):
            ask(tmp_path, vision, key_variable="VLM_KEY")
        with pytest.raises(BadConfig, match="HTTP 307"):
            ask(tmp_path, vision, 1)


def test_clip_answers_only_where_one_concept_is_ahead(tmp_path: Path) -> None:
    queries = np.eye(3, dtype=np.float32)  # the first concept has two queries
    images = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.2], [0.0, 0.1, 0.9], [0.5, 0.0, 0.49]], np.float32)
    assert zero_shot(images, queries, [0, 2], 0.02).tolist() == [0, 0, 1, -1]
    assert zero_shot(images, queries[:1], [0], 0.02).tolist() == [-1] * 4
    settings = ValidationSettings(judges=(JudgeSettings(name="m", kind="clip"),))
    ids = [f"p{i}" for i in range(4)]
    table = judged(settings, CONCEPTS, ids, lambda i: (b"", ""), lambda some: images, queries[:2], stored(tmp_path),
                   RunLog(quiet=True))  # fmt: skip
    rows = [(row["id"], row["worker"], row["labels"]) for row in table.to_pylist()]
    assert ("p0", "judge:m", ["bus"]) in rows
    assert "p2" not in {id_ for id_, *_ in rows} or ("p2", "judge:m", ["car"]) in rows


ITEMS = [{"id": f"p{i}", "bucket": 0, "concept": "bus"} for i in range(40)]
RULES = ValidationSettings(
    judges=tuple(JudgeSettings(name=name, kind="clip") for name in "ab"), skip_people="agreed", audit_share=0.1
)


def said(*others: tuple[str, str, str]) -> pa.Table:
    """Two judges who say "bus" to everything. others: (id, judge, label) instead."""
    labels = {(item["id"], judge): "bus" for item in ITEMS for judge in ("judge:a", "judge:b")}
    labels |= {(id_, judge): label for id_, judge, label in others}
    return answers_table([(id_, judge, [label]) for (id_, judge), label in labels.items()])


def test_judges_alone_are_no_quorum_wherever_their_answers_come_from() -> None:
    everything = answers_table([("p0", f"judge:{j}", ["bus"]) for j in "jklmn"])
    assert tally(ITEMS[:1], everything, ValidationSettings())["decision"].to_pylist() == ["pending"]
    batch = {"batch": "b", "items": {"i": "p0"}, "concepts": ["bus"]}
    cells = {"Input.item": "i", "Answer.labels": "bus"}
    table = read_answers([("f", cells | {"WorkerId": who}) for who in ("judge:x", "ann")], batch, "key")
    assert people_of(table) == {"p0": 1}
    assert "judge:x" in table["worker"].to_pylist(), "a judge's name is no secret"


def test_what_judges_differ_on_or_call_sensitive_goes_to_people_and_a_tenth_of_the_rest_too() -> None:
    answers = said(("p1", "judge:b", "car"))
    rows = [row | {"sensitive": row["id"] == "p2"} for row in answers.to_pylist() if row["id"] != "p3"]
    rows += [row for row in answers.to_pylist() if (row["id"], row["worker"]) == ("p3", "judge:a")]
    alone = decided_alone(pa.Table.from_pylist(rows, answers.schema), RULES, 0)
    assert {item["id"] for item in ITEMS} - alone.decided.keys() == {"p1", "p2", "p3"}
    assert len(alone.audited) == 4, "a share of 37 rounded up"
    assert [alone.asks(id_) for id_ in ("p1", next(iter(alone.audited)))] == [True, True]
    assert not all(alone.asks(item["id"]) for item in ITEMS)
    assert decided_alone(answers, RULES.model_copy(update={"skip_people": "never"}), 0) == Alone()
    drawn = {id_ for seed in range(60) for id_ in decided_alone(said(), RULES, seed).audited}
    assert len(drawn) == len(ITEMS), "every image may be drawn"


def test_an_audit_counts_what_people_confirm_and_its_bound_is_exact() -> None:
    """9 of 10: the p for which 9 or 10 of 10 come in 5 % of draws solves 10 p⁹ (1 - p) + p¹⁰ = .05."""
    alone = Alone({f"p{i}": frozenset({"bus"}) for i in range(40)}, frozenset(f"p{i}" for i in range(12)))
    people = answers_table([(f"p{i}", w, ["car" if i == 9 else "bus"]) for i in range(10) for w in "abc"])
    found = alone.audit(ITEMS, people, ValidationSettings())
    assert (found["images"], found["confirmed"]) == (10, 9), "two were not answered"
    p = found["precision_low"]
    assert 10 * p**9 * (1 - p) + p**10 == pytest.approx(0.05)
    facts = {"judges": ["a"], "kept_labels": 40, "unseen_labels": 30, "audit": found}
    (text,) = agreement_texts({"judged": facts})
    assert "of 10 images that models had accepted, drawn at random, people confirmed 9: a precision of 90.0%" in text
    assert "at least 60.6% (95 %, Clopper–Pearson)" in text
