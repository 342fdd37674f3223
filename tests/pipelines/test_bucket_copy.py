"""A run's copy in a bucket, on a moto server on loopback: always a state that the folder had, and one writer."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from support.helpers import album, photo_config
from typer.testing import CliRunner

from driftline.curate.core.atomic_io import sha256_bytes
from driftline.curate.core.errors import BadConfig, BadInput, Busy, DriftlineError, IntegrityError, Unfinished
from driftline.pipelines.cli.app import app
from driftline.pipelines.run import bucket_copy
from driftline.pipelines.run.bucket_copy import Copy, following, opened

PLACE = "s3://runs/fruit"


@pytest.fixture(scope="module")
def moto() -> Iterator[Any]:
    import boto3
    from moto import mock_aws

    with mock_aws():
        server = boto3.client("s3", region_name="us-east-1")
        server.create_bucket(Bucket="runs")
        yield server


@pytest.fixture(autouse=True)
def server(moto: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket."""
    monkeypatch.setattr(bucket_copy, "client", lambda *_, **__: moto)
    yield moto
    for entry in moto.list_objects_v2(Bucket="runs").get("Contents", ()):
        moto.delete_object(Bucket="runs", Key=entry["Key"])


def made(folder: Path, **files: str) -> Path:
    for name, text in {"driftline.yaml": "a: 1", "stages/01_ingest/part.bin": "one", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def tree(folder: Path) -> dict[str, str]:
    """Names and texts of what a copy holds."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_a_new_folder_begins_with_what_the_copy_holds(tmp_path: Path) -> None:
    first = made(tmp_path / "first", **{"answers/a.csv": "yes", "log.jsonl": "{}\n"})
    opened(PLACE, first).settled()

    opened(PLACE, tmp_path / "second")

    assert tree(tmp_path / "second") == tree(first)


@pytest.mark.parametrize("entry", [[1e999, "0" * 64], [-1, "0" * 64], [1, "../x"], [1], 7, ["1", "0" * 64]])
def test_a_list_of_somebody_else_is_one_sentence(tmp_path: Path, server: Any, entry: Any) -> None:
    text = json.dumps({"format": 1, "writer": "x", "files": {"a": entry}})
    server.put_object(Bucket="runs", Key="fruit/run.json", Body=text.replace("Infinity", "1e999"))
    with pytest.raises(BadInput, match=r"run\.json is not the list of a run"):
        opened(PLACE, tmp_path / "new")


@pytest.mark.parametrize("name", ["../victim", ".ssh/keys", "/victim", "a/../../victim"])
def test_a_list_names_nothing_outside_the_folder(tmp_path: Path, server: Any, name: str) -> None:
    text = json.dumps({"format": 1, "writer": "x", "files": {name: [4, sha256_bytes(b"evil")]}})
    server.put_object(Bucket="runs", Key="fruit/run.json", Body=text)
    with pytest.raises(IntegrityError, match=r"run\.json names the file"):
        opened(PLACE, tmp_path / "new")


def test_contents_without_a_use_are_deleted_and_a_renamed_file_is_not_sent_again(tmp_path: Path, server: Any) -> None:
    folder = made(tmp_path / "run")
    copy = opened(PLACE, folder)
    copy.settled()
    one = {entry["Key"]: entry["LastModified"] for entry in server.list_objects_v2(Bucket="runs")["Contents"]}

    (folder / "stages" / "01_ingest").rename(folder / "stages" / "01_ingest.next")
    (folder / "driftline.yaml").write_text("a: 2")
    copy.settled()
    two = {entry["Key"]: entry["LastModified"] for entry in server.list_objects_v2(Bucket="runs")["Contents"]}

    part = f"fruit/content/{sha256_bytes(b'one')[:2]}/{sha256_bytes(b'one')}"
    assert one[part] == two[part]
    assert len(one) == len(two) == 3
    assert "stages/01_ingest.next/part.bin" in copy.files


def test_of_files_with_the_same_content_one_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = opened(PLACE, made(tmp_path / "run", **dict.fromkeys("abcdefghijkl", "same")))
    sent: list[str] = []
    monkeypatch.setattr(copy.server, "upload_file", lambda path, bucket, key: sent.append(key))

    copy.settled()

    assert len(sent) == len(set(sent)) == 3
    assert len(copy.files) == 14


def test_the_store_caches_and_unfinished_files_are_left_out(tmp_path: Path) -> None:
    folder = made(
        tmp_path / "run", **{"store/a": "", "digests.sqlite": "", "digests.sqlite-wal": "", ".partial-1-b": ""}
    )
    copy = opened(PLACE, folder)

    with following(copy, folder / "store"):
        pass

    assert sorted(copy.files) == ["driftline.yaml", "stages/01_ingest/part.bin"]


def test_the_folder_that_went_on_elsewhere_is_refused(tmp_path: Path) -> None:
    first = made(tmp_path / "first")
    old = opened(PLACE, first)
    old.settled()
    opened(PLACE, tmp_path / "second")

    made(first, **{"more": "late"})
    with pytest.raises(Busy, match="written by another run folder"):
        old.push()
    with pytest.raises(Busy, match="first is behind it"):
        opened(PLACE, first)


@pytest.mark.parametrize("interrupts", [signal.default_int_handler, signal.SIG_IGN], ids=["terminal", "background"])
def test_a_run_stops_when_another_folder_takes_its_copy(
    interrupts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A shell's background jobs ignore SIGINT."""
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, interrupts)))
    monkeypatch.setattr(bucket_copy, "POLL", 0.01)
    monkeypatch.setattr(bucket_copy, "EVERY", 0.0)
    first = made(tmp_path / "first")
    copy = opened(PLACE, first)
    copy.settled()
    opened(PLACE, tmp_path / "second")

    def work() -> None:
        with following(copy, first / "store"):
            made(first, **{"more": "late"})
            for _ in range(10_000):
                time.sleep(0.01)  # until the interrupt
            raise AssertionError("nothing stopped the run")

    with pytest.raises(Busy, match="written by another run folder"):
        work()


def test_a_folder_of_another_run_is_not_written_over(tmp_path: Path) -> None:
    opened(PLACE, made(tmp_path / "first")).settled()
    other = made(tmp_path / "other", mine="precious")

    with pytest.raises(BadInput, match="is not the folder that s3://runs/fruit is a copy of"):
        opened(PLACE, other)

    assert tree(other)["mine"] == "precious"


def test_a_stopped_beginning_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(PLACE, made(tmp_path / "first", b="1", c="2")).settled()
    whole = Copy._fetch
    left = iter([True, True, False])

    def cut(copy: Copy, *words: Any) -> None:
        if not next(left, False):
            raise EndpointConnectionError(endpoint_url="x")
        whole(copy, *words)

    with monkeypatch.context() as patch:
        patch.setattr(Copy, "_fetch", cut)
        with pytest.raises(Unfinished):
            opened(PLACE, tmp_path / "second")
    opened(PLACE, tmp_path / "second")

    assert tree(tmp_path / "second") == tree(tmp_path / "first")


def test_a_kill_before_the_list_leaves_the_state_before(tmp_path: Path) -> None:
    folder = made(tmp_path / "first")
    copy = opened(PLACE, folder)
    copy.settled()
    before = tree(folder)

    made(folder, **{"stages/01_ingest/part.bin": "two", "more": "3"})
    copy._replace_list = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        copy.push()
    opened(PLACE, tmp_path / "second")

    assert tree(tmp_path / "second") == before


def test_a_lost_answer_is_not_another_writer(tmp_path: Path) -> None:
    copy = opened(PLACE, made(tmp_path / "first"))
    real = copy.server.put_object

    class Losing:
        def __getattr__(self, name: str) -> Any:
            return getattr(server, name)

        def put_object(self, **words: Any) -> Any:
            real(**words)  # arrives; the client asks again, as its retries do
            return real(**words)

    server, copy.server = copy.server, Losing()
    copy.settled()

    assert copy.version == copy.read_list()[0]


def test_files_that_change_while_they_are_listed_are_sent_later(tmp_path: Path) -> None:
    folder = made(tmp_path / "run")
    copy = opened(PLACE, folder)
    real, listed = copy._listed, []

    def listing() -> dict[str, bucket_copy.Stamp]:
        listed.append(real())
        if len(listed) == 1:
            made(folder, **{"stages/01_ingest/part.bin": "other"})
        return listed[-1]

    copy._listed = listing  # type: ignore[method-assign]

    assert not copy.push()
    assert copy.version is None
    assert copy.push()


def test_of_a_growing_log_the_listed_lines_are_sent(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", **{"log.jsonl": "1\n"})
    copy = opened(PLACE, folder)
    stamp = copy._listed()["log.jsonl"]
    (folder / "log.jsonl").write_text("1\n2\n")

    assert copy._send("log.jsonl", stamp, set()) == bucket_copy.Content(
        2, bucket_copy.hashlib.sha256(b"1\n").hexdigest()
    )


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/../../b", ".lock", "C:\\x"])
def test_a_list_with_a_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path, server: Any) -> None:
    text = json.dumps({"format": 1, "writer": "w", "files": {name: [1, "0" * 64]}})
    server.put_object(Bucket="runs", Key="fruit/run.json", Body=text.encode())

    with pytest.raises(IntegrityError, match="names the file"):
        opened(PLACE, tmp_path / "run")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 9, "files": {}}', '{"format": 1, "writer": "", "files": 3}']
)
def test_another_object_in_the_lists_place_is_refused(text: str, tmp_path: Path, server: Any) -> None:
    server.put_object(Bucket="runs", Key="fruit/run.json", Body=text.encode())

    with pytest.raises(BadInput, match=r"run\.json"):
        opened(PLACE, tmp_path / "run")


def test_other_bytes_than_the_list_says_are_refused(tmp_path: Path, server: Any) -> None:
    opened(PLACE, made(tmp_path / "first")).settled()
    for entry in server.list_objects_v2(Bucket="runs", Prefix="fruit/content")["Contents"]:
        server.put_object(Bucket="runs", Key=entry["Key"], Body=b"bad")

    with pytest.raises(IntegrityError, match="other bytes"):
        opened(PLACE, tmp_path / "second")


@pytest.mark.parametrize("address", ["runs/fruit", "s3://runs", "s3:///x", "https://runs/fruit"])
def test_an_address_is_a_bucket_and_a_prefix(address: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="--copy is"):
        opened(address, tmp_path / "run")


def test_a_missing_bucket_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"s3://absent/x cannot be used \(NoSuchBucket\)"):
        opened("s3://absent/x", made(tmp_path / "run")).settled()


def test_an_outage_during_the_run_does_not_stop_it_and_one_at_its_end_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_copy, "POLL", 0.001)
    monkeypatch.setattr(bucket_copy, "EVERY", 0.0)
    folder = made(tmp_path / "run")
    copy = opened(PLACE, folder)
    asked: list[str] = []

    def out(self: Copy) -> bool:
        asked.append("")
        raise ClientError({"Error": {"Code": "SlowDown", "Message": "later"}}, "PutObject")

    monkeypatch.setattr(Copy, "push", out)

    def work() -> None:
        with following(copy, folder / "store"):
            while len(asked) < 3:
                time.sleep(0.001)

    with pytest.raises(Unfinished, match="not up to date"):
        work()


def test_a_failed_run_leaves_its_state_in_the_copy(tmp_path: Path) -> None:
    folder = made(tmp_path / "run")
    copy = opened(PLACE, folder)

    with pytest.raises(DriftlineError, match="no photos"), following(copy, folder / "store"):
        raise DriftlineError("There are no photos.")

    assert copy.files


def test_the_command_goes_on_where_a_vanished_machine_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    album(tmp_path / "photos")
    folder.mkdir()
    (folder / "driftline.yaml").write_text(photo_config("  per_class: 2").replace("path: photos", "path: ../photos"))
    command = ["run", str(folder), "--until", "filter", "--copy", PLACE]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    shutil.rmtree(folder)

    again = CliRunner().invoke(app, [*command, "--json"])

    assert again.exit_code == 0, again.output
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [e["stage"] for e in events if e["event"] == "skipped"] == ["ingest", "filter"]
