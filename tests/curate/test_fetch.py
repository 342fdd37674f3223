"""Fetch: every row ends as exactly one image or exactly one named miss, whatever the server does."""

import asyncio
import contextlib
import hashlib
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.console import inside
from support.faults import EXPECTED, FaultServer, bomb, picture

from driftline.curate.core.errors import DriftlineError, IntegrityError
from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.curate.fetch import img2dataset, native
from driftline.curate.fetch.job import COLUMNS
from driftline.curate.fetch.outcome import Download
from driftline.curate.fetch.run import FetchSettings, fetch
from driftline.curate.fetch.settings import yfcc_hash
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.images.local_files import cell_path
from driftline.curate.images.shards import read_images, read_tar, write_tar
from driftline.curate.store.database import Place

QUIET = RunLog(quiet=True)
RULES = FetchSettings(  # outage: these tests ask for single addresses; timeout: on a busy machine, too
    shard_size=15, retries=1, outage=1, backoff=0, timeout=60, deadline=100, private_addresses="allow",
    threads=40, per_host=40, max_bytes=1_000_000,
)  # fmt: skip


def load_index(folder: Path) -> pa.Table:
    """The index of all shards."""
    return pq.read_table(folder / "index.parquet")


def part(folder: Path, urls: list[str | None], paths: list[str | None] | None = None) -> list[Path]:
    """One part of a table with these addresses."""
    n = len(urls)
    table = pa.table(
        {
            "id": [f"p{i}" for i in range(n)],
            "row": pa.array(range(n), pa.int64()),
            "url": pa.array(urls, pa.string()),
            "path": pa.array(paths or [None] * n, pa.string()),
            "uploaded": pa.array(range(n), pa.int64()),
            "until": pa.nulls(n, pa.int64()),
        }
    )
    assert table.column_names == COLUMNS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{len(list(folder.glob('part-*'))):05d}.parquet"
    pq.write_table(table, path)
    return [path]


def same_files(a: Path, b: Path) -> bool:
    """Two folders hold the same files, byte by byte."""
    found = [{p.name: hashlib.sha256(p.read_bytes()).digest() for p in folder.iterdir()} for folder in (a, b)]
    return found[0] == found[1]


SLOW = ("drip", "silent")
KINDS = [kind for kind in EXPECTED if kind not in ("inside", *SLOW)]  # inside: only unreachable where allowed
Fetched = tuple[Path, list[Path], Counter[str]]


@pytest.fixture(scope="module")
def fetched(server: FaultServer, tmp_path_factory: pytest.TempPathFactory) -> Fetched:
    """Two of every kind, in several shards, one local file and one missing, fetched once for several tests."""
    out = tmp_path_factory.mktemp("fetch")
    local = out / "local.png"
    local.write_bytes(picture(kind="PNG"))
    urls: list[str | None] = [f"{server.base}/{kind}/{i}" for i in range(2) for kind in KINDS] + [None, None]
    paths: list[str | None] = [None] * (len(urls) - 2) + [str(local), str(out / "nowhere.png")]
    parts = part(out / "table", urls, paths)
    return out, parts, fetch(parts, out / "a", RULES, QUIET)


def test_every_row_is_one_image_or_one_named_miss(fetched: Fetched) -> None:
    out, _, counts = fetched
    index = load_index(out / "a")
    assert index["id"].to_pylist() == [f"p{i}" for i in range(2 * len(KINDS) + 2)]
    ended = dict(zip(2 * KINDS, index["fault"].to_pylist(), strict=False))
    assert ended == {kind: EXPECTED[kind] for kind in KINDS}
    wanted = Counter(EXPECTED[kind] or "" for kind in KINDS for _ in range(2))
    assert counts == wanted + Counter({"": 1, "file_unreadable": 1})


def test_an_answer_that_takes_too_long_is_a_timeout(server: FaultServer, tmp_path: Path) -> None:
    urls: list[str | None] = [f"{server.base}/{kind}/1" for kind in SLOW]
    rules = RULES.model_copy(update={"timeout": 1.0, "deadline": 1.5, "retries": 0})
    assert fetch(part(tmp_path / "t", urls), tmp_path / "a", rules, QUIET) == {"timeout": len(SLOW)}


def test_original_bytes_and_formats_are_kept(fetched: Fetched) -> None:
    out, _, _ = fetched
    index = load_index(out / "a")
    members = dict(zip(index["id"].to_pylist(), index["member"].to_pylist(), strict=True))
    position = KINDS.index("png")
    assert members[f"p{position}"] == f"p{position}.png", "a PNG behind a .jpg-like address stays a PNG"
    shards = {s: dict(read_images(out / "a", index, s)) for s in set(index["shard"].to_pylist())}
    found = {i: d for images in shards.values() for i, d in images.items()}
    assert found["p0"] == picture(seed=0)
    assert found[f"p{position}"] == picture(kind="PNG", seed=0)
    assert found[f"p{KINDS.index('cmyk')}"] == picture(mode="CMYK", seed=0)


def test_a_kill_between_shards_repeats_no_finished_shard_and_ends_in_the_same_bytes(fetched, server, tmp_path):
    out, parts, counts = fetched
    for name in ("00000.tar", "00000.parquet", "00003.tar", "00003.parquet"):  # killed when these were done
        shutil.copy(out / "a" / name, tmp_path / name)
    server.asked.clear()
    again = fetch(parts, tmp_path, RULES, QUIET, Executor(workers=2))
    assert again == counts
    urls = pq.read_table(parts[0])["url"].to_pylist()
    done = {url.removeprefix(server.base) for url in [*urls[:15], *urls[45:60]]}
    assert not done & set(server.asked)
    assert same_files(out / "a", tmp_path)


def test_private_addresses_are_refused_also_behind_names_and_redirects(server: FaultServer, tmp_path: Path) -> None:
    port = server.port
    urls: list[str | None] = [f"{server.base}/good/1", f"http://localhost:{port}/good/1", f"http://[::1]:{port}/a"]
    urls += ["http://169.254.169.254/latest/meta-data", f"http://127.1:{port}/good/1", "http://[::ffff:127.0.0.1]/a"]
    server.asked.clear()
    rules = RULES.model_copy(update={"private_addresses": "refuse"})
    assert fetch(part(tmp_path / "t", urls), tmp_path / "a", rules, QUIET) == {"private_address": len(urls)}
    assert not server.asked


SPELLINGS = (
    "127。0。0。1", "①②⑦.⓪.⓪.①", "𝟏𝟐𝟕.𝟎.𝟎.𝟏", "127．0．0．1", "0x7f.1", "0177.0.0.1", "2130706433", "ⓛocalhost",
    "%31%32%37.0.0.1", "１２７.１",
)  # fmt: skip


def test_no_spelling_of_a_private_address_is_requested(server: FaultServer, tmp_path: Path) -> None:
    urls: list[str | None] = [f"http://{host}:{server.port}/good/1" for host in SPELLINGS]
    server.asked.clear()
    rules = RULES.model_copy(update={"private_addresses": "refuse"})
    counts = fetch(part(tmp_path / "t", urls), tmp_path / "a", rules, QUIET)
    assert counts.total() == len(urls)
    assert counts[""] == 0
    assert not server.asked


def test_a_collection_on_the_own_network_opens_neither_metadata_nor_redirects(server, tmp_path, capsys):
    other = FaultServer()
    try:
        other_good = f"http://127.0.0.1:{other.port}/good/1"
        server.targets["away"] = other_good
        server.targets["away-by-idn"] = other_good.replace("127.0.0.1", "①②⑦.⓪.⓪.①")
        urls: list[str | None] = [f"{server.base}/{kind}/1" for kind in ("good", "moved", "away", "away-by-idn")]
        urls += ["http://169.254.169.254/latest/meta-data"]
        rules = RULES.model_copy(update={"private_addresses": "auto"})
        counts = fetch(part(tmp_path / "t", urls), tmp_path / "a", rules, RunLog())
        assert counts == {"": 2, "private_address": 3}
        assert not other.asked
        assert "in a private network: such URLs are allowed" in capsys.readouterr().err
    finally:
        other.close()


def test_a_host_that_lets_us_wait_holds_up_no_other(server: FaultServer, tmp_path: Path) -> None:
    urls: list[str | None] = [f"{server.base}/later/{i}" for i in range(30)]
    urls += [f"http://localhost:{server.port}/good/{i}" for i in range(30)]
    arrived: list[int] = []
    rules = RULES.model_copy(update={"threads": 4, "per_host": 4, "timeout": 20.0, "deadline": 4.0})

    def keep(row: int, outcome: Download) -> None:
        arrived.append(row)
        assert (outcome.fault is None) == (row >= 30)

    asyncio.run(native.download([(i, str(url)) for i, url in enumerate(urls)], rules, keep))
    assert sorted(arrived) == list(range(60))
    assert all(row >= 30 for row in arrived[4:34]), "four are asked at once, then their host is left alone"
    asked = sum(server.asked[f"/later/{i}"] for i in range(30))
    assert asked < 12, "it is not asked 30 times to be told to wait for three seconds"


def test_only_http_is_spoken(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture(kind="PNG"))
    urls: list[str | None] = [f"file://{secret}", "ftp://127.0.0.1/a.jpg", "data:image/png;base64,AAAA", "http://"]
    assert fetch(part(tmp_path / "t", urls), tmp_path / "a", RULES, QUIET) == {"malformed_url": 4}


ODD = {  # after the server's address → what the server is asked for
    "/good/a b": "/good/a%20b",
    "/good/테?q=ä": "/good/%ED%85%8C?q=%C3%A4",
    "/good/a%2Fb%7e%2f": "/good/a%2Fb%7e%2f",
    "/good/1#x y": "/good/1",
    "/space/1": "/good/c%20d",
    "/script/1": "/good/%ED%85%8C",
}


def test_case_26_blanks_and_other_scripts_are_fetched_and_escapes_stay(server: FaultServer, tmp_path: Path) -> None:
    server.targets |= {"space": "/good/c d", "script": f"http://ⓛocalhost:{server.port}/good/테"}
    urls: list[str | None] = [server.base + rest for rest in ODD] + [f"HTTP://ⓛOCALHOST:{server.port}/good/2"]
    server.asked.clear()
    assert fetch(part(tmp_path / "t", urls), tmp_path / "a", RULES, QUIET) == {"": len(urls)}
    assert set(server.asked) == {*ODD.values(), "/good/2", "/space/1", "/script/1"}


def test_case_26_a_password_is_not_used_and_not_in_the_index(server: FaultServer, tmp_path: Path) -> None:
    host = f"127.0.0.1:{server.port}"
    server.targets |= {
        "user": f"http://name:secret@{host}/good/1",
        "user-gone": "//name:secret@h/photo_unavailable.gif",
    }
    urls: list[str | None] = [
        f"http://name:secret@{host}/good/1",
        f"{server.base}/user/1",
        f"{server.base}/user-gone/1",
    ]
    counts = fetch(part(tmp_path / "t", urls), tmp_path / "a", RULES, QUIET)
    assert counts == {"malformed_url": 2, "placeholder": 1}
    assert "secret" not in str(load_index(tmp_path / "a").to_pylist())


def test_case_26_the_store_has_one_key_for_one_address(server: FaultServer, tmp_path: Path) -> None:
    host = f"127.0.0.1:{server.port}/good"
    for i, url in enumerate([f"HTTP://{host}/a b.jpg", f"http://{host}/a%20b.jpg#x", f"http://{host}/A%20b.jpg"]):
        table = part(tmp_path / f"t{i}", [url])
        server.asked.clear()
        assert fetch(table, tmp_path / f"a{i}", RULES, QUIET, store=Place(tmp_path / "store")) == {"": 1}
        assert sum(server.asked.values()) == (i != 1)
        assert pq.read_table(table[0])["url"].to_pylist() == [url], "the record has it as the source gave it"


def test_a_dead_address_is_looked_for_in_the_mirror(server: FaultServer, tmp_path: Path) -> None:
    dead = [f"{server.base}/{kind}/1" for kind in ("404", "html", "noai", "good")]
    mirror = server.base + "/good/{hash}"
    counts = fetch(part(tmp_path / "t", list(dead)), tmp_path / "a", RULES.model_copy(update={"mirror": mirror}), QUIET)
    assert counts == {"": 3, "opted_out": 1}
    index = load_index(tmp_path / "a").to_pylist()
    assert index[0]["detail"] == "from the mirror; http_404 at its own URL"
    assert index[3]["detail"] is None
    assert server.asked[f"/good/{yfcc_hash(dead[0])}"] == 1
    empty = RULES.model_copy(update={"mirror": server.base + "/410/{first}/{second}/{hash}.jpg"})
    assert fetch(part(tmp_path / "u", [dead[0]]), tmp_path / "b", empty, QUIET) == {"http_404": 1}
    assert "mirror: 410" in load_index(tmp_path / "b")["detail"][0].as_py()


def test_img2dataset_gives_original_bytes_or_a_reason(server: FaultServer, tmp_path: Path) -> None:
    rules = RULES.model_copy(update={"downloader": "img2dataset", "private_addresses": "auto", "max_bytes": 100_000})
    ends = {"good": None, "png": None, "404": "http_404", "html": "not_an_image", "noai": "opted_out"}
    urls: list[str | None] = [f"{server.base}/{kind}/500" for kind in ends]
    fetch(part(tmp_path / "t", urls), tmp_path / "a", rules, QUIET)
    index = load_index(tmp_path / "a")
    assert dict(zip(ends, index["fault"].to_pylist(), strict=True)) == ends
    assert dict(read_images(tmp_path / "a", index, 0))["p0"] == picture(seed=0)
    assert any("driftline" in agent for agent in server.agents)
    assert server.asked["/404/500"] == 2, "its own retry"
    faults: dict[int, str | None] = {}
    rows = [(0, f"{server.base}/good/501"), (1, "http://localhost/a.jpg")]
    refuse = rules.model_copy(update={"private_addresses": "refuse"})
    img2dataset.download(rows, refuse, lambda row, outcome: faults.update({row: outcome.fault}))
    assert faults == {0: "private_address", 1: "private_address"}
    assert server.asked["/good/501"] == 0


def test_what_img2dataset_waits_for_in_vain_is_left() -> None:
    faults: dict[int, str | None] = {}
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.jpg"
        rules = FetchSettings(timeout=600, deadline=0.1, retries=0, threads=2)
        rows = [(row, url) for row in range(5)]
        img2dataset.download(rows, rules, lambda row, outcome: faults.update({row: outcome.fault}))
    assert faults == dict.fromkeys(range(5), "no_result")


def test_a_known_placeholder_picture_is_no_image(server: FaultServer, tmp_path: Path) -> None:
    known = (hashlib.sha256(picture(seed=3)).hexdigest(),)
    urls: list[str | None] = [f"{server.base}/good/{i}" for i in (3, 4)]
    counts = fetch(part(tmp_path / "t", urls), tmp_path / "a", RULES.model_copy(update={"placeholders": known}), QUIET)
    assert counts == {"": 1, "placeholder": 1}


def test_a_host_is_asked_no_faster_than_its_rate(server: FaultServer, tmp_path: Path) -> None:
    import time

    urls: list[str | None] = [f"{server.base}/good/{i}" for i in range(11)]
    begun = time.monotonic()
    fetch(part(tmp_path / "t", urls), tmp_path / "a", RULES.model_copy(update={"rate": 20.0}), QUIET)
    assert time.monotonic() - begun >= 10 / 20


@pytest.mark.parametrize("executor", [Executor(), Executor(workers=2)])
def test_first_n_is_the_smallest_prefix_in_row_order(server: FaultServer, tmp_path: Path, executor: Executor) -> None:
    urls: list[str | None] = [f"{server.base}/{'good' if i % 3 else '404'}/{i}" for i in range(24)]
    rules = RULES.model_copy(update={"shard_size": 4, "stop_after": 5, "retries": 0})
    parts = part(tmp_path / "t", urls[:10]) + part(tmp_path / "t", urls[10:])  # a shard crosses the border
    assert fetch(parts, tmp_path / "a", rules, QUIET, executor) == {"": 5, "http_404": 3, "surplus": 16}
    faults = load_index(tmp_path / "a")["fault"].to_pylist()
    assert faults[:8] == ["http_404", None, None, "http_404", None, None, "http_404", None]
    assert faults[8:] == ["surplus"] * 16
    assert sorted(p.name for p in (tmp_path / "a").glob("*.tar")) == ["00000.tar", "00001.tar"]


def test_a_pipe_and_a_file_without_end_are_no_photos(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with (tmp_path / "huge.jpg").open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    paths: list[str | None] = [str(tmp_path / name) for name in ("pipe.jpg", "huge.jpg")]
    counts = fetch(part(tmp_path / "t", [None] * 2, paths), tmp_path / "a", RULES, QUIET)
    assert counts == {"file_unreadable": 1, "too_many_bytes": 1}


def test_images_inside_parquet_files(tmp_path: Path) -> None:
    file = tmp_path / "images.parquet"
    cells = [{"bytes": picture(seed=i), "path": None} for i in range(5)] + [None]
    pq.write_table(pa.table({"image": cells}), file, row_group_size=2)
    paths: list[str | None] = [cell_path(file, "image", i) for i in (0, 4, 5, 9)] + [cell_path(file, "nope", 0)]
    counts = fetch(part(tmp_path / "t", [None] * 5, paths), tmp_path / "a", RULES, QUIET)
    assert counts == {"": 2, "no_image": 1, "file_unreadable": 2}
    index = load_index(tmp_path / "a")
    assert dict(read_images(tmp_path / "a", index, 0)) == {"p0": picture(seed=0), "p1": picture(seed=4)}


def test_a_full_disk_is_one_clear_error_and_what_is_done_stays(server, tmp_path, monkeypatch):
    urls: list[str | None] = [f"{server.base}/good/{i}" for i in range(30)]
    parts = part(tmp_path / "t", urls)
    from driftline.curate.fetch import shard

    writes = iter([write_tar])

    def full(path: Path, members: Iterator[tuple[str, bytes]]) -> str:
        if (write := next(writes, None)) is None:
            raise OSError(28, "No space left on device")
        return write(path, members)

    monkeypatch.setattr(shard, "write_tar", full)
    with pytest.raises(DriftlineError, match=r"disk is full: .*00001\.tar cannot be written.*work is kept"):
        fetch(parts, tmp_path / "a", RULES, QUIET)
    assert (tmp_path / "a" / "00000.parquet").exists()
    assert not list((tmp_path / "a").glob("*00001*"))
    monkeypatch.undo()
    assert fetch(parts, tmp_path / "a", RULES, QUIET) == {"": 30}


def test_photos_wait_in_memory_and_on_disk_only_if_they_are_too_many(server, tmp_path, monkeypatch):
    parts, made = part(tmp_path / "t", [f"{server.base}/good/{i}" for i in range(4)]), tempfile.TemporaryFile
    on_disk: list[object] = []
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **how: on_disk.append(how["dir"]) or made(**how))
    fetch(parts, tmp_path / "a", RULES, QUIET)
    assert not on_disk, "each photo is written once, into its shard"
    monkeypatch.setattr("driftline.curate.fetch.shard.IN_MEMORY", len(picture()) * 2)
    fetch(parts, tmp_path / "b", RULES, QUIET)
    assert on_disk == [str(tmp_path / "b")]
    assert same_files(tmp_path / "a", tmp_path / "b")


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
    assert check_image(data, ImageLimits(min_edge=5, max_aspect=3, max_pixels=12_000)).reason == fault


def test_a_decompression_bomb_is_refused_by_its_header() -> None:
    assert check_image(bomb(30_000, 30_000), ImageLimits()).reason == "too_many_pixels"


def test_a_changed_image_is_named(tmp_path: Path) -> None:
    write_tar(tmp_path / "00000.tar", [("a.jpg", b"changed")])
    index = pa.table({"id": ["a"], "shard": [0], "member": ["a.jpg"], "sha256": [hashlib.sha256(b"was").hexdigest()]})
    with pytest.raises(IntegrityError, match=r"a\.jpg"):
        list(read_images(tmp_path, index, 0))


def test_a_tar_with_a_path_outside_its_folder_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [("../evil.jpg", b"x")])
    with pytest.raises(IntegrityError, match=r"evil\.jpg"):
        list(read_tar(tmp_path / "x.tar"))


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("HTTP Error 429: Too Many Requests", "http_429"),
        ("HTTP Error 502: Bad Gateway", "http_5xx"),
        ("<urlopen error [Errno 111] Connection refused>", "connection_failed"),
        ("IncompleteRead(10 bytes read, 5 more expected)", "truncated_body"),
        ("something new", "download_failed"),
    ],
)
def test_messages_of_img2dataset_become_reasons(message: str, fault: str) -> None:
    assert img2dataset.failure(message) == Download(None, fault, message)


def test_fetch_notes_an_image_that_many_urls_of_many_users_share_and_status_names_it(tmp_path: Path) -> None:
    """Twelve URLs of one user are their album; ten of five users are what a host sends for a photo that is gone."""
    with contextlib.closing(FaultServer()) as images:
        users = {6: [f"u{i % 5}" for i in range(10)], 7: ["album"] * 12, 8: [f"v{i}" for i in range(9)]}
        lines = [f"/good/{'0' * i}{image},2019-05-05,{by}\n" for image in users for i, by in enumerate(users[image])]
        rows = "".join(images.base + line for line in lines)
        (tmp_path / "t.csv").write_text(f"link,year,by\n{rows}")
        (tmp_path / "driftline.yaml").write_text(
            "collection: {source: delimited, path: t.csv, columns: {url: link, uploaded: year, user: by}}\n"
            "embed: {model: driftline-photo-world}\nretrieve: {concepts: [car]}\n"
            "fetch: {private_addresses: allow}\nfilter: {upload_after_capture: false}\n"
        )
        assert (run := inside("run", tmp_path, "--until", "fetch")).returncode == 0, run.stderr
    said = inside("status", tmp_path).stdout
    assert (said.count("have one image"), "fetch: 10 URLs of 5 users have one image, which" in said) == (1, True)
