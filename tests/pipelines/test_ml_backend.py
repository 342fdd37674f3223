"""Judges of a run for Label Studio, for annotators who are shown them, and for those who choose what to ask next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.console import answer, handed
from support.label_studio import LabelStudio

from driftline.curate.core.atomic_io import read_json, write_parquet
from driftline.curate.core.errors import BadConfig, MissingFile, UnknownName
from driftline.curate.core.run_log import RunLog
from driftline.curate.validation.judging.opinions import opinion, table_of
from driftline.pipelines.annotation import ml_backend, server
from driftline.pipelines.annotation.advice import advice
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.config.loader import load
from driftline.pipelines.prompt_explorer.explorer import Explorer
from driftline.pipelines.prompt_explorer.query import Query
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of

JUDGES = [{"name": "qwen", "url": "http://x.example", "model": "m"}, {"name": "margin", "kind": "margin"}]
SKIP = ("09_publish", "answers", "runs", "report", "stream", "world", "audit", "store")
Make = Callable[..., Context]


@pytest.fixture(scope="module")
def folder(journey: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tallied run with two judges, of which the second one has an answer to the first image only."""
    out = tmp_path_factory.mktemp("judged") / "run"
    shutil.copytree(journey, out, ignore=shutil.ignore_patterns(*SKIP))
    (out / "world").symlink_to(journey / "world")
    items = pq.read_table(folder_of(out, "ask") / "items.parquet").to_pylist()
    first = min(item["id"] for item in items)
    bucket = {item["id"]: item["bucket"] for item in items}
    rows = [opinion(i, b, "qwen", ["bus"], worker="qwen (m)", confidence=0.9) for i, b in sorted(bucket.items())]
    rows.append(opinion(first, bucket[first], "margin", ["car"], confidence=0.9))
    write_parquet(folder_of(out, "ask") / "opinions.parquet", table_of(rows))
    return out


@pytest.fixture
def judged(folder: Path) -> Make:
    """The run with further settings."""

    def make(*changes: str) -> Context:
        settings = [f"validation.judges={json.dumps(JUDGES)}", *changes]
        return Context(folder, load(folder / "driftline.yaml", settings), RunLog(quiet=True))

    return make


def browser(made: tuple[Any, str], **headers: str) -> TestClient:
    app, path = made
    return TestClient(app, base_url=f"http://127.0.0.1:8{path}", headers=headers)


def first_of(folder: Path) -> str:
    """The item of the image that both judges answered."""
    items = read_json(folder_of(folder, "ask") / "batch.json")["items"]
    return min(items, key=lambda item: str(items[item]))


class TestLabelStudio:
    def task(self, folder: Path, **data: Any) -> dict[str, Any]:
        batch = read_json(folder_of(folder, "ask") / "batch.json")["batch"]
        return {"id": 1, "data": {"batch": batch, "item": first_of(folder), "image": "http://127.0.0.1:1/x"} | data}

    def test_each_judge_is_a_backend_that_answers_tasks(self, judged: Make, folder: Path) -> None:
        client = browser(ml_backend.application(judged(), 8))
        assert client.get("margin/health").json() == {"status": "UP", "model_class": "margin", "answers": 1}
        project = {"project": "1.1", "schema": "<View/>", "hostname": "http://x", "access_token": "t"}
        assert client.post("qwen/setup", json=project).json() == {"model_version": "qwen"}
        tasks = [self.task(folder), self.task(folder, item="x"), self.task(folder, batch="other"), {"id": 2}]
        body = {"tasks": tasks, "project": "1.1", "label_config": "<View/>", "params": {"context": None}}
        first, *rest = client.post("qwen/predict", json=body).json()["results"]
        assert (first["model_version"], round(first["score"], 3)) == ("qwen (m)", 0.9)
        assert first["result"][0]["value"] == {"choices": ["bus"]}
        assert [one["result"] for one in rest] == [[], [], []]
        assert client.post("margin/predict", json=body).json()["results"][0]["result"][0]["value"]["choices"] == ["car"]

    @pytest.mark.parametrize("broken", ["", *LabelStudio.RULES])
    def test_label_studio_stores_what_the_judge_answered(self, judged: Make, folder: Path, broken: str) -> None:
        context = judged()
        app, path = ml_backend.application(context, 8)
        backend = TestClient(app, base_url=f"http://127.0.0.1:8{path}margin/")
        tasks = [self.task(folder), self.task(folder, item="x") | {"id": 2}]
        with nullcontext() if not broken else pytest.raises((AssertionError, LookupError)):
            first, other = LabelStudio(backend, broken).predictions(tasks)
            assert first["result"][0]["value"] == {"choices": ["car"]}
            assert (other["result"], first["model_version"], round(first["score"], 3)) == ([], "margin", 0.9)

    @pytest.mark.parametrize(
        "body", [b"no", b"[" * 10_000, b"{}", b'{"tasks": {}}', b'{"tasks": [3]}', b'{"tasks": [{"data": []}, null]}']
    )
    def test_a_hostile_request_is_one_sentence(self, judged: Make, body: bytes) -> None:
        told = browser(ml_backend.application(judged(), 8)).post("qwen/predict", content=body)
        assert (told.status_code, "Expected a request of Label Studio" in told.json()["error"]) == (400, True)

    def test_odd_tasks_have_no_prediction(self, judged: Make, folder: Path) -> None:
        tasks = [self.task(folder, item=["x"]), self.task(folder, batch=None), {"data": "x"}, {}]
        found = browser(ml_backend.application(judged(), 8)).post("qwen/predict", json={"tasks": tasks}).json()
        assert [one["result"] for one in found["results"]] == [[]] * 4

    def test_an_unknown_judge_another_origin_and_no_secret_are_refused(self, judged: Make) -> None:
        client = browser(ml_backend.application(judged(), 8))
        assert "Did you mean 'qwen'?" in client.get("qwem/health").json()["error"]
        evil = {"origin": "http://evil.example"}
        assert client.post("qwen/predict", json={"tasks": []}, headers=evil).status_code == 403
        assert client.get("http://127.0.0.1:8/qwen/health").status_code == 401

    def test_a_run_without_judges_says_what_to_do(self, journey: Path) -> None:
        context = Context(journey, load(journey / "driftline.yaml"), RunLog(quiet=True))
        with pytest.raises(MissingFile, match=r"has no answers of judges\. Expected validation\.judges"):
            ml_backend.application(context, 8)


class TestSuggestions:
    def test_a_suggestion_is_shown_only_if_asked_for_and_recorded(self, judged: Make, folder: Path) -> None:
        context, origin = judged(), {"origin": "http://127.0.0.1:8"}
        plain = browser(server.application(context, 8), **origin).get("label?annotator=ann").text
        assert "suggests" not in plain
        client = browser(server.application(context, 8, suggest="qwen"), **origin)
        page = client.get("label?annotator=eve").text
        assert "qwen suggests: bus" in page
        item = page.split('name="item" value="')[1].split('"')[0]
        form = {"annotator": "eve", "item": item, "labels": "bus", "sensitive": "no"}
        client.post("answer", data=form, follow_redirects=False)
        answer_store_of(context).export(folder / "out.csv")
        assert '"bus","no","qwen suggests: bus"' in (folder / "out.csv").read_text()

    def test_an_audit_needs_people_who_see_no_suggestion(self, judged: Make) -> None:
        with pytest.raises(BadConfig, match="people who do not see the answers of judges"):
            server.application(judged("validation.skip_people=confident"), 8, suggest="qwen")
        with pytest.raises(UnknownName, match="Did you mean 'qwen'"):
            server.application(judged(), 8, suggest="qwem")


class TestAdvice:
    def test_the_lowest_precision_and_the_most_telling_image_come_first(self, judged: Make, folder: Path) -> None:
        answers = folder_of(folder, "tally") / "answers.parquet"
        before = pq.read_table(answers)
        write_parquet(answers, before.slice(0, 0))
        found = advice(judged(), 3)
        write_parquet(answers, before)
        shares = [row["precision"] for row in found.weakest]
        assert shares == sorted(shares)
        assert found.weakest[0]["low"] <= shares[0] <= found.weakest[0]["high"]
        items = read_json(folder_of(folder, "ask") / "batch.json")["items"]
        assert found.next[0]["id"] == items[first_of(folder)], "the only image on which judges differ"
        assert len(found.next) == 3
        assert advice(judged(), 3).next == [], "people answered every image"

    def test_explore_shows_verdicts_and_judges_beside_retrieval(self, judged: Make) -> None:
        view = Explorer(judged()).view(Query(("a photo of a bus",)), "bus", 5)
        shots = [shot for bucket in view.buckets for shot in bucket.shots]
        assert {shot.verdict for shot in shots} & {"kept", "wrong concept"}
        assert any(shot.opinions == ("qwen: bus",) for shot in shots)

    def test_the_command_prints_them(self, judged: Make) -> None:
        told = answer("judges", str(judged().root), "--count", "2", "--json")
        assert set(told) == {"judges", "weakest", "next"}

    def test_the_command_serves_them_to_label_studio_by_the_name_that_is_said(self, judged: Make) -> None:
        words = ("judges", judged().root, "--serve", "--port", 9191, "--set", f"validation.judges={json.dumps(JUDGES)}")
        serve = "driftline.pipelines.web.local_server.serve"
        for more, status in ((), 421), (("--host", "labels.test"), 200):
            found = handed(serve, *words, *more)
            app, path = found["make"](8)
            assert found["port"] == 9191
            assert TestClient(app, base_url=f"http://labels.test:8{path}").get("qwen/health").status_code == status

    def test_annotators_see_what_the_judge_that_is_named_says(self, judged: Make) -> None:
        words = ("annotate", judged().root, "--suggest", "qwen", "--set", f"validation.judges={json.dumps(JUDGES)}")
        page = browser(handed("driftline.pipelines.web.local_server.serve", *words)["make"](8))
        assert "qwen suggests: bus" in page.get("label?annotator=zoe").text
