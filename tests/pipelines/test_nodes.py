"""Three Ray nodes, each in a network namespace of its own, and one is lost: the bytes are those of one machine."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.faults import picture
from support.helpers import yfcc_line

from curate.core.atomic_io import read_json

HEAD, OTHERS = "10.77.0.1", ("10.77.1.2", "10.77.2.2")
PORT = 36_379
RECORDS = 300
BIN = Path(sys.executable).parent
SECRET = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # nodes of one cluster know each other
SERVER = """
import http.server, os, sys, time
os.chdir(sys.argv[1])
class H(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if os.path.exists("slow"):
            time.sleep(0.4)  # so that shards last long enough to lose a node in the middle of one
        super().do_GET()
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("10.77.0.1", 38080), H).serve_forever()
"""
CONFIG = """
collection: {{source: yfcc, path: {path}}}
fetch: {{shard_size: 25, threads: 8}}
embed: {{model: driftline-photo-world}}
retrieve: {{concepts: [{{name: a, prompts: [a]}}]}}
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Nodes:
    """A namespace for the head, which has address HEAD, and one for each other node, joined to the head's."""

    def __init__(self) -> None:
        self.names = [f"driftline-{os.getpid()}-{i}" for i in range(1 + len(OTHERS))]
        self.jobs: list[subprocess.Popen[bytes]] = []
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.names[0], "addr", "add", f"{HEAD}/32", "dev", "lo")
        for i, (name, address) in enumerate(zip(self.names[1:], OTHERS, strict=True), 1):
            ip("-n", self.names[0], "link", "add", f"v{i}", "type", "veth", "peer", "name", "e0", "netns", name)
            ip("-n", self.names[0], "addr", "add", f"10.77.{i}.1/24", "dev", f"v{i}")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "e0")
            ip("-n", self.names[0], "link", "set", f"v{i}", "up")
            ip("-n", name, "link", "set", "e0", "up")
            ip("-n", name, "route", "add", "default", "via", f"10.77.{i}.1")
        within = ["ip", "netns", "exec", self.names[0], "sysctl", "-qw", "net.ipv4.ip_forward=1"]
        subprocess.run(within, check=True, capture_output=True)

    def start(self, node: int, *command: object, **env: str) -> subprocess.Popen[bytes]:
        """Run a command inside a node."""
        words = ["ip", "netns", "exec", self.names[node], *map(str, command)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        job = subprocess.Popen(words, env=os.environ | SECRET | env, **quiet)
        self.jobs.append(job)
        return job

    def processes(self, node: int) -> list[int]:
        """Everything that runs inside a node."""
        said = subprocess.run(["ip", "netns", "pids", self.names[node]], capture_output=True, text=True, check=True)
        return [int(word) for word in said.stdout.split()]

    def lose(self, node: int) -> None:
        """The node is gone: all its processes at once, without a word."""
        for process in self.processes(node):
            try:
                os.kill(process, 9)
            except ProcessLookupError:
                continue

    def close(self) -> None:
        for node, name in enumerate(self.names):
            self.lose(node)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        for job in self.jobs:
            job.wait()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    try:
        made = Nodes()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode()[:100]}")
    yield made
    made.close()


def prepare(folder: Path) -> Path:
    folder.mkdir()
    lines = [yfcc_line(i + 1, url=f"http://{HEAD}:38080/{i % 50}.jpg") for i in range(RECORDS)]
    (folder / "dataset.tsv").write_text("".join(line + "\n" for line in lines))
    (folder / "driftline.yaml").write_text(CONFIG.format(path=folder / "dataset.tsv"))
    return folder


def shards(folder: Path) -> dict[str, bytes]:
    fetched = folder / "stages" / "03_fetch"
    return {p.name: p.read_bytes() for p in fetched.glob("*") if p.suffix in (".tar", ".parquet")}


@pytest.mark.slow
def test_a_lost_node_costs_time_only(nodes: Nodes, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for i in range(50):
        (images / f"{i}.jpg").write_bytes(picture(seed=i))
    nodes.start(0, sys.executable, "-c", SERVER, images)
    one, many = prepare(tmp_path / "one"), prepare(tmp_path / "many")
    command = [sys.executable, "-m", "pipelines.cli", "run"]
    assert nodes.start(0, *command, one, "--until", "fetch", "--workers", "2").wait(200) == 0
    (images / "slow").touch()

    base = [BIN / "ray", "start", "--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
    head = ["--head", f"--port={PORT}", f"--node-ip-address={HEAD}", "--include-dashboard=false"]
    short = tempfile.mkdtemp(prefix="ray-", dir=tempfile.gettempdir())  # names of sockets may have 107 bytes
    request.addfinalizer(lambda: shutil.rmtree(short, ignore_errors=True))
    nodes.start(0, *base, *head, f"--temp-dir={short}")
    wait_for(lambda: raylets(short) == 1)
    for i, address in enumerate(OTHERS, 1):  # one after the other: on one file system they would take the same names
        nodes.start(i, *base, f"--address={HEAD}:{PORT}", f"--node-ip-address={address}")
        wait_for(lambda i=i: raylets(short) == 1 + i)  # type: ignore[misc]
    run = nodes.start(0, *command, many, "--until", "fetch", "--engine", "ray", RAY_ADDRESS=f"{HEAD}:{PORT}")
    wait_for(lambda: any(_works(p) for p in nodes.processes(1)) and shards(many))
    assert len(shards(many)) < 2 * RECORDS / 25, "the node was to be lost in the middle of the run"
    nodes.lose(1)
    assert run.wait(240) == 0
    assert shards(many) == shards(one)
    counts = read_json(many / "stages" / "03_fetch" / "done.json")["counts"]
    assert counts == {"read": RECORDS, "kept": RECORDS, "dropped": {}}


def raylets(folder: str) -> int:
    """Nodes of a cluster that have begun."""
    return len(list(Path(folder).glob("session_2*/sockets/raylet*")))


def wait_for(what: Callable[[], object], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def _works(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::fetch_shard")
    except OSError:
        return False
