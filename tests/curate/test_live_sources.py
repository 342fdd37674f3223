"""Wikimedia Commons: documented protocols, polite clients, hostile answers as named rejects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from support.flickr_server import FlickrServer, photo
from support.wikimedia_server import STEPS, Thumbnails, WikimediaServer, error, file, thumbnails

from driftline.curate.core.errors import BadConfig, DriftlineError, Unfinished
from driftline.curate.core.outside import http
from driftline.curate.core.run_log import RunLog
from driftline.curate.fetch import native
from driftline.curate.fetch.run import fetch as fetch_images
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.sources import wikimedia
from driftline.curate.sources.base import Source, Workplace
from driftline.curate.sources.flickr import Flickr
from driftline.curate.sources.wikimedia import Wikimedia

START = 1_300_000_000
Serve = Callable[..., WikimediaServer]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of clients, which are not slept."""
    found: list[float] = []
    monkeypatch.setattr(http.time, "sleep", found.append)
    return found


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[WikimediaServer] = []

    def start(*args: Any, **kwargs: Any) -> WikimediaServer:
        servers.append(WikimediaServer(*args, **kwargs))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def read(source: Source, work: Path, skip: int = 0) -> list[dict[str, Any]]:
    return pa.Table.from_batches(source.batches(3, skip, Workplace(work=work))).to_pylist()


def commons(server: WikimediaServer, end: int = START + 1000, **more: Any) -> Wikimedia:
    return Wikimedia(**{"start": START, "end": end, "contact": "me@example.org", "endpoint": server.address,
                        "rate": 36_000_000, **more})  # fmt: skip


class TestWikimedia:
    def test_a_file_becomes_a_record(self, serve: Serve, tmp_path: Path) -> None:
        (row,) = read(commons(serve([file(1, START + 5)])), tmp_path)
        assert (row["id"], row["uploaded"], row["taken"]) == ("Bicycle_1-jpg-3e49c2ba", START + 5, 1_298_973_600)
        assert (row["licence"], row["licence_url"]) == (
            "CC BY-SA 4.0", "https://creativecommons.org/licenses/by-sa/4.0",
        )  # fmt: skip
        assert (row["user"], row["nickname"], row["title"]) == ("Nino", "Nino & co", "Bicycle 1")
        assert (row["description"], row["tags"]) == ("A red bicycle", "Bicycles,Red+things")
        assert (row["longitude"], row["latitude"]) == (8.25, 50.5)
        assert row["url"].endswith("/wiki/Special:Redirect/file/Bicycle_1.jpg?width=1280")
        assert row["page_url"] == "https://commons.wikimedia.org/wiki/File:Bicycle_1.jpg"

    def test_the_original_is_taken_where_it_is_small_or_wanted(self, serve: Serve, tmp_path: Path) -> None:
        server = serve([file(1, START, width=640), file(2, START + 1)])
        assert [r["url"].partition("commons/")[2] for r in read(commons(server, width=None), tmp_path)] == [
            "a/ab/Bicycle_1.jpg", "a/ab/Bicycle_2.jpg",
        ]  # fmt: skip
        assert read(commons(server), tmp_path)[0]["url"].endswith("a/ab/Bicycle_1.jpg")

    def test_every_page_of_every_day_is_read_once_and_one_after_the_other(self, serve: Serve, tmp_path: Path) -> None:
        server = serve([file(i, START + i * 10_000) for i in range(25)], page=2)
        rows = read(commons(server, START + 250_000), tmp_path)
        assert [r["uploaded"] for r in rows] == [START + i * 10_000 for i in range(25)]
        assert server.most == 1
        asked = len(server.queries)
        assert read(commons(server, START + 250_000), tmp_path) == rows
        assert len(server.queries) == asked, "finished pages are kept"

    def test_a_later_end_asks_only_for_the_days_that_are_new(self, serve: Serve, tmp_path: Path) -> None:
        day = (START // 86_400 + 1) * 86_400
        server = serve([file(i, START + i * 20_000) for i in range(12)])
        first = read(commons(server, day + 86_400), tmp_path)
        asked = len(server.queries)
        grown = read(commons(server, day + 2 * 86_400), tmp_path)
        assert grown[: len(first)] == first
        assert len(grown) > len(first)
        assert len(server.queries) == asked + 1

    def test_a_run_that_was_cut_goes_on_at_its_cursor_with_the_same_bytes(self, serve, tmp_path, waits):
        files = [file(i, START + i) for i in range(9)]
        whole = read(commons(serve(files, page=2), width=None), tmp_path / "whole")
        cut = serve(files, page=2, fail=dict.fromkeys(range(3, 9), (500, {}, b"")))
        with pytest.raises(DriftlineError, match=r"Wikimedia did not answer 6 times in a row \(status 500\)"):
            read(commons(cut, width=None), tmp_path / "cut")
        before = len(cut.queries)
        assert read(commons(cut, width=None), tmp_path / "cut") == whole
        assert len(cut.queries) == before + 3
        names = [sorted(p.name for p in (tmp_path / n).rglob("*.json")) for n in ("whole", "cut")]
        assert names[0] == names[1]

    @pytest.mark.parametrize(
        ("reply", "wait"),
        [
            (error("maxlag", "Waiting for a host: 6 seconds lagged", **{"Retry-After": "5"}), 5.0),
            (error("ratelimited", "You've exceeded your rate limit"), 0.0),
            ((429, {"Retry-After": "7"}, b"slow down"), 7.0),
            ((503, {"Retry-After": "Mon, 01 Jan 2035 00:00:00 GMT"}, b""), None),
            ((200, {}, b"<html>not json"), "refused"),
            ((200, {}, b'{"query": {}}'), 0.0),
            ((200, {}, b'{"query": {"pages": 3}}'), 0.0),
        ],
        ids=["lag", "rate", "429", "too long", "html", "no list", "wrong type"],
    )
    def test_it_waits_as_long_as_the_server_asks(self, serve, tmp_path, waits, reply, wait):
        server = serve([file(1, START)], fail={1: reply})
        if wait is None:
            with pytest.raises(DriftlineError, match=r"asks to wait for [0-9,]+ seconds"):
                read(commons(server), tmp_path)
            return
        if wait == "refused":
            with pytest.raises(BadConfig, match="answers with not_json"):
                read(commons(server), tmp_path)
            return
        assert len(read(commons(server), tmp_path)) == 1
        assert max(waits) >= float(wait)
        assert len(server.queries) == 2

    @pytest.mark.parametrize(
        ("cursor", "message"),
        [
            ({"gaicontinue": "x", "continue": "gaicontinue||"}, "refuses the query .badcontinue"),
            ("next", "cursor is 'next'"),
        ],
    )
    def test_a_cursor_that_leads_nowhere_is_named(self, serve, tmp_path, cursor, message):
        with pytest.raises(DriftlineError, match=message):
            read(commons(serve([file(1, START)], cursor=cursor)), tmp_path)

    def test_a_cursor_without_end_is_named(self, serve: Serve, tmp_path: Path) -> None:
        class Endless(WikimediaServer):
            def answer(self, query: dict[str, str], agent: str) -> tuple[int, dict[str, str], bytes]:
                more = {"gaicontinue": str(len(self.queries)), "continue": "gaicontinue||"}
                page = {"query": {"pages": [file(1, START)]}, "continue": more, "batchcomplete": True}
                return 200, {}, json.dumps(page).encode()

        server = Endless([])
        try:
            with pytest.raises(DriftlineError, match=r"gives no new file for 50 pages in 2011-03-13T"):
                read(commons(server), tmp_path)
            server.cursor = None
        finally:
            server.close()
        assert len(server.queries) == wikimedia.EMPTY + 1

    @pytest.mark.parametrize(
        ("answer", "sentence"),
        [
            ((200, {}, b"<!DOCTYPE html>"), "answers with not_json"),
            (error("internal_api_error_DBQueryError", "lost"), r"6 times in a row \(error internal_api_error"),
            (error("readonly", "The wiki is in read-only mode"), r"6 times in a row \(error readonly"),
            (error("permissiondenied", "No."), r"refuses the query \(permissiondenied: No\.\)"),
            ((429, {}, b""), r"6 times in a row \(status 429\)"),
            ((429, {"Retry-After": "9" * 40}, b""), "asks to wait for"),
            ((503, {"Retry-After": "soon"}, b""), r"6 times in a row \(status 503\)"),
            ((200, {}, b'{"batchcomplete": true, "query": {"pages": {"1": {}}}}'), "an answer without a list"),
        ],
    )
    def test_an_answer_that_is_none_ends_in_a_sentence_and_the_same_command_goes_on(
        self, serve: Serve, tmp_path: Path, waits: list[float], answer: Any, sentence: str
    ) -> None:
        server = serve(
            [file(i, START + i) for i in range(5)], page=2, fail=(fail := dict.fromkeys(range(2, 99), answer))
        )
        with pytest.raises(DriftlineError, match=sentence):
            read(commons(server), tmp_path)
        assert all(0 <= wait <= 600 for wait in waits)
        fail.clear()
        assert len(read(commons(server), tmp_path)) == 5
        assert [query.get("gaicontinue") for query in server.queries].count(None) == 1, "the first page is kept"

    @pytest.mark.parametrize("text", [None, "", "\x00", "a\u202eb\ud800", "𝕏" * 3000, 7, ["x"], {"value": None}])
    def test_any_text_field_may_hold_anything(self, serve: Serve, tmp_path: Path, text: Any) -> None:
        fields = ("user", "url", "descriptionurl", "width", "size", "extmetadata")
        parts = ("Artist", "LicenseShortName", "LicenseUrl", "ImageDescription", "Categories", "GPSLatitude",
                 "DateTimeOriginal")  # fmt: skip
        files = [file(i, START + i, **{name: text}) for i, name in enumerate(fields)]
        files += [file(20 + i, START + i, extmetadata={part: {"value": text}}) for i, part in enumerate(parts)]
        rows = read(commons(serve(files)), tmp_path)
        assert [row["fault"] for row in rows] == [None] * len(files)

    def test_hostile_entries_are_rejects_in_their_place(self, serve: Serve, tmp_path: Path) -> None:
        bad = [
            file(0, START),
            file(1, START + 1, title=None),
            file(2, START + 2, mime="application/pdf"),
            file(3, START + 3, extmetadata=[], user=7, url=["x"], width="wide"),
            file(
                4, START + 4, extmetadata={"Artist": 3, "LicenseShortName": {"value": ["x"]}}, title="File:\ud800.jpg"
            ),
        ]
        rows = read(commons(serve(bad)), tmp_path)
        assert [r["fault"] for r in rows] == [None, "bad_id", "not_a_photo", None, None]
        assert rows[3]["url"] is rows[3]["user"] is rows[3]["licence"] is None
        assert rows[4]["nickname"] is rows[4]["licence"] is None

    def test_who_does_not_say_who_asks_is_refused(self, serve: Serve, tmp_path: Path) -> None:
        refusal = (403, {}, b"Please set a user-agent and respect our robot policy")
        with pytest.raises(BadConfig, match=r"answers with http_403.*collection\.contact"):
            read(commons(serve([file(1, START)], fail={1: refusal})), tmp_path)
        for contact in (None, "", "nobody", "a@b.org\nX: 1", "ü@b.org", "@ b"):
            with pytest.raises(ValidationError, match="contact"):
                Wikimedia.model_validate({"start": 0, "end": 1} | ({} if contact is None else {"contact": contact}))
        with pytest.raises(ValidationError, match="is empty"):
            Wikimedia(start=1, end=1, contact="a@b.org")


class TestAFileWithSeveralVersions:
    """Time and user are those of the first version: a bot that rotates a photo did not share it."""

    OLD = START - 2 * 86_400

    def test_belongs_to_who_shared_it_when_it_was_shared(self, serve: Serve, tmp_path: Path) -> None:
        rotated = file(1, START + 5, [(START + 3, "Cropper"), (self.OLD, "Ada")], user="Rotatebot", width=640)
        rows = read(commons(serve([rotated, file(2, START + 4)]), start=self.OLD), tmp_path)
        assert [(r["uploaded"], r["user"]) for r in rows] == [(START + 4, "Nino"), (self.OLD, "Ada")]
        assert json.loads(rows[1]["extra"]) == {
            "versions": 3, "file_version": "2011-03-13T07:06:45Z", "file_user": "Rotatebot",
        }  # fmt: skip
        assert rows[0]["extra"] is None
        assert "archive" not in rows[1]["url"], "the bytes are those of the current version"

    def test_first_shared_before_the_span_is_no_photo_of_it(self, serve: Serve, tmp_path: Path) -> None:
        server = serve([file(1, START + 5, [(START - 1, "Ada")]), file(2, START + 6, [(START, "Ada")])])
        assert [r["fault"] for r in read(commons(server), tmp_path)] == ["uploaded_before_start", None]

    def test_whose_first_user_is_hidden_has_none(self, serve: Serve, tmp_path: Path) -> None:
        hidden = file(1, START + 5, [(START + 1, "Ada")], user="Rotatebot")
        del hidden["imageinfo"][1]["user"]
        hidden["imageinfo"][1]["userhidden"] = True
        assert [r["user"] for r in read(commons(serve([hidden])), tmp_path)] == [None]

    def test_costs_no_further_query(self, serve: Serve, tmp_path: Path) -> None:
        server = serve([file(i, START + 500 + i, [(START + i, "Ada")]) for i in range(400)], page=100)
        assert {r["user"] for r in read(commons(server), tmp_path)} == {"Ada"}
        assert len(server.queries) == 4

    @pytest.mark.parametrize("room", [1, 7, 10_000])
    def test_is_read_whole_where_an_answer_is_cut(self, serve: Serve, tmp_path: Path, room: int) -> None:
        """Each of 11 files has four versions, the oldest by its own user; three, three, three, and two files a page."""
        files = [
            file(i, START + 500 + i, [(START + 200, "B"), (START + 100, "C"), (START + i, f"user {i}")])
            for i in range(11)
        ]
        server = serve(files, page=3, room=room)
        rows = read(commons(server), tmp_path)
        assert [(r["uploaded"], r["user"]) for r in rows] == [(START + i, f"user {i}") for i in range(11)]
        assert len(server.queries) == (4 if room > 12 else sum(-(-4 * n // room) for n in (3, 3, 3, 2)))

    @pytest.mark.parametrize("files", [1, 2])
    def test_has_more_of_them_than_an_answer(self, serve: Serve, tmp_path: Path, files: int) -> None:
        """Of several files, versions beyond iilimit are cut without a word; one file has a cursor."""
        earlier = [(START + 1200 - n, "Edits") for n in range(1, 1199)]
        many = file(7, START + 1200, [*earlier, (START + 1, "Ada")])
        server = serve([many, *(file(i, START + 10) for i in range(files - 1))])
        rows = read(commons(server, START + 2000), tmp_path)
        assert (rows[-1]["uploaded"], rows[-1]["user"]) == (START + 1, "Ada")
        assert len(server.queries) == (3 if files == 1 else 4)

    def test_whose_cursor_gives_nothing_is_named(self, serve: Serve, tmp_path: Path) -> None:
        with pytest.raises(DriftlineError, match="gives no new version"):
            read(commons(serve([file(1, START)], room=0)), tmp_path)


@pytest.fixture
def images() -> Iterator[Thumbnails]:
    with thumbnails() as host:
        yield host


class TestThumbnails:
    """Case 27: Wikimedia serves eleven widths."""

    def fetch(
        self, server: WikimediaServer, images: Thumbnails, folder: Path, width: int, **rules: Any
    ) -> Counter[str]:
        """Read the records and fetch their images, as the stages do."""
        server.thumbnails = images.url
        source = commons(server, width=width)
        rows = read(source, folder / "work")
        table = {name: [row.get(name) for row in rows] for name in ("id", "row", "url", "path", "uploaded", "until")}
        types = {"id": pa.string(), "url": pa.string(), "path": pa.string()}
        arrays = {name: pa.array(values, types.get(name, pa.int64())) for name, values in table.items()}
        pq.write_table(pa.table(arrays), folder / "part.parquet")
        settings = FetchSettings(shard_size=4, private_addresses="allow", backoff=0, timeout=60, deadline=100, **rules)
        (folder / "fetched").mkdir(exist_ok=True)
        quiet = RunLog(quiet=True)
        return fetch_images([folder / "part.parquet"], folder / "fetched", settings, quiet, contact=source.contact)

    @pytest.fixture(autouse=True)
    def public(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Both servers count as public hosts: a redirect to a private one is refused, see test_fetch."""
        monkeypatch.setattr(native, "guard", lambda mode, redirected: lambda address: False)

    @pytest.mark.parametrize(("width", "step"), [(20, 20), (961, 1280), (1024, 1280), (1280, 1280), (3840, 3840)])
    def test_a_width_is_rounded_up_to_a_step(self, serve: Serve, tmp_path: Path, width: int, step: int) -> None:
        """Case 27."""
        source = commons(serve([file(1, START), file(2, START + 1, width=step)]), width=width)
        scaled, whole = (row["url"] for row in read(source, tmp_path))
        assert scaled.endswith(f"?width={step}")
        assert source.requested(scaled) == f"requested at a width of {step} pixels"
        assert whole.endswith("a/ab/Bicycle_2.jpg"), "no photo is scaled up"
        assert source.notes() == ([] if width in STEPS else [
            f"Wikimedia serves no width of {width} pixels; collection.width is rounded up to {step}."
        ])  # fmt: skip
        assert source.identity("ingest") == commons(serve([]), width=step, endpoint=source.endpoint).identity("ingest")

    def test_a_width_above_the_largest_step_is_refused(self) -> None:
        """Case 27."""
        with pytest.raises(ValidationError, match="3840"):
            Wikimedia(start=0, end=1, contact="a@b.org", width=3841)

    def test_redirects_to_another_host_are_followed_with_the_contact(self, serve, images, tmp_path):
        """Case 27."""
        server = serve([file(i, START + i) for i in range(6)])
        assert self.fetch(server, images, tmp_path, 1024) == {"": 6}
        assert images.agents == {"driftline (me@example.org; image research; honours X-Robots-Tag and Retry-After)"}

    @pytest.mark.parametrize(("status", "in_page"), [(400, True), (429, False), (429, True)])
    def test_a_refused_width_is_an_outage_and_the_same_command_goes_on(self, serve, images, tmp_path, status, in_page):
        """Case 27: the ladder of the server has changed; twelve photos are not twelve misses."""
        server = serve([file(i, START + i) for i in range(12)])
        images.steps, images.status, images.in_page = (20, 1920), status, in_page
        with pytest.raises(Unfinished, match=rf"refused \({status} [Uu]se thumbnail steps.*an outage") as caught:
            self.fetch(server, images, tmp_path, 1024)
        assert "Set collection.width" in str(caught.value)
        assert len(images.asked) == 4, "one shard, each photo once"
        images.steps = STEPS
        assert self.fetch(server, images, tmp_path, 1024) == {"": 12}

    def test_who_accepts_outages_gets_misses(self, serve: Serve, images: Thumbnails, tmp_path: Path) -> None:
        """Case 27: a single odd photo need not stop a run for ever."""
        images.steps = ()
        server = serve([file(1, START)])
        assert self.fetch(server, images, tmp_path, 1024, outage=1) == {"http_400": 1}
        assert "thumbnail steps" in pq.read_table(tmp_path / "fetched" / "index.parquet")["detail"][0].as_py()


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)


class TestSpeed:
    @pytest.mark.parametrize("latency", [0.05, 0.28])
    def test_a_walk_of_commons_comes_near_200_queries_a_minute_and_asks_none_twice(
        self, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, latency: float
    ) -> None:
        clock, server = Clock(), serve([file(i, START + i * 900) for i in range(300)], page=3)
        monkeypatch.setattr(http, "time", clock)
        answer = server.answer
        monkeypatch.setattr(server, "answer", lambda *query: clock.sleep(latency) or answer(*query))
        read(Wikimedia(start=START, end=START + 300_000, contact="a@b.org", endpoint=server.address), tmp_path)
        assert len(server.queries) == len({json.dumps(query, sort_keys=True) for query in server.queries})
        assert 100 <= (len(server.queries) - 1) / clock.now * 60 <= 200

    @pytest.mark.parametrize("latency", [0.05, 0.9])
    def test_a_walk_of_flickr_comes_near_3600_queries_an_hour_and_asks_none_twice(self, tmp_path, monkeypatch, latency):
        monkeypatch.setenv("FLICKR_API_KEY", "secret-key")
        clock, server = Clock(), FlickrServer([photo(i, START + i) for i in range(4500)])
        monkeypatch.setattr(http, "time", clock)
        written = server.written
        monkeypatch.setattr(server, "written", lambda query: clock.sleep(latency) or written(query))
        try:
            read(Flickr(start=START, end=START + 4500, endpoint=server.address), tmp_path)
        finally:
            server.close()
        assert len(server.queries) == len({json.dumps(query, sort_keys=True) for query in server.queries})
        assert 1800 <= len(server.queries) / clock.now * 3600 <= 3600
