"""Each stand-in of a service follows its published document, rule by rule: a stand-in that is broken in one rule fails.

A contract asks the stand-in as the document says and compares with recorded shapes, then lets our client, or the
service's own, work with it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import urllib3
from support.chat_server import Chat, chat_server
from support.hub_server import Hub, hub
from support.published import exported
from support.s3_server import BUCKET, Bucket, bucket
from support.stand_ins import check_shape, example
from support.vision_server import Vision, vision_server

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.seeding import rng_for
from driftline.curate.publishing import PUBLISHERS
from driftline.curate.publishing.plan import Settings
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.judges import Endpoint, question_of
from driftline.curate.validation.settings import JudgeSettings
from driftline.eval.learner import Task
from driftline.eval.learners.llm import Llm


def asked(server: Any, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and document of one request."""
    headers = {"Authorization": f"Bearer {getattr(server, 'token', '')}", "Content-Type": "application/json"} | headers
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    reply = urllib3.request(method, server.address + path, body=data, headers=headers, redirect=False, retries=False)
    return reply.status, json.loads(reply.data or b"null")


def hub_contract(broken: str) -> None:
    """The Hub's own client makes, fills, lists, tags and reads a dataset."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub import errors as said

    with hub(broken) as server, tempfile.TemporaryDirectory() as folder:
        place, kind = "me/cars", {"repo_type": "dataset"}
        api, stranger = HfApi(server.address, token=server.token), HfApi(server.address, token="hf_other")
        server.page = 2
        with pytest.raises(said.RepositoryNotFoundError):
            api.repo_info(place, **kind)
        for _ in range(2):
            api.create_repo(place, private=True, exist_ok=True, **kind)
        with pytest.raises(said.HfHubHTTPError, match="401"):
            stranger.repo_info(place, **kind)
        with pytest.raises(said.HfHubHTTPError, match="409"):
            api.create_repo(place, **kind)
        first = api.repo_info(place, **kind)
        assert (first.private, len(server.commits[place])) == (True, 1)
        added = [CommitOperationAdd(n, d) for n, d in (("a.md", b"a"), ("b.parquet", b"b"), ("c.md", b"c"))]
        api.preupload_lfs_files(place, added, **kind)
        assert {operation.path_in_repo: operation._upload_mode for operation in added}["b.parquet"] == "lfs"
        commit = {"commit_message": "1", "parent_commit": first.sha, **kind}
        second = api.create_commit(place, added, **commit).oid
        api.create_tag(place, tag="v1", **kind)
        with pytest.raises(said.HfHubHTTPError, match="412"):
            api.create_commit(place, [CommitOperationAdd("d.md", b"d")], **commit)
        with pytest.raises(said.HfHubHTTPError, match="409"):
            api.create_tag(place, tag="v1", **kind)
        again = [CommitOperationAdd("e.parquet", b"b"), CommitOperationDelete("c.md")]
        api.create_commit(place, again, commit_message="2", **kind)
        assert server.puts == 1, "what is stored is not sent again"
        names = api.list_repo_files(place, **kind)
        assert sorted(names) == [".gitattributes", "a.md", "b.parquet", "e.parquet"]
        assert "c.md" in api.list_repo_files(place, revision="v1", **kind)
        with pytest.raises(said.RevisionNotFoundError):
            api.repo_info(place, revision="v9", **kind)
        path = api.hf_hub_download(place, "b.parquet", revision=second, local_dir=folder, **kind)
        assert Path(path).read_bytes() == b"b"
        with pytest.raises(said.RemoteEntryNotFoundError):
            api.hf_hub_download(place, "z.md", local_dir=folder, **kind)


def chat_contract(broken: str) -> None:
    """Requests of the API reference, then a language model that classifies."""
    with chat_server(broken, key="sk-1", known="small") as server:
        body = {"model": "small", "messages": [{"role": "user", "content": "x"}] * 2, "unknown": 1}
        for path, more, status in (
            ("/v1/other", {}, 404), ("/v1/chat/completions", {"model": "large"}, 404),
            ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400),
        ):  # fmt: skip
            answer = asked(server, "POST", path, body | more, Authorization="Bearer sk-1")
            assert (answer[0], set(answer[1]["error"])) == (status, {"message", "type", "param", "code"})
        status, document = asked(server, "POST", "/v1/chat/completions", body, Authorization="Bearer sk-2")
        assert (status, document["error"]["code"]) == (401, "invalid_api_key")
        check_shape(example("openai", "error"), document)
        server.mood = "nonsense"
        learner = Llm(endpoint=server.url, model="small", key_env="CHAT_KEY", workers=1, retries=0)
        learner.begin(Task(2, (), classes=("card", "loan")), rng_for(0))
        learner.learn(np.array(["my card", "a loan"]), np.array([0, 1]))
        assert learner.predict(np.array(["my card is lost"])).tolist() == [0]
        assert learner.metadata()["requests"] == {"requests": 1}
        check_shape(example("openai", "completion"), server.completion("Hi"))


def vision_contract(broken: str) -> None:
    """A judge that asks about two images."""
    with vision_server(broken) as server:
        judge = JudgeSettings(name="vlm", url=server.url, model="vision-1", retries=0)
        question = question_of([Concept(name="bus", prompts=("bus",))], "What is it?")
        endpoint = Endpoint(judge, question, lambda id_: (b"x", "png"))
        assert [endpoint.ask(id_) for id_ in "ab"] == [((["bus"], False, None), "vision-1")] * 2
        check_shape(example("openai", "completion"), server.completion("Hi"))


def s3_contract(broken: str) -> None:
    """boto3 publishes a release: with refusals, a stop, and a list of some pages."""
    with (
        pytest.MonkeyPatch.context() as patch,
        bucket(patch, broken) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        plan, settings = exported(Path(folder) / "cars"), Settings()
        server.page = 2
        with pytest.raises(BadConfig, match="ACLs disabled"):
            PUBLISHERS["s3"](plan, BUCKET, Settings(public=True))
        server.faults = [["PutObject", lambda: None, 3], ["PutObject", (403, "AccessDenied"), 9]]
        with pytest.raises(BadConfig, match="AccessDenied"):
            PUBLISHERS["s3"](plan, BUCKET, settings)
        server.faults = []
        assert [PUBLISHERS["s3"](plan, BUCKET, settings).sent for _ in range(2)] == [2, 0]


CONTRACTS: dict[type[Any], Callable[[str], None]] = {
    Bucket: s3_contract,
    Hub: hub_contract, Chat: chat_contract, Vision: vision_contract,
}  # fmt: skip
SWITCHES = {rule: kind for kind in reversed(CONTRACTS) for rule in kind.RULES}  # a rule of Chat is Vision's, too
FAILURES = (AssertionError, DriftlineError, LookupError, OSError, RuntimeError, TypeError, ValueError)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    monkeypatch.setenv("CHAT_KEY", "sk-1")


@pytest.mark.parametrize("service", CONTRACTS)
def test_a_stand_in_follows_its_document(service: type[Any]) -> None:
    document = " ".join((sys.modules[service.__module__].__doc__ or "").split())
    assert re.search("(https://|huggingface_hub).* read on 27 November 2026", document)
    CONTRACTS[service]("")


@pytest.mark.parametrize("rule", SWITCHES)
def test_no_rule_of_a_document_is_without_a_test(rule: str) -> None:
    with pytest.raises((*FAILURES, pytest.fail.Exception)):
        CONTRACTS[SWITCHES[rule]](rule)
