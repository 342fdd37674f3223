"""The guide to CLEAR-like buckets, from nothing: its commands on a small stand-in of the bucket with YFCC's layout."""

import bz2
import hashlib
import json
import re
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console import driftline

from driftline.curate.core.run_log import RunLog
from driftline.curate.release import Release
from driftline.curate.sources.yfcc.reading import NAMES
from driftline.pipelines.demo.draw import CONCEPTS
from driftline.pipelines.demo.journey import simulate_answers
from driftline.pipelines.demo.world import World, build, serve

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "clear_from_yfcc.md"
BUCKET, KEY = "multimedia-commons", "tools/etc/yfcc100m_dataset.sql"
SMALLER = {
    "fetch.stop_after=78500": "fetch.stop_after=100", "fetch.stop_after=7850000": "fetch.stop_after=300",
    "retrieve.per_class=20": "retrieve.per_class=10", "retrieve.per_class=600": "retrieve.per_class=10",
    "retrieve.short=fail": "retrieve.short=fewer", "clear-table-4": "nap,finetune", "0-4": "0",
}  # fmt: skip
HERE = (  # what a small sample and this machine need besides
    "fetch.private_addresses=allow", "fetch.min_edge=16", "embed.model=driftline-photo-world", "embed.weights=null",
    "buckets.count=4",
    f"retrieve.concepts=[{', '.join(CONCEPTS)}]", "retrieve.depth=40",
    "release.per_class=6", "release.short=fewer",
)  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = build(tmp_path / "world", 400, 0, RunLog(quiet=True), plain=True, uploaders=20)
    with serve(made):
        yield made


@pytest.fixture
def bucket(world: World) -> Iterator[tuple[str, str]]:
    """Endpoint of a server of S3 with the metadata as SQLite, and their MD5."""
    import boto3
    from moto.server import ThreadedMotoServer

    path = world.folder / "dataset.sql"
    lines = [line.split("\t") for line in bz2.decompress(world.metadata.read_bytes()).decode().splitlines()]
    rows = [[line[1], *line[3:]] for line in lines if len(line) == 25]  # without line number and hash
    with sqlite3.connect(path) as base:
        base.execute(f"CREATE TABLE yfcc100m_dataset ({', '.join(NAMES)})")
        base.executemany(f"INSERT INTO yfcc100m_dataset VALUES ({', '.join('?' * 23)})", rows)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = "http://127.0.0.1:{1}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=endpoint, **keys)  # type: ignore[call-overload]
    client.create_bucket(Bucket=BUCKET, ACL="public-read")
    client.put_object(Bucket=BUCKET, Key=KEY, Body=path.read_bytes(), ACL="public-read")
    yield endpoint, hashlib.md5(path.read_bytes()).hexdigest()
    server.stop()


def commands() -> list[list[str]]:
    text = "\n".join(re.findall(r"^```text\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.S | re.M))
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("driftline ")]


@pytest.mark.proof("journey")
def test_the_commands_of_the_guide_lead_to_results(world: World, bucket: tuple[str, str], tmp_path: Path) -> None:
    endpoint, md5 = bucket
    more = [f"collection.s3.endpoint={endpoint}", f"collection.s3.md5={md5}", *HERE]
    waits = 0
    for _, *words in commands():
        words = [SMALLER.get(word, word) for word in words]
        if words[0] == "browse":  # a server
            continue
        if words[0] == "init":
            words = [
                word.replace("fetch.mirror=multimedia-commons", f"fetch.mirror={endpoint}/{{hash}}") for word in words
            ]
            words += [word for setting in more for word in ("--set", setting)]
        if words[0] == "eval":
            words += ["--set", "epochs=1", "--control", "0"]
        done = driftline(*words, here=tmp_path)
        assert done.returncode in (0, 3), f"{words}\n{done.stdout}{done.stderr}"
        if done.returncode == 3:
            waits += 1
            simulate_answers(tmp_path / "clear", world)
    assert waits == 1
    release = Release.open(tmp_path / "clear")
    assert set(release.classes) >= {"bus", "car"}
    assert len(release.buckets) == 3, "the first of four stays unlabelled"
    ran = [json.loads(path.read_text())["learner"] for path in (tmp_path / "clear-runs").rglob("run.json")]
    assert {"nap", "finetune"} <= set(ran)
