"""Fetch: every row ends as exactly one image or exactly one named miss, whatever the server does."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from curate.fetch import FetchRules, fetch, miss
from curate.ground.errors import Tampered
from curate.ground.progress import Journal
from curate.images import ImageRules, look
from curate.shards import load_index, read_images, read_tar, write_tar

QUIET = Journal(quiet=True)


def picture(size: tuple[int, int] = (20, 16), kind: str = "JPEG", mode: str = "RGB", seed: int = 0) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    Image.fromarray(pixels).convert(mode).save(buffer, kind)
    return buffer.getvalue()


class Server:
    """A loopback server whose URLs misbehave by name: /KIND/N."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, number = self.path.strip("/").split("/")
                outer.asked[self.path] += 1
                body = picture(seed=int(number))
                if kind == "404":
                    self.reply(404, b"gone")
                elif kind == "busy" and outer.asked[self.path] == 1:
                    self.reply(503, b"later")
                elif kind == "html":
                    self.reply(200, b"<html>photo unavailable</html>", "text/html")
                elif kind == "empty":
                    self.reply(200, b"")
                elif kind == "cut":
                    self.reply(200, body[: len(body) // 2], length=len(body))
                elif kind == "halffile":
                    self.reply(200, body[: len(body) // 2])
                elif kind == "noai":
                    self.reply(200, body, headers={"X-Robots-Tag": "noai"})
                elif kind == "loop":
                    self.reply(302, b"", headers={"Location": self.path})
                elif kind == "png":
                    self.reply(200, picture(kind="PNG", seed=int(number)), "image/png")
                elif kind == "text":
                    self.reply(200, body, "text/plain")
                else:
                    self.reply(200, body)

            def reply(
                self,
                code: int,
                body: bytes,
                kind: str = "image/jpeg",
                length: int | None = None,
                headers: dict[str, str] | None = None,
            ) -> None:
                said = {"Content-Type": kind, "Content-Length": str(length or len(body)), **(headers or {})}
                self.send_response(code)
                for name, value in said.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.http.shutdown()
    one.http.server_close()


def rows(urls: list[str | None], paths: list[str | None] | None = None) -> pa.Table:
    n = len(urls)
    return pa.table(
        {
            "id": [f"p{i}" for i in range(n)],
            "row": pa.array(range(n), pa.int64()),
            "url": pa.array(urls, pa.string()),
            "path": pa.array(paths or [None] * n, pa.string()),
            "uploaded": pa.array(range(n), pa.int64()),
        }
    )


EXPECTED = {
    "good": None,
    "busy": None,
    "png": None,
    "text": None,
    "404": "http_404",
    "html": "not_an_image",
    "empty": "empty_body",
    "cut": "truncated_body",
    "halffile": "broken_image",
    "noai": "opted_out",
    "loop": "redirect_loop",
}


@pytest.fixture(scope="module")
def fetched(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table, Counter[str]]:
    """Two of every kind, in two shards, one local file and one missing, fetched once for several tests."""
    out = tmp_path_factory.mktemp("fetch")
    local = out / "local.png"
    local.write_bytes(picture(kind="PNG"))
    urls: list[str | None] = [f"{server.base}/{kind}/{i}" for i in range(2) for kind in EXPECTED] + [None, None]
    paths: list[str | None] = [None] * (len(urls) - 2) + [str(local), str(out / "nowhere.png")]
    table = rows(urls, paths)
    counts = fetch(table, out / "a", FetchRules(shard_size=15, retries=1, backoff=0, timeout=5), QUIET)
    return out, table, counts


def test_every_row_is_one_image_or_one_named_miss(fetched: tuple[Path, pa.Table, Counter[str]]) -> None:
    out, table, counts = fetched
    wanted = Counter(fault or "" for fault in EXPECTED.values() for _ in range(2))
    wanted[""] += 1
    wanted["file_unreadable"] += 1
    assert counts == wanted
    index = load_index(out / "a")
    assert index["id"].to_pylist() == table["id"].to_pylist()
    kinds = [k for _ in range(2) for k in EXPECTED]
    for kind, fault in zip(kinds, index["fault"].to_pylist(), strict=False):
        assert fault == EXPECTED[kind], kind


def test_original_bytes_and_formats_are_kept(fetched: tuple[Path, pa.Table, Counter[str]]) -> None:
    out, _, _ = fetched
    index = load_index(out / "a")
    members = dict(zip(index["id"].to_pylist(), index["member"].to_pylist(), strict=True))
    position = list(EXPECTED).index("png")
    assert members[f"p{position}"] == f"p{position}.png", "a PNG behind a .jpg-like address stays a PNG"
    found = {i: d for s in range(2) for i, d in read_images(out / "a", index, s)}
    assert found["p0"] == picture(seed=0)
    assert found[f"p{position}"] == picture(kind="PNG", seed=0)


def test_a_kill_between_shards_repeats_no_finished_shard_and_ends_in_the_same_bytes(
    fetched: tuple[Path, pa.Table, Counter[str]], server: Server, tmp_path: Path
) -> None:
    out, table, counts = fetched
    import shutil

    for name in ("00000.tar", "00000.parquet"):  # a run that was killed after its first shard
        shutil.copy(out / "a" / name, tmp_path / name)
    server.asked.clear()
    again = fetch(table, tmp_path, FetchRules(shard_size=15, retries=1, backoff=0, timeout=5), QUIET, workers=2)
    assert again == counts
    first_shard = {url.removeprefix(server.base) for url in table["url"].to_pylist()[:15]}
    assert not first_shard & set(server.asked)
    for path in (out / "a").iterdir():
        assert (
            hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256((tmp_path / path.name).read_bytes()).digest()
        )


def test_first_n_is_the_smallest_prefix_in_row_order(server: Server, tmp_path: Path) -> None:
    urls: list[str | None] = [f"{server.base}/{'good' if i % 3 else '404'}/{i}" for i in range(24)]
    for name, workers in (("one", 1), ("two", 2)):
        counts = fetch(
            rows(urls), tmp_path / name, FetchRules(shard_size=4, stop_after=5, retries=0, backoff=0), QUIET, workers
        )
        assert counts[""] == 5
        faults = load_index(tmp_path / name)["fault"].to_pylist()
        assert faults[:8] == ["http_404", None, None, "http_404", None, None, "http_404", None]
        assert faults[8:] == ["surplus"] * 16
    a, b = (sorted((p.name, p.read_bytes()) for p in (tmp_path / n).iterdir()) for n in ("one", "two"))
    assert a == b


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (picture(), None),
        (picture(mode="CMYK"), None),
        (picture(kind="GIF", mode="P"), None),
        (b"", "empty_body"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not_an_image"),
        (picture()[:200], "broken_image"),
        (picture(size=(3, 90)), "too_small"),
        (picture(size=(90, 10)), "too_long"),
        (picture(size=(120, 120)), "too_many_pixels"),
    ],
)
def test_a_look_at_the_bytes(data: bytes, fault: str | None) -> None:
    assert look(data, ImageRules(min_edge=5, max_aspect=3, max_pixels=12_000)).fault == fault


def test_a_decompression_bomb_is_refused_by_its_header() -> None:
    buffer = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(buffer, "PNG")
    assert look(buffer.getvalue(), ImageRules()).fault == "too_many_pixels"


def test_a_changed_image_is_named(tmp_path: Path) -> None:
    write_tar(tmp_path / "00000.tar", [("a.jpg", b"changed")])
    index = pa.table({"id": ["a"], "shard": [0], "member": ["a.jpg"], "sha256": [hashlib.sha256(b"was").hexdigest()]})
    with pytest.raises(Tampered, match=r"a\.jpg"):
        list(read_images(tmp_path, index, 0))


def test_a_tar_with_a_path_outside_its_folder_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [("../evil.jpg", b"x")])
    with pytest.raises(Tampered, match=r"evil\.jpg"):
        list(read_tar(tmp_path / "x.tar"))


def test_messages_become_reasons() -> None:
    assert miss("HTTP Error 429: Too Many Requests") == "http_429"
    assert miss("<urlopen error [Errno 111] Connection refused>") == "connection_failed"
    assert miss("IncompleteRead(10 bytes read, 5 more expected)") == "truncated_body"


def test_shards_are_readable_by_parquet_tools(fetched: tuple[Path, pa.Table, Counter[str]]) -> None:
    out, _, _ = fetched
    assert pq.read_metadata(out / "a" / "00000.parquet").num_rows == 15
