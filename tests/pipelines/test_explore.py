"""The explore page: what prompts bring, marks that outlive the server, prompts saved, a server that stays local."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.console import document, handed, inside
from support.pages import chromium_browser, served, violations_everywhere

import driftline as dl
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.withdrawals import Withdrawal, address_digest, withdraw
from driftline.pipelines.config.loader import load
from driftline.pipelines.config.yaml_edit import set_value
from driftline.pipelines.prompt_explorer.contact_sheets import sheets
from driftline.pipelines.prompt_explorer.explorer import Explorer, Marks
from driftline.pipelines.prompt_explorer.query import Query
from driftline.pipelines.prompt_explorer.server import application
from driftline.pipelines.prompt_explorer.views import Share
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of
from driftline.pipelines.web.local_server import guarded, listen
from driftline.pipelines.web.page import local_app

HOSTILE = '<script>alert(1)</script>"onmouseover="x'


def context_of(folder: Path) -> Context:
    return Context(folder, load(folder / "driftline.yaml"), RunLog(quiet=True))


@pytest.fixture
def folder(journey: Path, tmp_path: Path) -> Path:
    """A run folder of the test's own; its stages are the journey's."""
    (tmp_path / "run").mkdir()
    shutil.copy(journey / "driftline.yaml", tmp_path / "run")
    (tmp_path / "run" / "stages").symlink_to(journey / "stages")
    return tmp_path / "run"


@pytest.fixture
def explorer(folder: Path) -> Explorer:
    return Explorer(context_of(folder))


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The page, served on loopback."""
    with served(lambda port: application(context_of(folder), port)) as running:
        yield running.address.rstrip("/")


def test_a_photo_that_is_withdrawn_meanwhile_is_gone_at_once(explorer: Explorer) -> None:
    query = Query(("a photo of a car",))
    first = explorer.view(query, "", 3).buckets[0].shots[0].id
    assert explorer.thumbnail(first)
    dl.withdraw(explorer.context.root, first)
    again = explorer.view(query, "", 3).buckets[0].shots
    assert (len(again), first in [shot.id for shot in again]) == (3, False)
    with pytest.raises(BadInput, match="was withdrawn"):
        explorer.thumbnail(first)


def test_an_address_that_is_withdrawn_is_gone_too(explorer: Explorer) -> None:
    photo = explorer.samples(1)[0][1][0]
    url = pq.read_table(folder_of(explorer.context.root, "ingest") / "table", filters=[("id", "=", photo)])["url"][0]
    digest = address_digest(url.as_py())
    withdraw(explorer.context.root / "withdrawals.csv", [Withdrawal("", "2026-01-01", "", "", digest)])
    assert not explorer.shown()(photo)


class TestWhatAPromptBrings:
    def test_pictures_of_each_bucket_are_the_retrieve_stages(self, explorer: Explorer, folder: Path) -> None:
        import pyarrow.parquet as pq

        bus = next(c for c in explorer.concepts if c.name == "bus")
        view = explorer.view(Query(bus.prompts), "bus", 5)
        table = pq.read_table(
            folder_of(folder, "retrieve") / "candidates.parquet", filters=[("concept", "=", "bus"), ("rank", "<", 5)]
        )
        for bucket, shown in zip(explorer.buckets, view.buckets, strict=True):
            rows = [r for r in table.to_pylist() if r["bucket"] == bucket]
            assert [(s.id, pytest.approx(s.score)) for s in shown.shots] == [(r["id"], r["score"]) for r in rows]

    def test_the_histogram_holds_every_picture_and_the_cut_is_the_last_candidates_score(
        self, explorer: Explorer
    ) -> None:
        view = explorer.view(Query(("a photo of a bus",)), "bus", 5)
        sizes = [int((explorer.store.buckets == b).sum()) for b in explorer.buckets]
        assert [sum(b.histogram) for b in view.buckets] == sizes
        assert all(b.shots[-1].score >= b.cut for b in view.buckets)

    def test_without_a_prompt_pictures_of_every_bucket_are_shown_under_its_dates(
        self, explorer: Explorer, server: str
    ) -> None:
        samples = explorer.samples(5)
        assert samples == explorer.samples(5)
        assert [label for label, _ in samples] == list(explorer.buckets.values())
        assert all(re.fullmatch(r"\d{4}-\d\d to \d{4}-\d\d", label) for label, _ in samples)
        page = httpx.get(server, params={"k": 5}).text
        assert all(f'data-id="{id_}"' in page for _, ids in samples for id_ in ids)

    def test_a_prompt_shared_with_another_concept_shows_the_overlap(self, explorer: Explorer) -> None:
        car = next(c for c in explorer.concepts if c.name == "car")
        view = explorer.view(Query(car.prompts), "bus", 3)
        assert view.overlap["car"] == 1.0
        assert all("car" in shot.also for b in view.buckets for shot in b.shots)

    def test_a_prompt_that_is_too_long_tells_what_is_not_read(self, explorer: Explorer) -> None:
        assert explorer.view(Query(("a bus " + "and a car " * 30,)), "", 1).unread[0].endswith("and a car")

    def test_no_prompt_is_an_error(self, explorer: Explorer) -> None:
        with pytest.raises(BadConfig, match="There is no prompt"):
            explorer.view(Query.parse("- only negatives"), "bus", 5)


@given(st.integers(0, 50), st.integers(0, 50))
def test_wilsons_interval_holds_the_share(right: int, wrong: int) -> None:
    share = Share(right, right + wrong)
    low, high = share.interval
    assert 0 <= low <= (right / share.marked if share.marked else 0.5) <= high <= 1


def test_wilsons_interval_equals_the_published_one() -> None:
    low, high = Share(81, 263).interval  # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


class TestMarks:
    def test_marks_outlive_the_server_and_belong_to_their_concept(self, folder: Path, explorer: Explorer) -> None:
        shots = explorer.view(Query(("a bus",)), "bus", 3).buckets[0].shots
        for shot, right in zip(shots, (True, False, True), strict=True):
            explorer.mark("bus", shot.id, right)
        explorer.mark("bus", shots[2].id, None)
        again = Explorer(context_of(folder))
        assert again.view(Query(("a bus",)), "bus", 3).share == Share(1, 2)
        assert again.view(Query(("a bus",)), "car", 3).share == Share(0, 0)

    def test_half_a_line_of_a_killed_server_is_forgotten_and_nothing_else(self, tmp_path: Path) -> None:
        Marks(tmp_path / "marks.jsonl").add("bus", "1", True)
        with (tmp_path / "marks.jsonl").open("a") as file:
            file.write('{"concept": "bus", "id": "2", "ri')
        marks = Marks(tmp_path / "marks.jsonl")
        marks.add("bus", "3", False)
        assert Marks(tmp_path / "marks.jsonl").values == {("bus", "1"): True, ("bus", "3"): False}

    def test_a_picture_that_is_not_there_cannot_be_marked(self, explorer: Explorer) -> None:
        with pytest.raises(BadInput, match="No image has the id"):
            explorer.mark("bus", "../../etc/passwd", True)


class TestSaving:
    def test_prompts_go_into_the_file_and_the_rest_of_it_stays(self, explorer: Explorer, folder: Path) -> None:
        before = (folder / "driftline.yaml").read_text().splitlines()
        explorer.save("bus", Query(("a big bus", 'a "bus": {x}'), ("a car",)))
        after = (folder / "driftline.yaml").read_text().splitlines()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(changed) == 1
        bus = next(c for c in load(folder / "driftline.yaml").retrieve.concepts if c.name == "bus")
        assert (bus.prompts, bus.negatives) == (("a big bus", 'a "bus": {x}'), ("a car",))
        assert bus.option == "bus"

    def test_a_concept_is_found_by_its_name_after_the_file_was_edited_by_hand(
        self, explorer: Explorer, folder: Path
    ) -> None:
        bus = next(c for c in load(folder / "driftline.yaml").retrieve.concepts if c.name == "bus")
        file = folder / "driftline.yaml"
        tram = "    - {name: tram, prompts: [a tram]}\n"
        text, found = re.subn(r"^  concepts:.*\n", rf"\g<0>{tram}", file.read_text(), flags=re.M)
        assert found == 1
        file.write_text(text)
        explorer.save("bus", Query(("a big bus",)))
        after = {c.name: c.prompts for c in load(folder / "driftline.yaml").retrieve.concepts}
        assert (after["tram"], after["bus"]) == (("a tram",), ("a big bus",))
        assert bus.prompts != after["bus"]

    def test_a_new_name_is_appended(self, explorer: Explorer, folder: Path) -> None:
        explorer.save("tram", Query(("a tram",)))
        assert load(folder / "driftline.yaml").retrieve.concepts[-1].name == "tram"
        assert explorer.view(Query(("a tram",)), "bus", 3).overlap["tram"] == 1.0

    def test_what_would_make_the_file_invalid_is_refused_and_the_file_stays(
        self, explorer: Explorer, folder: Path
    ) -> None:
        before = (folder / "driftline.yaml").read_text()
        with pytest.raises(BadConfig, match="background"):
            explorer.save("background", Query(("x",)))
        assert (folder / "driftline.yaml").read_text() == before

    def test_concepts_in_a_file_of_their_own_are_saved_there(self, folder: Path) -> None:
        text = (folder / "driftline.yaml").read_text()
        (folder / "concepts.yaml").write_text(
            "# mine\n- name: bus\n  prompts:\n    - a bus\n    - buses\n  option: B\n"
        )
        start = text.index("  concepts:")
        end = text.index("  templates:", start)
        (folder / "driftline.yaml").write_text(text[:start] + "  concepts: concepts.yaml\n" + text[end:])
        explorer = Explorer(context_of(folder))
        explorer.save("bus", Query(("one",)))
        explorer.save("car", Query(("two",)))
        saved = (folder / "concepts.yaml").read_text()
        assert saved.startswith("# mine\n")
        assert yaml.safe_load(saved) == [
            {"name": "bus", "prompts": ["one"], "option": "B"},
            {"name": "car", "prompts": ["two"]},
        ]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab:#-{}[]\"' ,\n&*!%@`", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("pqrs"), inner, max_size=3),
    max_leaves=6,
)


@given(values, values, st.booleans())
def test_setting_one_value_changes_that_value_only(old: Any, new: Any, flow: bool) -> None:
    whole = {"first": [1, {"x": old, "y": 2}], "last": deepcopy(old)}  # the same object would be an alias
    text = "# head\n" + yaml.safe_dump(whole, default_flow_style=flow, sort_keys=False) + "# foot\n"
    changed = set_value(text, ["first", 1, "x"], new)
    assert yaml.safe_load(changed) == {"first": [1, {"x": new, "y": 2}], "last": old}
    assert (changed.startswith("# head\n"), changed.endswith("# foot\n")) == (True, True)
    added = set_value(text, ["first", 1, "z"], new)
    assert yaml.safe_load(added) == {"first": [1, {"x": old, "y": 2, "z": new}], "last": old}
    longer = set_value(text, ["first", 2], new)
    assert yaml.safe_load(longer) == {"first": [1, {"x": old, "y": 2}, new], "last": old}


class TestServer:
    def test_hostile_text_is_shown_as_text(self, server: str) -> None:
        page = httpx.get(server, params={"a": HOSTILE, "b": HOSTILE, "concept": HOSTILE[:70]}).text
        assert "<script>alert" not in page
        assert '"onmouseover=' not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page

    def test_all_photos_with_filters_and_a_timeline_are_one_click_away(self, server: str) -> None:
        assert '<a class="button" href="photos/">' in httpx.get(server).text
        page, view = (httpx.get(f"{server}/photos/{path}") for path in ("", "view"))
        assert '<a class="button" href="../">' in page.text
        assert 0 < sum(view.json()["timeline"]) <= view.json()["size"]
        assert "content-security-policy" in page.headers
        assert httpx.get(f"{server.rpartition('/')[0]}/photos/view").status_code == 401  # without the secret

    @pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
    def test_another_host_name_is_refused(self, server: str, host: str) -> None:
        assert httpx.get(server, headers={"host": host}).status_code == 421

    @pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://127.0.0.1"])
    def test_a_write_from_another_origin_is_refused(self, server: str, origin: str | None, folder: Path) -> None:
        headers = {} if origin is None else {"origin": origin}
        content = {"concept": "bus", "prompt": "x"}
        assert httpx.post(f"{server}/save", json=content, headers=headers).status_code == 403
        assert "tram" not in (folder / "driftline.yaml").read_text()

    @pytest.mark.parametrize("path", ["../../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "stages/03_fetch"])
    def test_no_path_leads_to_a_file(self, server: str, path: str) -> None:
        assert httpx.get(f"{server}/thumb?id={path}").status_code == 404
        assert httpx.get(f"{server}/static/{path}").status_code in (401, 404)  # httpx resolves "..", and leaves

    def test_without_the_secret_nothing_is_shown(self, server: str) -> None:
        answer = httpx.get(server.rpartition("/")[0])
        assert (answer.status_code, answer.text) == (
            401,
            "Open the address that driftline explore printed: it contains a secret.",
        )

    def test_answers_carry_a_strict_policy(self, server: str) -> None:
        headers = httpx.get(server).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"

    def test_pictures_of_a_page_are_served_small(self, server: str, explorer: Explorer) -> None:
        id_ = explorer.view(Query(("a bus",)), "", 1).buckets[0].shots[0].id
        answer = httpx.get(f"{server}/thumb", params={"id": id_})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
        assert answer.content.startswith(b"\xff\xd8")

    def test_a_mistake_in_saving_is_told_not_raised(self, server: str) -> None:
        content = {"concept": "background", "prompt": "x"}
        answer = httpx.post(f"{server}/save", json=content, headers={"origin": server.rpartition("/")[0]})
        assert answer.status_code == 400
        assert "background" in answer.json()["error"]


def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadConfig, match="Cannot listen on"):
            listen(taken.getsockname()[1])


def test_a_run_that_is_not_embedded_says_what_to_do(tmp_path: Path, journey: Path) -> None:
    shutil.copy(journey / "driftline.yaml", tmp_path)
    with pytest.raises(MissingFile, match=r"stage fetch .* is not done.*--until embed"):
        Explorer(context_of(tmp_path))


def test_sheets_and_a_table_for_those_without_a_browser(explorer: Explorer, tmp_path: Path) -> None:
    import csv

    from PIL import Image

    made = sheets(explorer, ["a bus", "=a car\n- a bus"], "", 4, tmp_path)
    with Image.open(made[0]["picture"]) as sheet:
        assert sheet.format == "PNG"
        assert sheet.height > 80 * len(explorer.buckets)
    rows = list(csv.DictReader((tmp_path / "candidates.csv").open()))
    assert len(rows) == 2 * 4 * len(explorer.buckets)
    assert rows[-1]["prompt"] == "'=a car | - a bus"


@pytest.mark.proof("browser")
def test_in_a_real_browser_prompt_pictures_marks_save(server: str, folder: Path) -> None:
    """Headless Chromium: what a person does."""
    from playwright.sync_api import expect

    with chromium_browser() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"{server}/")
        expect(page.locator(".rows .shot img").first).to_be_visible()
        assert violations_everywhere(page) == {}
        page.keyboard.press("ArrowRight")  # at once, without a click
        expect(page.locator(".shot").nth(1)).to_be_focused()
        page.keyboard.press("y")
        expect(page.get_by_role("status")).to_contain_text("Enter a concept first")
        page.get_by_label("Concept").fill("bus")
        page.locator("textarea[name=a]").fill("a photo of a bus")
        page.locator("textarea[name=b]").fill("a big red bus\n- a car")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".view")).to_have_count(2)
        first = page.locator(".shot").first
        expect(first.locator("img")).to_be_visible()
        first.locator("img").evaluate("image => image.decode()")  # it loads after it is laid out
        first.focus()
        page.keyboard.press("y")
        expect(page.locator("p .share").first).to_contain_text("1 of 1 right")
        page.keyboard.press("n")  # the focus has moved to the next picture
        expect(page.locator("p .share").first).to_contain_text("1 of 2 right: 0.50 (0.09 to 0.91)")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("u")
        expect(page.locator("p .share").first).to_contain_text("1 of 1 right")
        page.locator(".save").nth(1).click()
        expect(page.locator("output").nth(1)).to_have_text("saved")
        page.reload()
        expect(page.locator(".shot.right").first).to_be_visible()
        assert violations_everywhere(page) == {}
    assert not problems
    bus = next(c for c in load(folder / "driftline.yaml").retrieve.concepts if c.name == "bus")
    assert (bus.prompts, bus.negatives) == (("a big red bus",), ("a car",))
    marks = [json.loads(line) for line in (folder / "explore" / "marks.jsonl").read_text().splitlines()]
    assert [m["right"] for m in marks] == [True, False, None]


def test_the_command_writes_sheets_of_as_many_pictures_as_asked_for(folder: Path, tmp_path: Path) -> None:
    words = ("explore", folder, "--prompt", "a bus", "--prompt", "a car\\n- a bus", "--count", 3, "--concept", "bus")
    place = "driftline.pipelines.prompt_explorer.contact_sheets.sheets"
    found = handed(place, *words, "--out", tmp_path / "sheets")
    assert list(found.values())[1:] == [["a bus", "a car\n- a bus"], "bus", 3, tmp_path / "sheets"]
    made = document(*words, "--out", tmp_path / "sheets")["sheets"]
    lines = (tmp_path / "sheets" / "candidates.csv").read_text().splitlines()
    assert [Path(sheet["picture"]).is_file() for sheet in made] == [True, True]
    assert len(lines) == 1 + 2 * 3 * len(found["explorer"].buckets)
    assert "--prompt was given without --out" in inside("explore", folder, "--prompt", "a bus").stderr


def test_a_field_of_thousands_of_prompts_is_refused() -> None:
    with pytest.raises(BadInput, match="The field has 3,000 lines"):
        Query.parse("a\n" * 3000)


class TestConnections:
    """Anybody who reaches the port can send what is no request."""

    @pytest.fixture
    def place(self) -> Iterator[tuple[int, str]]:
        """Port and path of an app."""
        app = local_app("driftline.pipelines.prompt_explorer")
        app.on("GET", "/")(lambda: "fine")
        app.on("POST", "/size")(lambda name: {})
        with served(lambda port: guarded(app, port, "explore")) as page:
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
    def test_what_is_no_request_of_a_page_is_answered_before_it_is_routed(
        self, place: tuple[int, str], head: str, status: int
    ) -> None:
        answer = self.ask(place[0], f"{head.replace('PATH', place[1])}\nHOST\n\n")
        assert answer.startswith(f"HTTP/1.1 {status} ")
