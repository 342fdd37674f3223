"""The browse page: every photo with its fate, counts that are of the same photos, a server that stays local."""

import io
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from starlette.testclient import TestClient
from support.pages import Served, chromium_browser, served, violations

from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.seeding import rng_for
from driftline.curate.release import Release
from driftline.pipelines.browse.collection import VALUES, Asked, Collection, Selections, Source
from driftline.pipelines.browse.server import application
from driftline.pipelines.run.run_folder import open_collection
from driftline.pipelines.web.rendering import labels, small

HOSTILE = "<img src=x onerror=alert(1)>\"'`${1}"


@pytest.fixture(scope="module")
def collection(journey: Path) -> Collection:
    return open_collection(journey)


@pytest.fixture(scope="module")
def selections(collection: Collection) -> Selections:
    return Selections(collection)


@pytest.fixture
def client(collection: Collection) -> Iterator[TestClient]:
    app, path = application(collection, 8)
    with TestClient(app, base_url=f"http://127.0.0.1:8{path}", headers={"origin": "http://127.0.0.1:8"}) as browser:
        yield browser


def values(collection: Collection, column: str) -> list[Any]:
    return [row[0] for row in collection.rows(f'SELECT "{column}" FROM photos ORDER BY n')]


class TestTheTable:
    def test_photos_are_in_order_of_time(self, collection: Collection) -> None:
        dates = [t for t in values(collection, "uploaded") if t is not None]
        assert dates == sorted(dates)
        assert collection.dated == len(dates)

    def test_impossible_dates_come_last(self, collection: Collection) -> None:
        reasons = values(collection, "reason")
        wrong = [n for n, reason in enumerate(reasons) if reason == "filter: impossible_upload_date"]
        assert wrong
        assert min(wrong) >= collection.dated

    def test_a_release_opens_too(self, journey: Path) -> None:
        release = open_collection(Release.open(journey).path)
        assert (release.source.kind, release.size) == ("release", Release.open(journey).facts["images"])
        row = release.photos([3])[0]
        data = release.source.picture(row)
        assert data is not None
        assert Image.open(io.BytesIO(data)).format == "JPEG"

    def test_a_run_whose_images_are_not_fetched_opens(self, journey: Path, tmp_path: Path) -> None:
        shutil.copy(journey / "driftline.yaml", tmp_path)
        for stage in ("01_ingest", "02_filter"):
            (tmp_path / "stages").mkdir(exist_ok=True)
            (tmp_path / "stages" / stage).symlink_to(journey / "stages" / stage)
        opened = open_collection(tmp_path)
        assert set(values(opened, "outcome")) == {"dropped", "in the run"}

    def test_another_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match="Expected a run folder, a release, a stream or results"):
            open_collection(tmp_path)

    def test_a_file_that_is_no_image_file_is_not_read(self, collection: Collection, tmp_path: Path) -> None:
        row = {"id": "x", "shard": None, "reason": "filter: video", "path": "/dev/zero"}
        assert collection.source.picture(row) is None
        Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
        assert collection.source.picture({**row, "path": str(tmp_path / "a.png")})


def test_buckets_of_numbers_are_named_by_their_dates() -> None:
    day = "2010-05-{:02d}T00:00:00Z".format
    buckets = [{"index": i, "name": str(i), "start": day(i + 1), "end": day(i + 2)} for i in range(2)]
    assert labels(buckets) == {0: "2010-05-01", 1: "2010-05-02"}
    assert labels([{**buckets[0], "name": "1990s"}]) == {0: "1990s"}
    assert labels([{**buckets[0], "start": None}, {**buckets[1], "end": None}]) == {
        0: "until 2010-05",
        1: "from 2010-05",
    }


class TestSelections:
    def test_a_span_of_days_includes_both(self, selections: Selections) -> None:
        asked = Asked.parse([("since", "2008-01-01"), ("until", "2008-12-31")], [])
        rows = selections.collection.photos(selections.ordered(asked).tolist())
        assert rows
        assert all(1199145600 <= row["uploaded"] < 1230768000 for row in rows)

    def test_newest_first_keeps_photos_without_a_date_last(self, selections: Selections) -> None:
        numbers = selections.ordered(Asked(sort="newest"))
        dates = [row["uploaded"] for row in selections.collection.photos(numbers.tolist())]
        dated = selections.collection.dated
        assert dates[:dated] == sorted(dates[:dated], reverse=True)
        assert dates[dated:] == [None] * (len(dates) - dated)

    @pytest.mark.parametrize(
        ("pair", "message"),
        [
            (("clas", "bus"), "Unknown filter 'clas'. Did you mean 'class'"),
            (("since", "May"), "Expected YYYY-MM-DD"),
            (("sort", "best"), "Unknown order 'best'"),
        ],
    )
    def test_a_filter_that_makes_no_sense_is_refused(self, pair: tuple[str, str], message: str) -> None:
        with pytest.raises(BadConfig, match=message):
            Asked.parse([pair], ["class"])

    def test_text_that_is_sought_is_never_sql(self, selections: Selections) -> None:
        assert len(selections.ordered(Asked(find="' OR 1=1 --"))) == 0
        assert len(selections.ordered(Asked({"class": ("' OR 1=1 --",)}))) == 0


class TestServer:
    def test_one_answer_holds_the_first_screen(self, client: TestClient, collection: Collection) -> None:
        view = client.get("view", params={"class": "bus"}).json()
        assert view["size"] == collection.size
        assert view["total"] == len([c for c in values(collection, "class") if c == "bus"])
        assert {tile[2] for tile in view["photos"]} == {"bus"}
        assert client.get("rows", params={"class": "bus", "at": 5}).json()[0] == view["photos"][5]

    def test_what_the_first_screen_shows_is_made_while_the_server_starts(self, journey, monkeypatch):
        opened = open_collection(Release.open(journey).path)
        app, path = application(opened, 8, ahead=True)
        for thread in threading.enumerate():
            if thread.name == "first screen":
                thread.join()
        asked: list[str] = []
        rows = opened.rows
        monkeypatch.setattr(opened, "rows", lambda query, *more: asked.append(query) or rows(query, *more))
        with TestClient(app, base_url=f"http://127.0.0.1:8{path}") as browser:
            view = browser.get("view").json()
            assert [query for query in asked if "count(" in query] == []
            for tile in view["photos"][:30]:
                assert browser.get(f"thumb/{tile[0]}").status_code == 200
        assert len(asked) == 1  # the rows of the page
        assert view["total"] == opened.size
        assert sum(count for _, count in view["facets"]["class"]["values"]) == opened.size

    def test_pictures_are_small_and_missing_ones_are_404(self, client: TestClient, collection: Collection) -> None:
        (fetched,) = collection.rows("SELECT n FROM photos WHERE vector IS NOT NULL LIMIT 1")[0]
        (missing,) = collection.rows("SELECT n FROM photos WHERE reason LIKE 'fetch: %' LIMIT 1")[0]
        answer = client.get(f"thumb/{fetched}")
        assert (answer.headers["content-type"], answer.content[:2]) == ("image/jpeg", b"\xff\xd8")
        assert client.get(f"thumb/{missing}").status_code == 404
        assert client.get("thumb/999999999").status_code == 404
        view = client.get("view", params={"reason": "fetch: http_404"}).json()
        assert {(tile[5], bool(tile[6])) for tile in view["photos"]} == {(False, True)}  # none is asked for
        assert client.get("thumb/..%2f..%2fetc").status_code in (400, 404)

    def test_facts_and_history_of_a_photo(self, client: TestClient, collection: Collection) -> None:
        (n, id_) = collection.rows("SELECT n, id FROM photos WHERE vector IS NOT NULL LIMIT 1")[0]
        assert client.get(f"photo/{n}").json()["facts"]["id"] == id_
        assert client.get(f"trace/{n}").json()["lines"][0].startswith("ingest")

    def test_a_mistake_is_one_sentence(self, client: TestClient) -> None:
        answer = client.get("view", params={"clas": "x"})
        assert (answer.status_code, answer.json()["error"][:22]) == (400, "Unknown filter 'clas'.")

    @pytest.mark.parametrize("name", ["../server.py", "..%2fserver.py", "page.css%00", "Page.css", "browse.html.j2"])
    def test_no_other_file_is_served(self, client: TestClient, name: str) -> None:
        assert client.get(f"static/{name}").status_code in (401, 404)
        assert client.get("static/page.css").headers["content-type"].startswith("text/css")


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be decoded"):
        small(b"<svg onload=alert(1)>", 10)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Served]:
    """A collection whose name and classes are hostile, in a browser's reach."""
    collection = made([HOSTILE, "<b>bold</b>", "=1+1"])
    with served(lambda port: application(collection, port)) as running:
        yield running


def made(classes: list[str]) -> Collection:
    """Sixty photos of these classes, without images."""
    n = pa.array(range(60))
    names = pa.array([classes[i % len(classes)] for i in range(60)])
    columns = {"id": n.cast(pa.string()), "uploaded": n, "class": names, "place_in_order": n}
    database = duckdb.connect()
    database.register("photos_of", pa.table(columns))
    return Collection(Source(HOSTILE, "run", [], lambda row: None), database, "SELECT * FROM photos_of")


@pytest.mark.proof("browser")
def test_in_a_real_browser_hostile_names_are_text_keys_work_and_axe_finds_nothing(hostile: Served) -> None:
    from playwright.sync_api import expect

    with chromium_browser() as browser:
        for scheme, width in (("light", 1400), ("dark", 390)):
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
            problems: list[str] = []
            page.on("pageerror", lambda error, problems=problems: problems.append(str(error)))
            page.on("dialog", lambda dialog, problems=problems: problems.append(dialog.message))
            page.goto(hostile.address)
            expect(page.locator("body[data-ready=yes]")).to_be_attached()
            assert page.locator("main img[src='x'], aside img, aside b").count() == 0
            expect(page.locator(".tile").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page) == {}
            if width > 1000:
                page.locator(".facet[data-facet=class] label", has_text="=1+1").click()
                expect(page.locator("#chips .chip")).to_have_text("=1+1×")
                assert "class=%3D1%2B1" in page.url
                page.locator("#grid").focus()
                page.keyboard.press("ArrowRight")
                page.keyboard.press("Enter")
                expect(page.locator("dialog#photo")).to_contain_text("=1+1")
                assert violations(page) == {}
                page.keyboard.press("Escape")
            assert problems == []
            page.close()


def test_json_of_hostile_names_is_json() -> None:
    app, path = application(made([HOSTILE, "b", "c"]), 8)
    with TestClient(app, base_url=f"http://127.0.0.1:8{path}") as client:
        answer = client.get("view", params={"class": HOSTILE})
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert {tile[2] for tile in json.loads(answer.text)["photos"]} == {HOSTILE}


N = 400  # photos of a made table


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Photos of 20 classes, class k with 1 + 2 k photos or none; half of them have a decision."""
    rng = rng_for(0, "rows")
    classes = [f"c{k:02d}" for k in range(20) for _ in range(1 + 2 * k)]
    drawn = [None] * (N - len(classes)) + classes
    return [
        {"id": f"p{i}", "uploaded": 1_200_000_000 + 86_400 * i, "class": name, "bucket": f"b{int(rng.integers(3))}",
         "decision": ["kept", None][int(rng.integers(2))]}
        for i, name in enumerate(rng_for(1, "order").permutation(np.array(drawn, object)).tolist())
    ]  # fmt: skip


@pytest.fixture(scope="module")
def page(rows: list[dict[str, Any]]) -> Selections:
    database = duckdb.connect()
    kinds = {"uploaded": pa.int64()}
    table = {name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in rows[0]}
    database.register("photos_of", pa.table(table | {"place_in_order": list(range(N))}))
    source = Source("made", "run", ["b0", "b1", "b2", "b3"], lambda row: None)
    return Selections(Collection(source, database, "SELECT * FROM photos_of"))


ASKED = {
    "nothing": Asked(),
    "rare classes": Asked({"class": ("c00", "c03", "c19")}),
    "a decision in a time": Asked({"decision": ("kept",), "bucket": ("b1",)}, since=1_205_000_000),
    "no decision": Asked({"decision": ("",)}),
    "none of these": Asked({"class": ("c01", "zebra"), "bucket": ("b3",)}),
}


class TestAllNumbersAreOfOneSet:
    @pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
    def test_total_facets_and_timeline(self, page: Selections, rows: list[dict[str, Any]], asked: Asked) -> None:
        def holds(i: int, without: str = "") -> bool:
            row = rows[i]
            chosen = all(
                any(value in values_of(row, name) for value in wanted)
                for name, wanted in asked.facets.items()
                if name != without
            )
            late = asked.since is None or without == "time" or row["uploaded"] >= asked.since
            return chosen and late

        shown = page.overview(asked)
        expected = [i for i in range(N) if holds(i)]
        assert shown["total"] == len(expected)
        assert sorted(page.ordered(asked).tolist()) == expected
        for name, counts in shown["facets"].items():
            of = [value for i in range(N) if holds(i, name) for value in values_of(rows[i], name)]
            assert len(counts["values"]) >= min(len(set(of)), VALUES), name
            assert counts["values"] == [[value, of.count(value)] for value, _ in counts["values"]]
            assert set(asked.facets.get(name, ())) <= {value for value, _ in counts["values"]}
            assert counts["more"] == (name != "bucket" and len(set(of)) > VALUES)
        assert sum(shown["timeline"]) == sum(holds(i, "time") for i in range(N))

    def test_a_chosen_value_beyond_the_largest_has_its_count_also_among_more_values(self, page: Selections) -> None:
        asked = Asked({"class": ("c00",)})
        assert ["c00", 1] in page.counts(asked, "class")["values"]
        assert ["c00", 1] in page.counts(asked, "class", most=3)["values"]
        assert len(page.counts(asked, "class", most=3)["values"]) == 4


def values_of(row: dict[str, Any], name: str) -> list[str]:
    """A photo's values of a facet; "" for none."""
    value = row[name]
    return ["" if value is None else value]
