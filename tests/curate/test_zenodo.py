"""Deposits on a Zenodo on loopback: whole, licensed, never twice, whatever the service answers on the way."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.hub_server import TOKEN
from support.published import BY, exported
from support.zenodo_server import Zenodo, zenodo

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished
from driftline.curate.core.outside.http import Policy
from driftline.curate.publishing import PUBLISHERS
from driftline.curate.publishing.plan import Plan, Published, Settings

NAMES = ["README.md", "SHA256SUMS", "data.tar", "release.json"]
PUBLISH, LIST = "/actions/publish$", "/depositions$"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zenodo]:
    monkeypatch.setenv("ZENODO_TOKEN", TOKEN)
    monkeypatch.setattr("driftline.curate.publishing.zenodo.POLICY", Policy(3, 0.0))
    with zenodo() as running:
        yield running


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return exported(tmp_path / "cars")


def publish(server: Zenodo, plan: Plan, place: str = "", public: bool = True) -> Published:
    return PUBLISHERS["zenodo"](plan, place, Settings(public, endpoint=server.address))


def published(server: Zenodo) -> list[int]:
    return [number for number, deposit in server.deposits.items() if deposit["submitted"]]


def test_a_draft_has_all_files_and_a_doi_and_is_published_later(server: Zenodo, plan: Plan) -> None:
    done = publish(server, plan, public=False)
    assert done.note == "DOI 10.5281/zenodo.7 is reserved; the draft waits for you to publish it."
    files = server.deposits[7]["files"]
    assert sorted(files) == NAMES
    with tarfile.open(fileobj=io.BytesIO(files["data.tar"])) as archive:
        assert archive.extractfile("data/b.jpg").read() == b"b" * 9  # type: ignore[union-attr]
    assert (server.deposits[7]["metadata"]["version"], published(server)) == ("1.0.0", [])
    assert publish(server, plan, "7").sent == 0
    assert published(server) == [7]
    assert not [*plan.folder.parent.glob(".partial*")]


@pytest.mark.parametrize(
    ("licences", "identifier"),
    [
        ([BY], "cc-by-2.0"),
        ([BY, BY | {"name": "Attribution"}], "cc-by-2.0"),
        ([BY | {"url": "https://creativecommons.org/publicdomain/zero/1.0/"}], "cc-zero"),
        ([BY | {"url": "https://creativecommons.org/licenses/by-nc-sa/4.0/"}], "cc-by-nc-sa-4.0"),
        ([BY, BY | {"url": "https://creativecommons.org/licenses/by-sa/2.0/"}], "notspecified"),
        ([BY | {"name": "<b>\x00Ünfrei</b>", "url": None}], "notspecified"),
        ([], "notspecified"),
    ],
)
def test_the_deposit_has_the_licence_of_the_images_never_the_default_of_the_service(
    server: Zenodo, tmp_path: Path, licences: list[dict[str, Any]], identifier: str
) -> None:
    publish(server, exported(tmp_path / "cars", licence_list=licences), public=False)
    metadata = server.deposits[7]["metadata"]
    assert metadata["license"] == identifier
    assert "<b>" not in metadata["description"]


@pytest.mark.parametrize("fault", ["drop", "lose", 502, 429, b"<html>", {"status": 400, "message": "no"}, b"[3]"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", LIST), ("POST", LIST), ("PUT", "data.tar"), ("PUT", "/7$"), ("POST", PUBLISH)],
)
def test_after_any_failure_the_same_command_goes_on_and_one_deposit_is_published(
    server: Zenodo, plan: Plan, method: str, path: str, fault: Any
) -> None:
    for times in (1, 3):
        server.faults = [[method, path, fault, times]]
        with suppress(Unfinished):
            publish(server, plan)
    server.faults = []
    done = publish(server, plan)
    assert (published(server), done.public) == ([7], True)
    assert sorted(server.deposits[7]["files"]) == NAMES


def test_a_published_version_is_found_again_even_among_many(server: Zenodo, plan: Plan) -> None:
    for number in range(150):
        server.add(f"cars 1.0.0 of year {number}", submitted=True)
    first = publish(server, plan)
    again = publish(server, plan)
    assert (first.address, again.sent, again.note) == (
        again.address, 0, "DOI 10.5281/zenodo.157. This version is there already.",
    )  # fmt: skip
    assert len(server.deposits) == 151


def test_a_list_whose_pages_repeat_ends(server: Zenodo, plan: Plan) -> None:
    server.faults = [["GET", LIST, [{"id": 3, "title": None, "submitted": False}], 99]]
    publish(server, plan)
    assert published(server) == [7]


def test_a_token_that_expires_halfway_is_one_sentence_and_the_draft_goes_on(server: Zenodo, plan: Plan) -> None:
    def expire() -> None:
        server.token = "another"

    server.faults = [["PUT", "data.tar", expire, 1]]
    with pytest.raises(BadConfig, match=r"does not let you write \(status 401\)") as caught:
        publish(server, plan)
    assert TOKEN not in str(caught.value)
    server.token = TOKEN
    assert publish(server, plan).sent == 1
    assert published(server) == [7]


def test_a_token_that_may_not_publish_is_named(server: Zenodo, plan: Plan) -> None:
    server.scopes = {"deposit:write"}
    with pytest.raises(BadConfig, match="Expected a token with deposit:write and deposit:actions"):
        publish(server, plan)
    assert published(server) == []


def test_a_service_that_asks_to_wait_for_a_year_is_not_waited_for(server: Zenodo, plan: Plan) -> None:
    server.faults = [["PUT", "/7$", (429, {}, {"Retry-After": "9" * 30}), 9]]
    with pytest.raises(Unfinished, match=r"wait for 31,622,400 seconds \(status 429\)\. Run the same command"):
        publish(server, plan)


def test_a_file_that_arrives_damaged_is_sent_again(server: Zenodo, plan: Plan) -> None:
    server.faults = [["PUT", "data.tar", {"key": "data.tar", "checksum": "md5:" + "0" * 32}, 1]]
    with pytest.raises(Unfinished, match=r"did not confirm that it stored .*data\.tar whole"):
        publish(server, plan)
    assert publish(server, plan).sent == 1


def test_a_draft_with_files_of_another_version_is_not_published(server: Zenodo, plan: Plan) -> None:
    """A new version that was begun on Zenodo's page has the files of the old one."""
    number = server.add("cars 0.9.0")
    server.deposits[number]["files"]["withdrawn.tar"] = b"x"
    with pytest.raises(BadInput, match=r"has a file 'withdrawn\.tar' that the release does not have"):
        publish(server, plan, str(number))
    assert published(server) == []


def test_a_published_version_never_changes(server: Zenodo, plan: Plan, tmp_path: Path) -> None:
    publish(server, plan)
    for files in ({"data/a.jpg": b"z" * 9}, {"more/a.jpg": b"a" * 9}):
        other = exported(tmp_path / str(len(files)) / next(iter(files)), files)
        with pytest.raises(BadInput, match=r"has version 1\.0\.0 with other content"):
            publish(server, other)
        with pytest.raises(BadInput, match="The deposit 7 is published"):
            publish(server, other, "7")


def test_a_refusal_shows_what_the_service_says(server: Zenodo, plan: Plan) -> None:
    server.faults = [["PUT", "/7$", (400, {"message": f"Validation error {TOKEN}", "status": 400}, {}), 1]]
    with pytest.raises(BadInput, match=r"refused the deposit \(status 400\): .*Validation error") as caught:
        publish(server, plan)
    assert TOKEN not in str(caught.value)


def test_files_go_to_the_same_server_only(server: Zenodo, plan: Plan) -> None:
    document = server.shown(server.add("")) | {"links": {"bucket": "http://127.0.0.1:9/files"}}
    server.faults = [["POST", LIST, (201, document, {}), 1]]
    with pytest.raises(DriftlineError, match=r"names another server for files, 127\.0\.0\.1:9"):
        publish(server, plan)


@pytest.mark.parametrize("odd", [None, "", "é\0\u202e", "http://[", [], {"bucket": "http://["}], ids=ascii)
@pytest.mark.parametrize("field", ["id", "submitted", "title", "links", "files", "metadata"])
def test_any_field_of_a_deposit_may_hold_anything(server: Zenodo, plan: Plan, field: str, odd: Any) -> None:
    document = server.shown(server.add("")) | {field: odd}
    server.faults = [["POST", LIST, (201, document, {}), 1]]
    with suppress(DriftlineError):
        publish(server, plan)
    assert publish(server, plan).public
