"""Metadata on S3: a moto server on loopback, behind a proxy that cuts connections."""

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, IntegrityError
from driftline.curate.core.run_log import RunLog
from driftline.curate.foreign import s3
from driftline.curate.foreign.s3 import S3, fetch

QUIET = RunLog(quiet=True)
BODY = random.Random(0).randbytes(3_000_000)


class Cutting:
    """A TCP proxy that lets `least` bytes of an answer through and then cuts, for the first `cuts` connections."""

    def __init__(self, port: int, cuts: int, least: int) -> None:
        self.cuts, self.least, self.target, self.requests = cuts, least, port, 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self.target)) as far:
            threading.Thread(target=self._pump, args=(near, far, None), daemon=True).start()
            self._pump(far, near, self.least)

    def _pump(self, source: socket.socket, sink: socket.socket, least: int | None) -> None:
        passed = 0
        try:
            while data := source.recv(65_536):
                passed += len(data)
                if least is None:
                    self.requests += data.count(b"GET /")
                elif passed > least and self.cuts > 0:
                    self.cuts -= 1
                    sink.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        self._server.close()


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-west-2"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys)
    where = {"LocationConstraint": "us-west-2"}
    client.create_bucket(Bucket="metadata", CreateBucketConfiguration=where, ACL="public-read")
    client.create_bucket(Bucket="private", CreateBucketConfiguration=where)
    for key in ("tools/dataset.sql", "parts/dataset-0.bz2", "parts/deep/dataset-1.bz2"):
        client.put_object(Bucket="metadata", Key=key, Body=BODY, ACL="public-read")
    yield port
    server.stop()


def rules(port: int, **more: object) -> S3:
    return S3(endpoint=f"http://127.0.0.1:{port}", **more)  # type: ignore[arg-type]


def test_one_file_without_keys(moto: int, tmp_path: Path) -> None:
    path = fetch("s3://metadata/tools/dataset.sql", tmp_path, rules(moto), QUIET)
    assert path == tmp_path / "metadata" / "tools" / "dataset.sql"
    assert path.read_bytes() == BODY


def test_all_below_a_prefix(moto: int, tmp_path: Path) -> None:
    folder = fetch("s3://metadata/parts/", tmp_path, rules(moto), QUIET)
    assert folder == tmp_path / "metadata" / "parts"
    found = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.bz2"))
    assert found == ["dataset-0.bz2", "deep/dataset-1.bz2"]


def test_a_lost_connection_continues_at_the_same_byte(moto, tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "RANGE", 1_000_000)
    proxy = Cutting(moto, cuts=4, least=400_000)
    try:
        path = fetch("s3://metadata/tools/dataset.sql", tmp_path, S3(endpoint=proxy.address), QUIET)
        assert path.read_bytes() == BODY
        assert proxy.cuts == 0
    finally:
        proxy.close()


def test_a_killed_run_keeps_its_bytes_and_a_finished_file_is_not_fetched_again(moto, tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "RANGE", 500_000)
    monkeypatch.setattr(s3, "TRIES", 1)
    proxy = Cutting(moto, cuts=10_000, least=2_000)  # enough for the answer to HEAD
    address = S3(endpoint=proxy.address)
    with pytest.raises(DriftlineError, match=r"failed after [\d,]+ of 3,000,000.*downloaded data is kept"):
        fetch("s3://metadata/tools/dataset.sql", tmp_path, address, QUIET)
    proxy.close()
    (part,) = tmp_path.rglob("*.part")
    part.write_bytes(BODY[:1_234_567])  # what a killed run had received
    counting = Cutting(moto, cuts=0, least=0)
    path = fetch("s3://metadata/tools/dataset.sql", tmp_path, S3(endpoint=counting.address), QUIET)
    assert path.read_bytes() == BODY
    assert not list(tmp_path.rglob("*.part"))
    requests = counting.requests
    assert requests == 4, "1,765,433 bytes in ranges of half a million"
    fetch("s3://metadata/tools/dataset.sql", tmp_path, S3(endpoint=counting.address), QUIET)
    assert counting.requests == requests
    counting.close()


def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(DriftlineError, match=r"s3://a/b cannot be reached"):
        fetch("s3://a/b", tmp_path, S3(endpoint="http://127.0.0.1:9"), QUIET)


def test_a_checksum_that_does_not_match_deletes_the_file(moto: int, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"Expected 3,000,000 bytes with MD5 0{32}"):
        fetch("s3://metadata/tools/dataset.sql", tmp_path, rules(moto, md5="0" * 32), QUIET)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://metadata/nowhere.sql", "There is no s3://metadata/nowhere.sql"),
        ("s3://nobody/a", "There is no s3://nobody/a"),
        ("s3://metadata/empty/", "is empty"),
        ("s3://metadata", "Expected s3://bucket/key"),
        ("s3://metadata/../../etc/passwd", "is not a valid path"),
    ],
)
def test_an_unreadable_address_is_named(moto: int, tmp_path: Path, uri: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        fetch(uri, tmp_path, rules(moto), QUIET)


def test_a_profile_must_be_there(moto: int, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="no AWS profile 'nobody'"):
        fetch("s3://metadata/tools/dataset.sql", tmp_path, rules(moto, profile="nobody"), QUIET)


def test_a_profile_signs(moto: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[payer]\naws_access_key_id = AKIA\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    client = s3.client(rules(moto, profile="payer"))
    seen: list[bool] = []

    def look(request: object, **_: object) -> None:
        seen.append(b"AKIA" in request.headers.get("Authorization", b""))  # type: ignore[attr-defined]

    client.meta.events.register("before-send.s3.*", look)
    monkeypatch.setattr(s3, "client", lambda _: client)
    fetch("s3://metadata/tools/dataset.sql", tmp_path, rules(moto, profile="payer"), QUIET)
    assert set(seen) == {True}
