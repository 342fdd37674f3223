"""Prompts on the browse page: what they bring, marks that outlive the server, prompts saved, a local server."""

import json
import re
import shutil
import socket
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.pages import chromium_browser, served, violations_everywhere

import driftline as dl
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.metadata.withdrawals import Withdrawal, address_digest, withdraw
from driftline.pipelines.browse.prompts import Found, Prompts, Query, share_text, with_entry
from driftline.pipelines.browse.server import application
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.run_folder import open_collection
from driftline.pipelines.stages.state import folder_of
from driftline.pipelines.web.local_server import guarded, listen, local_app


def prompts_of(folder: Path) -> Prompts:
    collection = open_collection(folder)
    assert collection.source.context is not None
    return Prompts(collection.source.context, collection)


def first_bucket(prompts: Prompts, text: str, concept: str, k: int) -> Found:
    return prompts.view(Query((text,)), concept, k)[0][0]


@pytest.fixture
def folder(journey: Path, tmp_path: Path) -> Path:
    """A run folder of the test's own; its stages are the journey's."""
    (tmp_path / "run").mkdir()
    shutil.copy(journey / "driftline.yaml", tmp_path / "run")
    (tmp_path / "run" / "stages").symlink_to(journey / "stages")
    return tmp_path / "run"


@pytest.fixture
def prompts(folder: Path) -> Prompts:
    return prompts_of(folder)


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The page, served on loopback."""
    with served(lambda port: application(open_collection(folder), port)) as running:
        yield running.address.rstrip("/")


def test_a_photo_that_is_withdrawn_is_gone_from_the_next_page(prompts: Prompts) -> None:
    first = first_bucket(prompts, "a photo of a car", "", 3).photos[0]["id"]
    dl.withdraw(prompts.context.root, first)
    again = first_bucket(prompts_of(prompts.context.root), "a photo of a car", "", 3).photos
    assert (len(again), first in [photo["id"] for photo in again]) == (3, False)


def test_an_address_that_is_withdrawn_is_gone_too(prompts: Prompts) -> None:
    photo = first_bucket(prompts, "a photo of a car", "", 1).photos[0]["id"]
    root = prompts.context.root
    url = pq.read_table(folder_of(root, "ingest") / "table", filters=[("id", "=", photo)])["url"][0].as_py()
    withdraw(root / "withdrawals.csv", [Withdrawal("", "2026-01-01", "", "", address_digest(url))])
    assert first_bucket(prompts_of(root), "a photo of a car", "", 1).photos[0]["id"] != photo


class TestWhatAPromptBrings:
    def test_pictures_of_each_bucket_are_the_retrieve_stages(self, prompts: Prompts, folder: Path) -> None:
        found, unread = prompts.view(Query.parse(prompts.texts()["bus"]), "bus", 5)
        bus = [("concept", "=", "bus"), ("rank", "<", 5)]
        table = pq.read_table(folder_of(folder, "retrieve") / "candidates.parquet", filters=bus)
        assert unread == []
        for bucket, shown in zip(prompts.buckets, found, strict=True):
            rows = [r for r in table.to_pylist() if r["bucket"] == bucket]
            shots = zip(shown.photos, shown.scores, strict=True)
            assert [(row["id"], pytest.approx(score)) for row, score in shots] == [(r["id"], r["score"]) for r in rows]

    def test_a_prompt_that_is_too_long_tells_what_is_not_read(self, prompts: Prompts) -> None:
        assert prompts.view(Query(("a bus " + "and a car " * 30,)), "", 1)[1][0].endswith("and a car")

    def test_no_prompt_is_an_error(self, prompts: Prompts) -> None:
        with pytest.raises(BadConfig, match="There is no prompt"):
            prompts.view(Query.parse("- only negatives"), "bus", 5)


def test_wilsons_interval_equals_the_published_one() -> None:
    text = share_text([True] * 81 + [False] * 182)  # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    assert text == "81 of 263 right: 0.31 (0.26 to 0.37)"


class TestMarks:
    def test_marks_outlive_the_server_and_belong_to_their_concept(self, folder: Path, prompts: Prompts) -> None:
        shots = first_bucket(prompts, "a bus", "bus", 3).photos
        for photo, right in zip(shots, (True, False, True), strict=True):
            prompts.marks.add("bus", photo["id"], right)
        prompts.marks.add("bus", shots[2]["id"], None)
        again = prompts_of(folder)
        assert first_bucket(again, "a bus", "bus", 3).marks == [True, False, None]
        assert first_bucket(again, "a bus", "car", 3).marks == [None] * 3


class TestSaving:
    def test_prompts_go_into_the_file_and_the_rest_of_it_stays(self, prompts: Prompts, folder: Path) -> None:
        before = (folder / "driftline.yaml").read_text().splitlines()
        prompts.save("bus", Query(("a big bus", 'a "bus": {x}'), ("a car",)))
        after = (folder / "driftline.yaml").read_text().splitlines()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(changed) == 1
        bus = next(c for c in load(folder / "driftline.yaml").retrieve.concepts if c.name == "bus")
        assert (bus.prompts, bus.negatives) == (("a big bus", 'a "bus": {x}'), ("a car",))
        assert bus.option == "bus"

    def test_a_concept_is_found_by_its_name_after_the_file_was_edited_by_hand(self, prompts, folder):
        bus = next(c for c in load(folder / "driftline.yaml").retrieve.concepts if c.name == "bus")
        file = folder / "driftline.yaml"
        tram = "    - {name: tram, prompts: [a tram]}\n"
        text, found = re.subn(r"^  concepts:.*\n", rf"\g<0>{tram}", file.read_text(), flags=re.M)
        assert found == 1
        file.write_text(text)
        prompts.save("bus", Query(("a big bus",)))
        after = {c.name: c.prompts for c in load(folder / "driftline.yaml").retrieve.concepts}
        assert (after["tram"], after["bus"]) == (("a tram",), ("a big bus",))
        assert bus.prompts != after["bus"]

    def test_a_new_name_is_appended(self, prompts: Prompts, folder: Path) -> None:
        prompts.save("tram", Query(("a tram",)))
        assert load(folder / "driftline.yaml").retrieve.concepts[-1].name == "tram"
        assert prompts.texts()["tram"] == "a tram"

    def test_what_would_make_the_file_invalid_is_refused_and_the_file_stays(self, prompts, folder):
        before = (folder / "driftline.yaml").read_text()
        with pytest.raises(BadConfig, match="background"):
            prompts.save("background", Query(("x",)))
        assert (folder / "driftline.yaml").read_text() == before

    def test_concepts_in_a_file_of_their_own_are_saved_there(self, folder: Path) -> None:
        text = (folder / "driftline.yaml").read_text()
        (folder / "concepts.yaml").write_text("# mine\n- {name: bus, prompts: [a bus, buses], option: B}\n")
        start = text.index("  concepts:")
        end = text.index("  templates:", start)
        (folder / "driftline.yaml").write_text(text[:start] + "  concepts: concepts.yaml\n" + text[end:])
        prompts = prompts_of(folder)
        prompts.save("bus", Query(("one",)))
        prompts.save("car", Query(("two",)))
        saved = (folder / "concepts.yaml").read_text()
        assert saved.startswith("# mine\n")
        one, two = {"name": "bus", "prompts": ["one"], "option": "B"}, {"name": "car", "prompts": ["two"]}
        assert yaml.safe_load(saved) == [one, two]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab:#-{}[]\"' ,\n&*!%@`", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("pqrs"), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(values, min_size=1, max_size=3), values, st.booleans(), st.integers(0, 3))
def test_setting_one_entry_changes_that_entry_only(entries: list[Any], new: Any, flow: bool, place: int) -> None:
    whole = {"first": 1, "section": {"list": entries}, "last": deepcopy(entries)}  # the same object would be an alias
    text = "# head\n" + yaml.safe_dump(whole, default_flow_style=flow, sort_keys=False) + "# foot\n"
    number = min(place, len(entries))
    changed = with_entry(text, ["section", "list"], number, new)
    wanted = [*entries[:number], new, *entries[number + 1 :]]
    assert yaml.safe_load(changed) == {"first": 1, "section": {"list": wanted}, "last": entries}
    assert (changed.startswith("# head\n"), changed.endswith("# foot\n")) == (True, True)


class TestServer:
    @pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
    def test_another_host_name_is_refused(self, server: str, host: str) -> None:
        assert httpx.get(server, headers={"host": host}).status_code == 421

    @pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://127.0.0.1"])
    def test_a_write_from_another_origin_is_refused(self, server: str, origin: str | None, folder: Path) -> None:
        headers = {} if origin is None else {"origin": origin}
        content = {"concept": "bus", "text": "x"}
        assert httpx.post(f"{server}/save", json=content, headers=headers).status_code == 403
        assert "tram" not in (folder / "driftline.yaml").read_text()

    @pytest.mark.parametrize("path", ["../../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "stages/03_fetch"])
    def test_no_path_leads_to_a_file(self, server: str, path: str) -> None:
        assert httpx.get(f"{server}/thumb/{path}").status_code in (400, 401, 404)
        assert httpx.get(f"{server}/static/{path}").status_code in (401, 404)  # httpx resolves "..", and leaves

    def test_without_the_secret_nothing_is_shown(self, server: str) -> None:
        answer = httpx.get(server.rpartition("/")[0])
        assert answer.status_code == 401
        assert answer.text == "Open the URL that driftline browse printed: it contains a secret."

    def test_answers_carry_a_strict_policy(self, server: str) -> None:
        headers = httpx.get(server).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"

    def test_a_mistake_in_saving_is_told_not_raised(self, server: str) -> None:
        content = {"concept": "background", "text": "x"}
        answer = httpx.post(f"{server}/save", json=content, headers={"origin": server.rpartition("/")[0]})
        assert answer.status_code == 400
        assert "background" in answer.json()["error"]


def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadConfig, match="Cannot listen on"):
            listen(taken.getsockname()[1])


def test_a_run_that_is_not_embedded_says_what_to_do(tmp_path: Path, journey: Path, prompts: Prompts) -> None:
    shutil.copy(journey / "driftline.yaml", tmp_path)
    with pytest.raises(MissingFile, match=r"stage embed .* is not done.*--until embed"):
        Prompts(replace(prompts.context, root=tmp_path), prompts.collection)


@pytest.mark.proof("browser")
def test_in_a_real_browser_prompt_pictures_marks_save(server: str, folder: Path) -> None:
    """Headless Chromium: what a person does."""
    from playwright.sync_api import expect

    with chromium_browser() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{server}/")
        page.get_by_role("button", name="Prompts").click()
        page.locator("input[name=concept]").fill("bus")
        page.locator("textarea").fill("a big red bus\n- a car")
        page.get_by_role("button", name="Show").click()
        first = page.locator(".shot").first
        expect(first.locator("img")).to_be_visible(timeout=60_000)  # the model is loaded
        first.focus()
        page.keyboard.press("y")
        expect(page.locator("p .share")).to_contain_text("1 of 1 right")
        page.keyboard.press("n")  # the focus has moved to the next picture
        expect(page.locator("p .share")).to_contain_text("1 of 2 right: 0.50 (0.09 to 0.91)")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("u")
        expect(page.locator("p .share")).to_contain_text("1 of 1 right")
        page.get_by_role("button", name="Save prompts").click()
        expect(page.get_by_role("status")).to_contain_text("Saved as the prompts of bus")
        page.reload()
        expect(page.locator(".shot.right").first).to_be_visible()
        assert violations_everywhere(page) == {}
        page.keyboard.press("p")
        expect(page.locator("#grid .tile").first).to_be_visible()
    assert not problems
    bus = next(c for c in load(folder / "driftline.yaml").retrieve.concepts if c.name == "bus")
    assert (bus.prompts, bus.negatives) == (("a big red bus",), ("a car",))
    marks = json.loads((folder / "browse" / "marks.json").read_text())
    assert [*marks["bus"].values()] == [True]


def test_a_field_of_thousands_of_prompts_is_refused() -> None:
    with pytest.raises(BadInput, match="The field has 3,000 lines"):
        Query.parse("a\n" * 3000)


class TestConnections:
    """Anybody who reaches the port can send what is no request."""

    @pytest.fixture
    def place(self) -> Iterator[tuple[int, str]]:
        """Port and path of an app."""
        app = local_app("driftline.pipelines.browse")
        app.on("GET", "/")(lambda: "fine")
        app.on("POST", "/size")(lambda name: {})
        with served(lambda port: guarded(app, port, "browse")) as page:
            yield int(page.address.split(":")[2].split("/")[0]), f"/{page.address.split('/', 3)[3]}"

    def ask(self, port: int, request: str) -> str:
        hosted = f"Host: 127.0.0.1:{port}\nOrigin: http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(request.replace("HOST", hosted).replace("\n", "\r\n").encode())
            with connection.makefile("rb") as answer:
                return answer.readline().decode()

    @pytest.mark.parametrize(
        ("head", "status"),
        [
            ("OPTIONS * HTTP/1.1", 400), ("CONNECT a:1 HTTP/1.1", 400), ("GET http://a/ HTTP/1.1", 400),
            ("PUT PATH HTTP/1.1", 405), ("TRACE PATH HTTP/1.1", 405), ("GET PATH HTTP/1.1", 200),
            ("POST PATHsize HTTP/1.1\nContent-Length: 1\nTransfer-Encoding: chunked", 413),
            ("GET PATH HTTP/1.1\nTransfer-Encoding: chunked", 413), ("GET PATH HTTP/1.1\nContent-Length: 999999", 413),
        ],
    )  # fmt: skip
    def test_what_is_no_request_of_a_page_is_answered_before_it_is_routed(self, place, head, status):
        answer = self.ask(place[0], f"{head.replace('PATH', place[1])}\nHOST\n\n")
        assert answer.startswith(f"HTTP/1.1 {status} ")
