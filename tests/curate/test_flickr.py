"""Flickr's API: every photo of a span, though no query shows more than 4,000 and no total can be trusted."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import flickr_server
from support.faults import FaultServer, picture
from support.flickr_server import FlickrServer, failed, photo

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError
from driftline.curate.core.run_log import RunLog
from driftline.curate.foreign import http
from driftline.curate.sources import flickr
from driftline.curate.sources.base import Workplace
from driftline.curate.sources.flickr import Flickr
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.state import folder_of

START = 1_300_000_000
Serve = Callable[..., FlickrServer]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setenv("FLICKR_API_KEY", "secret-key")
    servers: list[FlickrServer] = []

    def start(*args: Any, **kwargs: Any) -> FlickrServer:
        servers.append(FlickrServer(*args, **kwargs))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def source(server: FlickrServer, end: int = START + 1000, **more: Any) -> Flickr:
    return Flickr(start=START, end=end, endpoint=server.address, rate=36_000_000, **more)


def read(server: FlickrServer, work: Path, **more: Any) -> pa.Table:
    return pa.Table.from_batches(source(server, **more).batches(at=Workplace(work=work)))


def ledger(made: Flickr, work: Path) -> list[dict[str, Any]]:
    folder = made.ledger(Workplace(work=work))
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("*-*.json"))]
    return [entry for entry in documents if not entry["halved"]]


def test_a_photo_becomes_a_record(serve: Serve, tmp_path: Path) -> None:
    (row,) = read(serve([photo(1, START + 5)]), tmp_path).to_pylist()
    assert row["id"] == "5000000001"
    assert row["uploaded"] == START + 5
    assert row["taken"] == 1_298_973_600
    assert (row["licence"], row["licence_url"]) == (
        "Attribution License",
        "https://creativecommons.org/licenses/by/2.0/",
    )
    assert row["url"] == "https://live.staticflickr.com/1_m.jpg", "the largest size that there is"
    assert row["page_url"] == "https://www.flickr.com/photos/39089491@N00/5000000001/"
    assert row["tags"] == "red,bicycle%2Cshop"
    assert (row["longitude"], row["latitude"], row["description"]) == (8.25, 50.5, "a\nb")


def test_no_photo_of_a_busy_span_is_lost(serve: Serve, tmp_path: Path) -> None:
    server = serve([photo(i, START + i * 999 // 9000) for i in range(9000)])
    made = source(server)
    table = pa.Table.from_batches(made.batches(at=Workplace(work=tmp_path)))
    assert len(table) == len(set(table["id"].to_pylist())) == 9000
    assert table["uploaded"].to_pylist() == sorted(table["uploaded"].to_pylist())
    assert all(entry["unique"] <= flickr.HALVED_ABOVE for entry in ledger(made, tmp_path))
    assert sum(entry["total"] for entry in ledger(made, tmp_path)) == 9000


@pytest.mark.parametrize("lie", [lambda n: n // 2, lambda n: 0, lambda n: n + 3], ids=["half", "nothing", "more"])
def test_a_total_that_lies_costs_no_photo(serve: Serve, tmp_path: Path, lie: Callable[[int], int]) -> None:
    server = serve([photo(i, START + i % 1000) for i in range(8000)], lie=lie)
    assert len(set(read(server, tmp_path)["id"].to_pylist())) == 8000


def test_large_windows_that_return_a_part_only_are_halved(serve: Serve, tmp_path: Path) -> None:
    server = serve([photo(i, START + i) for i in range(1000)], lossy=100)
    made = source(server)
    assert len(set(pa.Table.from_batches(made.batches(at=Workplace(work=tmp_path)))["id"].to_pylist())) == 1000
    assert all(entry["total"] == entry["unique"] for entry in ledger(made, tmp_path))


def test_one_second_with_too_many_photos_is_divided_by_licence(serve: Serve, tmp_path: Path) -> None:
    server = serve([photo(i, START, licence=(1, 2, 4)[i % 3]) for i in range(7500)])
    assert len(set(read(server, tmp_path, end=START + 2)["id"].to_pylist())) == 7500


def test_what_even_that_cannot_show_is_on_record(serve: Serve, tmp_path: Path) -> None:
    server = serve([photo(i, START) for i in range(5000)])
    made = source(server, end=START + 1, licences=(4,))
    assert len(pa.Table.from_batches(made.batches(at=Workplace(work=tmp_path)))) == 4000
    (entry,) = ledger(made, tmp_path)
    assert (entry["total"], entry["unique"]) == (5000, 4000)


def test_a_page_that_is_missing_costs_no_photo(serve: Serve, tmp_path: Path) -> None:
    empty = {"photos": {"page": 2, "pages": 3, "perpage": 500, "total": 1200, "photo": []}, "stat": "ok"}
    server = serve([photo(i, START + i % 1000) for i in range(1200)], fail={2: (200, json.dumps(empty).encode())})
    assert len(set(read(server, tmp_path)["id"].to_pylist())) == 1200


def test_totals_that_change_under_way_cost_no_photo(serve: Serve, tmp_path: Path) -> None:
    changing = itertools.cycle((-900, 0, 700, -1))
    server = serve([photo(i, START + i % 1000) for i in range(3200)], lie=lambda n: max(0, n + next(changing)))
    assert len(set(read(server, tmp_path)["id"].to_pylist())) == 3200


def test_pages_that_come_twice_give_each_photo_once(serve: Serve, tmp_path: Path) -> None:
    server = serve([photo(i % 600, START + i % 600) for i in range(1200)])
    table = read(server, tmp_path)
    assert len(table) == 600


def test_a_run_that_was_stopped_asks_for_no_finished_window_again(serve, tmp_path, monkeypatch):
    photos = [photo(i, START + i % 1000) for i in range(7000)]
    broken = dict.fromkeys(range(9, 40), (503, b""))
    server = serve(photos, fail=broken)
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    with pytest.raises(DriftlineError, match=r"6 times in a row \(status 503\)"):
        read(server, tmp_path)
    asked = {(q["min_upload_date"], q["max_upload_date"], q["page"]) for q in server.queries[:6]}
    before = len(server.queries)
    whole = serve(photos)
    made = source(server)
    server.photos = photos
    for n in list(broken):
        del broken[n]
    table = pa.Table.from_batches(made.batches(at=Workplace(work=tmp_path)))
    again = {(q["min_upload_date"], q["max_upload_date"], q["page"]) for q in server.queries[before:]}
    assert not asked & again
    assert table.equals(read(whole, tmp_path / "other"))


def test_a_later_end_asks_for_the_new_span_only(serve: Serve, tmp_path: Path) -> None:
    server = serve([photo(i, START + i % 1000) for i in range(3200)])
    for end, asked_from in ((400, 0), (400, None), (700, 400), (1000, 700)):
        before = len(server.queries)
        table = read(server, tmp_path, end=START + end)
        asked = [int(query["min_upload_date"]) - START for query in server.queries[before:]]
        assert min(asked, default=None) == asked_from
    assert table.equals(read(server, tmp_path / "at once"))


def test_a_busy_server_is_asked_again(serve: Serve, tmp_path: Path) -> None:
    fail = {1: (429, b""), 2: (200, b"<html>"), 3: (200, b'{"stat": "fail", "code": 105, "message": "unavailable"}')}
    assert len(read(serve([photo(1, START)], fail=fail), tmp_path)) == 1


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "FLICKR_API_KEY is not set"),
        ("stolen-key", r"rejects the key: Invalid API Key \(Key has invalid format\) …"),
    ],
)
def test_the_key_comes_from_the_environment_and_is_in_no_message(serve, tmp_path, monkeypatch, key, message):
    monkeypatch.setenv("FLICKR_API_KEY", key)
    with pytest.raises(BadConfig, match=message):
        read(serve([photo(1, START)]), tmp_path)


@pytest.mark.parametrize(
    ("code", "words"),
    [(100, "Invalid API Key (Key has expired)"), (100, "Invalid API Key (Key has invalid format)"), (116, "Bad URL")],
)
def test_case_28_a_key_that_has_expired_is_one_sentence(serve: Serve, tmp_path: Path, code: int, words: str) -> None:
    answer = json.dumps({"stat": "fail", "code": code, "message": words}).encode()
    with pytest.raises(BadConfig) as refusal:
        read(serve([photo(1, START)], fail={1: (200, answer)}), tmp_path)
    assert str(refusal.value) == (
        f"Flickr rejects the key: {words}. Check FLICKR_API_KEY: only Pro accounts have keys."
    )


def test_a_key_that_expires_halfway_keeps_what_was_read(serve: Serve, tmp_path: Path) -> None:
    server = serve([photo(i, START + i % 1000) for i in range(7000)])
    server.fail = {9: (200, json.dumps({"stat": "fail", "code": 100, "message": "Invalid API Key"}).encode())}
    with pytest.raises(BadConfig, match="rejects the key"):
        read(server, tmp_path)
    windows = {path.name for path in tmp_path.rglob("*-*.json")}
    assert windows
    before = len(server.queries)
    assert len(read(server, tmp_path)) == 7000
    asked = {f"{q['min_upload_date']}-{int(q['max_upload_date']) + 1}-" for q in server.queries[before:]}
    assert not {name for name in windows if name.startswith(tuple(asked))}


BAD = {  # answer to a search → what ends the run; "" for one after which it goes on
    "html": ((200, b"<!DOCTYPE html><html>"), r"6 times in a row \(not_json\)"),
    "an error inside": ((200, json.dumps(failed(105, "unavailable")).encode()), r"6 times .*error 105: unavailable"),
    "a refused query": ((200, json.dumps(failed(18, "Illogical arguments")).encode()), "rejects the query: Illogical"),
    "another document": ((200, b'{"stat": "ok", "photos": [1]}'), "6 times in a row"),
    "429": ((429, b""), r"6 times in a row \(status 429\)"),
    "503": ((503, b"later"), r"6 times in a row \(status 503\)"),
    "404": ((404, b""), "6 times in a row"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_that_is_none_ends_in_a_sentence_and_the_same_command_goes_on(serve, tmp_path, monkeypatch, name):
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    answer, sentence = BAD[name]
    server = serve([photo(i, START + i) for i in range(3)])
    server.fail = dict.fromkeys(range(1, 99), answer)
    with pytest.raises(DriftlineError, match=sentence):
        read(server, tmp_path)
    server.fail = {}
    assert len(read(server, tmp_path)) == 3


@pytest.mark.parametrize("text", [None, "", "\x00", "a\u202eb\ud800", "𝕏" * 3000, 7, ["x"], {"_content": None}])
def test_any_text_field_may_hold_anything(serve: Serve, tmp_path: Path, text: Any) -> None:
    fields = ("owner", "ownername", "title", "description", "tags", "latitude", "longitude", "datetaken", "url_m")
    table = read(serve([photo(i, START + i, **{name: text}) for i, name in enumerate(fields)]), tmp_path)
    table.validate(full=True)
    assert len(table) == len(fields)
    assert table["fault"].null_count == len(fields)


class TestLicences:
    def test_flickr_is_asked_once_and_its_names_are_taken(self, serve: Serve, tmp_path: Path) -> None:
        server = serve([photo(i, START + i, licence) for i, licence in enumerate((4, 11, 1))])
        rows = [read(server, tmp_path).to_pylist() for _ in range(2)][1]
        assert [row["licence"] for row in rows] == [
            "Attribution License", "CC BY 4.0", "Attribution-NonCommercial-ShareAlike License",
        ]  # fmt: skip
        assert rows[1]["licence_url"] == "https://creativecommons.org/licenses/by/4.0/"
        assert (server.licence_queries, server.queries[0]["license"]) == (1, "1,2,4,11")

    def test_an_id_that_flickr_does_not_have_is_refused(self, serve: Serve, tmp_path: Path) -> None:
        server = serve([photo(1, START)])
        with pytest.raises(BadConfig, match=r"has no licence 99\. It has 0 \(All Rights Reserved\), 1 .*licences\."):
            read(server, tmp_path, licences=(4, 99))
        assert server.queries == []

    def test_an_id_that_is_new_is_asked_for_again(self, serve, tmp_path, monkeypatch):
        server = serve([photo(1, START, 21)])
        with pytest.raises(BadConfig, match="no licence 21"):
            read(server, tmp_path, licences=(21,))
        new = [*flickr_server.LICENCES, {"id": 21, "name": None, "url": None}, {"id": "x"}, 3]
        monkeypatch.setattr(flickr_server, "LICENCES", new)
        assert read(server, tmp_path, licences=(21,))["licence"].to_pylist() == ["Flickr licence 21"]

    @pytest.mark.parametrize("licence", [0, 99, None])
    def test_a_photo_of_another_one_is_a_reject(self, serve: Serve, tmp_path: Path, licence: Any) -> None:
        rows = read(serve([photo(1, START), photo(2, START, license=licence, elsewhere=True)]), tmp_path).to_pylist()
        assert [row["fault"] for row in rows] == [None, "other_licence"]

    def test_none_at_all_is_named(self, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flickr_server, "LICENCES", flickr_server.LICENCES[:1])
        with pytest.raises(BadConfig, match="Of 1 licences of .*, none is of Creative Commons"):
            read(serve([photo(1, START)]), tmp_path)


def test_case_28_the_largest_size_that_is_served_is_the_next_that_is_listed(serve: Serve, tmp_path: Path) -> None:
    sizes = [{f"url_{letter}": f"https://h/{letter}.jpg" for letter in letters} for letters in ("olczm", "oczm", "ozm")]
    server = serve([photo(i, START + i, url_m=None) | listed for i, listed in enumerate(sizes)])
    others = [json.loads(row["extra"]) for row in read(server, tmp_path, size="original").to_pylist()]
    assert [(other["other_url"], other["other_size"].split()[-2]) for other in others] == [
        ("https://h/l.jpg", "1024"), ("https://h/c.jpg", "800"), ("https://h/z.jpg", "640"),
    ]  # fmt: skip
    assert [row["url"][-5] for row in read(server, tmp_path, size="large").to_pylist()] == ["l", "c", "z"]


def test_the_key_is_in_no_file(serve: Serve, tmp_path: Path) -> None:
    read(serve([photo(1, START)]), tmp_path)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"secret-key" in p.read_bytes()]


def test_photos_that_are_none_keep_their_place(serve: Serve, tmp_path: Path) -> None:
    odd = [photo(1, START), photo(2, START, id="../x"), photo(3, START, dateupload="soon"), photo(4, START, title=7)]
    odd.append(photo(5, START, latitude="0", longitude="0", owner=None, datetakenunknown="1", tags=None))
    table = read(serve(odd), tmp_path)
    assert sorted(f or "" for f in table["fault"].to_pylist()) == ["", "", "", "bad_id", "bad_upload_time"]
    last = next(r for r in table.to_pylist() if r["id"] == "5000000005")
    assert [last[k] for k in ("latitude", "longitude", "user", "page_url", "taken", "tags")] == [None] * 6


def test_a_span_without_photos_is_an_error(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no photos"):
        read(serve([]), tmp_path)


SIZES = {  # what the API lists → reason, record of changes, what the servers of the photos are asked for
    "/403/1 /good/2 /good/3": (None, "requested at no more than 1024 pixels", "/403/1 /good/2"),
    "/410/1 - /good/4": (None, "requested at no more than 500 pixels", "/410/1 /good/4"),
    "/gone/1 /good/5 -": (None, "requested at no more than 1024 pixels", "/gone/1 /good/5"),
    "/good/6 /good/7 /good/8": (None, "requested at no more than 1024 pixels", "/good/6 /good/7"),  # a placeholder
    "/good/9 /good/10 /good/11": (None, "none", "/good/9"),
    "/404/2 /410/3 /good/12": ("http_404", None, "/404/2 /410/3"),
    "/404/4 - -": ("http_404", None, "/404/4"),
    "/500/5 /good/13 -": ("http_5xx", None, "/500/5"),
    "- /404/6 /good/14": ("http_404", None, "/404/6"),
}


@pytest.mark.parametrize("size", ["original", "large"])
def test_case_28_a_smaller_size_is_fetched_where_the_original_is_gone(serve: Serve, tmp_path: Path, size: str) -> None:
    images = FaultServer()
    listed = []
    for i, line in enumerate(SIZES):
        addresses = {f"url_{letter}": path for letter, path in zip("olm", line.split(), strict=True)}
        listed.append(photo(i, START + i, url_m=None) | {k: images.base + v for k, v in addresses.items() if v != "-"})
    root = tmp_path / "run"
    root.mkdir()
    try:
        (root / "driftline.yaml").write_text(
            f"collection: {{source: flickr, start: {START}, end: {START + 1000}, size: {size}, rate: 36000000, "
            f"endpoint: '{serve(listed).address}'}}\nembed: {{model: driftline-photo-world}}\n"
            f"retrieve: {{concepts: [car]}}\nstore: {{path: {tmp_path / 'store'}}}\n"
            "fetch: {private_addresses: allow, retries: 0, outage: 1, "
            f"placeholders: [{hashlib.sha256(picture(seed=6)).hexdigest()}]}}\n"
        )
        config = load(root / "driftline.yaml", ())
        run(Context(root, config, RunLog(root / "log.jsonl", quiet=True), changes=()), until="fetch")
    finally:
        images.close()
    index = pq.read_table(folder_of(root, "fetch") / "index.parquet").to_pylist()
    asked = {path for path in images.asked if "unavailable" not in path}
    if size == "large":
        assert not asked & {line.split()[0] for line in SIZES}
        return
    assert [(row["fault"], row["changes"]) for row in index] == [(fault, said) for fault, said, _ in SIZES.values()]
    assert asked == {path for *_, paths in SIZES.values() for path in paths.split()}
    assert index[0]["detail"] == "from the smaller size; http_403 at its own URL"
    assert index[5]["detail"] == "404 X; smaller size: 410 X"


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)


@pytest.mark.parametrize("latency", [0.05, 0.9])
def test_a_walk_comes_near_3600_queries_an_hour_and_asks_none_twice(tmp_path, monkeypatch, latency):
    monkeypatch.setenv("FLICKR_API_KEY", "secret-key")
    clock, server = Clock(), FlickrServer([photo(i, 1_300_000_000 + i) for i in range(4500)])
    monkeypatch.setattr(http, "time", clock)
    written = server.written
    monkeypatch.setattr(server, "written", lambda query: clock.sleep(latency) or written(query))
    try:
        source = Flickr(start=1_300_000_000, end=1_300_004_500, endpoint=server.address)
        pa.Table.from_batches(source.batches(3, 0, Workplace(work=tmp_path)))
    finally:
        server.close()
    assert len(server.queries) == len({json.dumps(query, sort_keys=True) for query in server.queries})
    assert 1800 <= len(server.queries) / clock.now * 3600 <= 3600
