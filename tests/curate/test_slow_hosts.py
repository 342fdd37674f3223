"""A slow host delays nobody else, and changes nothing: the same bytes, and no photo is fetched twice."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.faults import FaultServer

from driftline.curate.core.atomic_io import sha256_file
from driftline.curate.core.run_log import RunLog
from driftline.curate.fetch import native, run
from driftline.curate.fetch.outcome import Download
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.fetch.shard import Spool, _without_outages
from driftline.curate.images.shards import index_path
from driftline.curate.store.database import Place

PATIENCE = 0.3
FIRST_SLOW = 1000  # /good/N of the slow host from this N on
ROWS, SHARD = 24, 4
QUIET = RunLog(quiet=True)
SETTINGS = FetchSettings(
    shard_size=SHARD, retries=1, outage=1, backoff=0, timeout=60, deadline=100, private_addresses="allow", threads=3,
    per_host=3,
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[FaultServer]:
    faulty = FaultServer()
    yield faulty
    faulty.close()


def addresses(server: FaultServer, slow: Callable[[int], bool]) -> list[str]:
    """ROWS addresses, of localhost where a row is slow, of 127.0.0.1 elsewhere."""
    quick, late = f"http://127.0.0.1:{server.port}/good/", f"http://localhost:{server.port}/good/"
    return [f"{late}{FIRST_SLOW + i}" if slow(i) else f"{quick}{i}" for i in range(ROWS)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def part(folder: Path, urls: list[str]) -> list[Path]:
    """One part of a table with these addresses."""
    n = len(urls)
    columns = {"id": [f"p{i}" for i in range(n)], "row": range(n), "url": urls, "uploaded": range(n)}
    table = pa.table(columns | {"path": pa.nulls(n, pa.string()), "until": pa.nulls(n, pa.int64())})
    pq.write_table(table, folder / "part.parquet")
    return [folder / "part.parquet"]


def twin(server: FaultServer, parts: list[Path], out: Path) -> Path:
    """The same addresses where nobody is slow."""
    server.answered = math.inf
    assert run.fetch(parts, out, SETTINGS, QUIET) == {"": ROWS}
    return out


@pytest.mark.parametrize("where", ["first shards", "every shard"])
def test_other_photos_are_fetched_while_a_host_sleeps_and_the_bytes_are_those_without_sleep(
    where: str, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PATIENCE", PATIENCE)
    urls = addresses(server, (lambda i: i < 8) if where == "first shards" else lambda i: i % SHARD == 1)
    parts = part(tmp_path, urls)
    expected = twin(server, parts, tmp_path / "twin")
    received: Counter[str] = Counter()
    ask = native._ask

    async def counted(session: Any, url: str, *rest: Any) -> Download | str:
        answer = await ask(session, url, *rest)
        received[url] += 1
        return answer

    monkeypatch.setattr(native, "_ask", counted)
    server.answered = FIRST_SLOW
    out, counts = tmp_path / "a", Counter[str]()
    store = Place(tmp_path / "store")
    working = Thread(target=lambda: counts.update(run.fetch(parts, out, SETTINGS, QUIET, store=store)))
    working.start()
    quick = {url for url in urls if "127.0.0.1" in url}
    wait_until(lambda: received.keys() == quick)
    if where == "first shards":
        wait_until(lambda: all(index_path(out, shard).exists() for shard in range(2, ROWS // SHARD)))
    assert working.is_alive()
    server.answered = math.inf
    working.join()
    assert counts == {"": ROWS}
    assert contents(out) == contents(expected)
    assert received == Counter(url for url in urls), "no photo is fetched twice"
    stored = {path.stem for path in (store.folder / "files").glob("*.tar")}
    assert stored == {sha256_file(path) for path in out.glob("*.tar")}, "no photo is stored twice"


def test_a_host_that_asks_to_wait_and_a_slow_mirror_hold_up_no_other_shard(server, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "PATIENCE", PATIENCE)
    urls: list[str] = [f"{server.base}/404/1", f"{server.base}/good/2", f"{server.base}/good/3"]
    update = {"shard_size": 1, "retries": 0, "mirror": f"http://localhost:{server.port}/later/{{hash}}"}
    assert run.fetch(part(tmp_path, urls), tmp_path / "a", SETTINGS.model_copy(update=update), QUIET) == {
        "": 2,
        "http_404": 1,
    }
    finished = [index_path(tmp_path / "a", shard).stat().st_mtime_ns for shard in range(3)]
    assert finished[0] == max(finished)


def test_a_host_is_slow_on_average() -> None:
    def host(seconds: float, answers: int, waited: float = 0.0) -> native._Host:
        return native._Host(seconds=seconds, answers=answers, waited=waited)

    hosts = [host(60, 2), host(20, 100), host(10, 2), host(0, 0), host(1, 10, 6.0)]
    assert [host.is_slow(5.0) for host in hosts] == [True, False, False, False, True]


def test_an_outage_says_nothing_of_a_miss_that_is_asked_again(tmp_path: Path) -> None:
    before = dict(enumerate(["http_404", "http_404", "http_404", "timeout", "timeout", "http_404"]))
    now = dict(enumerate(["timeout", "slow_host", "http_410", "connection_failed", "slow_host"]))  # row 5 has an image
    spool, urls = Spool(tmp_path), dict.fromkeys(before, "u")
    spool.misses = {row: Download(None, fault, "before") for row, fault in before.items()}
    spool.failures = {row: Download(None, fault) for row, fault in now.items()}
    _without_outages(urls, spool)
    assert {row: failure.fault for row, failure in spool.failures.items()} == now | {0: "http_404"}
    assert spool.failures[1].detail == '["http_404", "before"]', "for the last pass"
    assert list(urls) == [2, 3, 4, 5], "nothing new is known of the others"
