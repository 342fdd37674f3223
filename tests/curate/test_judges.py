"""Model judges: an endpoint with every fault, answers that are paid once, the margin and the student."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from support.vision_server import Vision, vision_server

from driftline.curate.core.errors import BadConfig, BadInput, Unfinished
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.judging import endpoint
from driftline.curate.validation.judging.cache import AnswerCache
from driftline.curate.validation.judging.endpoint import ask_endpoint
from driftline.curate.validation.judging.opinions import of_endpoint, table_of, worker_columns
from driftline.curate.validation.judging.question import question_of
from driftline.curate.validation.judging.settings import JudgeSettings
from driftline.curate.validation.judging.student import cross_fitted
from driftline.curate.validation.judging.zero_shot import zero_shot

CONCEPTS = [Concept(name="bus", prompts=("bus",), examples=("tram",)), Concept(name="car", prompts=("car",))]
QUESTION = question_of(CONCEPTS, "What is it?")
GOOD = {"labels": ["bus"], "sensitive": False, "confidence": 0.9}
PRICES = {"usd_per_million_in": 100.0, "usd_per_million_out": 1000.0}  # $0.20 for an answer of the server


def ask(folder: Path, vision: Vision, images: int = 3, **settings: Any) -> dict[str, dict[str, Any]]:
    """The answers about some images, whose bytes are their ids."""
    judge = JudgeSettings(name="vlm", url=vision.url, model=settings.pop("model", "vision-1"), **settings)
    cache = AnswerCache(folder / "answers.jsonl")
    known = {f"p{i}": f"sha{i}" for i in range(images)}
    return ask_endpoint(judge, QUESTION, known, lambda id_: (id_.encode(), "jpg"), cache, lambda n: None)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "BACKOFF", 0.01)


def test_every_image_is_answered_with_prompt_and_model(tmp_path: Path) -> None:
    def sees(image: bytes) -> Any:
        return GOOD | {"labels": ["car"]} if image == b"p1" else GOOD

    with vision_server(sees=sees) as vision:
        said = ask(tmp_path, vision)
    assert [said[f"p{i}"]["labels"] for i in range(3)] == [["bus"], ["car"], ["bus"]]
    assert {entry["question"] for entry in said.values()} == {QUESTION.fingerprint}
    assert {entry["reported"] for entry in said.values()} == {"vision-1"}
    assert "bus" in json.dumps(vision.bodies[0]["messages"])


def test_no_image_is_asked_twice(tmp_path: Path) -> None:
    with vision_server() as vision:
        ask(tmp_path, vision)
        ask(tmp_path, vision, 5)
        assert len(vision.bodies) == 5


def test_another_question_or_model_is_asked_again(tmp_path: Path) -> None:
    other = question_of(CONCEPTS[:1], "What is it?")
    assert other.fingerprint != QUESTION.fingerprint
    judge = JudgeSettings(name="vlm", url="http://127.0.0.1:9/v1", model="m")
    cache = AnswerCache(tmp_path / "a.jsonl")
    cache.add(**_entry("m"))
    assert ask_endpoint(judge, QUESTION, {"p": "sha0"}, lambda id_: (b"", ""), cache, lambda n: None)
    for changed, question in ((judge, other), (judge.model_copy(update={"model": "n", "retries": 0}), QUESTION)):
        with pytest.raises(Unfinished):
            ask_endpoint(
                changed.model_copy(update={"retries": 0}), question, {"p": "sha0"}, lambda id_: (b"", ""), cache,
                lambda n: None,
            )  # fmt: skip


def _entry(model: str, reported: str = "m", labels: tuple[str, ...] = ("bus",)) -> dict[str, Any]:
    return {
        "image": "sha0", "question": QUESTION.fingerprint, "judge": "vlm", "requested": model, "reported": reported,
        "model": "x", "labels": list(labels), "sensitive": False, "confidence": 0.9, "fault": None, "usd": 0.2,
    }  # fmt: skip


def test_equal_images_are_asked_once(tmp_path: Path) -> None:
    with vision_server() as vision:
        judge = JudgeSettings(name="vlm", url=vision.url, model="vision-1")
        cache = AnswerCache(tmp_path / "a.jsonl")
        said = ask_endpoint(judge, QUESTION, {"a": "s", "b": "s"}, lambda i: (b"x", "png"), cache, lambda n: None)
        assert (len(vision.bodies), set(said)) == (1, {"a", "b"})


def test_64_requests_are_in_flight(tmp_path: Path) -> None:
    together = Barrier(64, timeout=30)  # no image is answered before 64 are asked

    def sees(image: bytes) -> Any:
        together.wait()
        return GOOD

    with vision_server(sees=sees) as vision:
        assert len(ask(tmp_path, vision, 64)) == 64


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("I think it is a bus.", "not_json"),
        ('{"labels": ["bus"]', "not_json"),
        ('{"answer": "bus"}', "other_schema"),
        ("[]", "other_schema"),
        (GOOD | {"labels": "bus"}, "other_schema"),
        (GOOD | {"confidence": True}, "other_schema"),
        (GOOD | {"confidence": 7}, "other_schema"),
        (GOOD | {"sensitive": "no"}, "other_schema"),
        (GOOD | {"labels": ["tram"]}, "unknown_label"),
        (GOOD | {"labels": ["bus", "none"]}, "contradiction"),
        (GOOD | {"labels": []}, "empty"),
        ("[" * 100_000, "not_json"),
    ],
)
def test_what_is_no_answer_is_kept_with_its_fault_and_not_paid_again(tmp_path: Path, said: Any, fault: str) -> None:
    with vision_server(sees=lambda image: said) as vision:
        entry = ask(tmp_path, vision, 1)["p0"]
        assert (entry["fault"], entry["labels"]) == (fault, [])
        ask(tmp_path, vision, 1)
        assert len(vision.bodies) == 1
    opinions = table_of(of_endpoint({"p0": entry}, {"p0": 1}))
    assert worker_columns(opinions) == ([], [], [])


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"refusal": "I cannot help."}, "refused"),
        ({"finish": "content_filter"}, "refused"),
        ({"finish": "length"}, "cut"),
    ],
)
def test_a_refusal_is_no_answer(tmp_path: Path, values: dict[str, Any], fault: str) -> None:
    with vision_server(**values) as vision:
        assert ask(tmp_path, vision, 1)["p0"]["fault"] == fault


@pytest.mark.parametrize(
    "mood", ["500", "503", "408", "429 bare", "slow", "cut", "broken", "protocol", "list", "error in 200", "stream"]
)
def test_a_passing_fault_is_asked_again(tmp_path: Path, mood: str) -> None:
    with vision_server(moods=[mood]) as vision:
        assert ask(tmp_path, vision, 1, timeout=0.8 if mood == "slow" else 10)["p0"]["labels"] == ["bus"]
        assert len(vision.bodies) == 2


def test_retry_after_stops_all_requests(tmp_path: Path) -> None:
    with vision_server(moods=["429"]) as vision:
        ask(tmp_path, vision, 4, in_flight=1)
    assert vision.times[1] - vision.times[0] >= 0.95


def test_no_request_waits_longer_than_two_minutes_whatever_the_server_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await slept(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with vision_server(moods=["429 absurd"]) as vision:
        assert ask(tmp_path, vision, 1)["p0"]["labels"] == ["bus"]
    assert 100 < max(waits) <= 120


def test_an_account_without_credit_is_one_sentence_and_the_answers_so_far_stay(tmp_path: Path) -> None:
    with vision_server(moods=["", "quota"]) as vision:
        with pytest.raises(Unfinished, match=r"no credit left \(HTTP 429, insufficient_quota\)\. Add credit, then run"):
            ask(tmp_path, vision, 3, in_flight=1)
        assert len(ask(tmp_path, vision, 3)) == 3
        assert len(vision.bodies) == 2 + 2, "the answer before was not paid again"


def test_a_key_that_expires_halfway_keeps_the_answers_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLM_KEY", "sk-secret")
    with vision_server(key="sk-secret", moods=["", "401"]) as vision:
        with pytest.raises(BadConfig, match="refuses the key of the variable VLM_KEY"):
            ask(tmp_path, vision, 3, in_flight=1, key_variable="VLM_KEY")
        assert len(ask(tmp_path, vision, 3, key_variable="VLM_KEY")) == 3
        assert len(vision.bodies) == 2 + 2


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"model": None}, None),
        ({"model": "v\x00\u202e"}, None),
        ({"usage": {"prompt_tokens": None, "completion_tokens": "7"}}, None),
        ({"moods": ["null"]}, "not_json"),
        ({"sees": lambda image: GOOD | {"labels": [None]}}, "other_schema"),
        ({"sees": lambda image: GOOD | {"labels": ["bus\x00"]}}, "unknown_label"),
        ({"sees": lambda image: '{"labels": ["\\ud800"], "sensitive": false, "confidence": 0.9}'}, "not_json"),
    ],
)
def test_nulls_and_odd_unicode_in_an_answer_are_kept_as_what_they_are(
    tmp_path: Path, values: dict[str, Any], fault: str | None
) -> None:
    with vision_server(**values) as vision:
        assert ask(tmp_path, vision, 1)["p0"]["fault"] == fault
    assert ask(tmp_path, vision, 1)["p0"]["fault"] == fault, "from the cache: the server is gone"


def test_a_lasting_fault_names_what_is_missing_and_keeps_the_rest(tmp_path: Path) -> None:
    with vision_server(moods=["500", "500"]) as vision:
        with pytest.raises(Unfinished, match=r"1 of 3 images have no answer of the judge 'vlm' \(1 HTTP 500\)"):
            ask(tmp_path, vision, retries=1, in_flight=1)
        assert len(ask(tmp_path, vision)) == 3
        assert len(vision.bodies) == 2 + 2 + 1


def test_nobody_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unfinished, match="3 connections lost"):
        ask(tmp_path, Vision(address="http://127.0.0.1:9"), retries=0)


def test_a_refused_key_is_named_by_its_variable_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLM_KEY", "sk-secret")
    with vision_server(key="sk-other") as vision, pytest.raises(BadConfig, match="variable VLM_KEY") as caught:
        ask(tmp_path, vision, key_variable="VLM_KEY")
    assert "sk-secret" not in str(caught.value)
    with vision_server(key="sk-secret") as vision:
        ask(tmp_path, vision, key_variable="VLM_KEY")
        with pytest.raises(BadConfig, match="HTTP 404.*model 'other' does not exist"):
            ask(tmp_path, vision, key_variable="VLM_KEY", model="other")
    assert "sk-secret" not in (tmp_path / "answers.jsonl").read_text()


def test_an_unset_key_and_a_redirect_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLM_KEY", raising=False)
    with vision_server(moods=["redirect"]) as vision:
        with pytest.raises(BadConfig, match="export VLM_KEY=…"):
            ask(tmp_path, vision, key_variable="VLM_KEY")
        with pytest.raises(BadConfig, match="HTTP 307"):
            ask(tmp_path, vision, 1)


def test_the_budget_is_kept_across_runs(tmp_path: Path) -> None:
    with vision_server() as vision:
        for _ in range(2):
            with pytest.raises(Unfinished, match=r"\$1.00 of budget_usd 1.0 are spent"):
                ask(tmp_path, vision, 20, budget_usd=1.0, **PRICES)
            assert len(vision.bodies) == 5  # $0.20 each
        assert len(ask(tmp_path, vision, 20, budget_usd=4.0, **PRICES)) == 20


def test_a_budget_needs_prices_and_token_counts(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="needs the prices"):
        JudgeSettings(name="vlm", url="http://x/v1", model="m", budget_usd=1)
    with vision_server(usage=None) as vision, pytest.raises(BadConfig, match="reports no token counts"):
        ask(tmp_path, vision, budget_usd=1.0, **PRICES)


def test_a_model_that_changed_behind_the_endpoint_is_another_worker(tmp_path: Path) -> None:
    with vision_server() as vision:
        ask(tmp_path, vision, 1)
        vision.model = "vision-2"
        said = ask(tmp_path, vision, 2)
    rows = of_endpoint(said, {"p0": 0, "p1": 0})
    assert [row["worker"] for row in rows] == ["vlm (vision-1)", "vlm (vision-2)"]
    assert rows[0]["model"] != rows[1]["model"]


def test_a_cut_last_line_is_removed_and_another_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with vision_server() as vision:
        ask(tmp_path, vision, 2)
        path.write_bytes(path.read_bytes()[:-20])
        ask(tmp_path, vision, 2)
        assert len(vision.bodies) == 3
    path.write_text(path.read_text().replace("\n", "\n{}\n", 1))
    with pytest.raises(BadInput, match=r"answers.jsonl, line 2"):
        AnswerCache(path)


def test_the_margin_judge_answers_only_where_one_concept_is_ahead() -> None:
    queries = np.eye(3, dtype=np.float32)  # the first concept has two queries
    images = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.2], [0.0, 0.1, 0.9], [0.5, 0.0, 0.49]], np.float32)
    said, sure = zero_shot(images, queries, [0, 2], 0.02)
    assert said.tolist() == [0, 0, 1, -1]
    assert (sure[:3] > 0.9).all()
    assert zero_shot(images, queries[:1], [0], 0.02)[0].tolist() == [-1] * 4


@pytest.fixture
def clusters() -> Callable[[float], tuple[Any, Any, Any]]:
    def make(distance: float) -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 2, 400)
        buckets = np.repeat([0, 1], 200)
        y[buckets == 1] = 1 - y[buckets == 1]
        x = rng.normal(size=(400, 16))
        x[:, 0] += distance * np.where(buckets == 0, y, 1 - y)  # the direction turns round in the second bucket
        return x, buckets, y

    return make


def test_the_student_learns_each_bucket_by_itself(clusters: Callable[[float], tuple[Any, Any, Any]]) -> None:
    x, buckets, y = clusters(6.0)
    known = np.where(np.arange(400) % 2 == 0, y, -1)
    said = cross_fitted(x, buckets, known, 3, 5, 10, 0)
    assert (said.argmax(1) == y).mean() > 0.97
    assert np.allclose(said.sum(1), 1)
    assert (said[:, 2] == 0).all()


def test_the_student_did_not_see_the_answers_that_it_judges(clusters: Callable[[float], tuple[Any, Any, Any]]) -> None:
    x, buckets, y = clusters(0.0)  # nothing to learn: a student that saw the answers would know them
    said = cross_fitted(x, buckets, y, 2, 5, 10, 0)
    assert 0.4 < (said.argmax(1) == y).mean() < 0.6


def test_the_student_keeps_silent_where_it_has_too_few_answers() -> None:
    x = np.random.default_rng(0).normal(size=(60, 4))
    known = np.array([0] * 15 + [1] * 5 + [-1] * 40)
    assert (cross_fitted(x, np.zeros(60, int), known, 2, 5, 10, 0) == 0).all()
