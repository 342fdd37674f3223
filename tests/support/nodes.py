"""Nodes of a Ray cluster on one machine: a network namespace for each, a web server in the first."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from support.faults import picture
from support.helpers import yfcc_line

HEAD = "10.77.0.1"
PORT, PICTURES = 36_379, 50
BIN = Path(sys.executable).parent
SECRET = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # nodes of one cluster know each other
SERVER = """
import http.server, os, sys, time
os.chdir(sys.argv[1])
class H(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if os.path.exists("slow"):
            time.sleep(float(open("slow").read()))
        super().do_GET()
    def log_message(self, line, *a):
        with open("requests", "a") as log:
            log.write(f"{time.time()} {self.client_address[0]} {self.path}\\n")
http.server.ThreadingHTTPServer(("10.77.0.1", 38080), H).serve_forever()
"""
CONFIG = """
collection: {{source: yfcc, path: {path}}}
fetch: {{shard_size: 25, threads: 8}}
embed: {{model: driftline-photo-world}}
retrieve: {{concepts: [{{name: a, prompts: [a]}}]}}
"""
DRIFTLINE = [sys.executable, "-m", "driftline.pipelines.cli", "run"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Nodes:
    """A namespace for the head, which has address HEAD, and one for each other node, joined to the head's."""

    def __init__(self, count: int) -> None:
        self.names = [f"driftline-{os.getpid()}-{i}" for i in range(count)]
        self.addresses = [HEAD, *(f"10.77.{i}.2" for i in range(1, count))]
        self.jobs: list[subprocess.Popen[bytes]] = []
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.names[0], "addr", "add", f"{HEAD}/32", "dev", "lo")
        for i, name in enumerate(self.names[1:], 1):
            ip("-n", self.names[0], "link", "add", f"v{i}", "type", "veth", "peer", "name", "e0", "netns", name)
            ip("-n", self.names[0], "addr", "add", f"10.77.{i}.1/24", "dev", f"v{i}")
            ip("-n", name, "addr", "add", f"{self.addresses[i]}/24", "dev", "e0")
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

    def serve(self, images: Path) -> None:
        """A web server in the head with a few pictures; seconds in a file `slow` delay each answer."""
        images.mkdir()
        for i in range(PICTURES):
            (images / f"{i}.jpg").write_bytes(picture(seed=i))
        self.start(0, sys.executable, "-c", SERVER, images)

    def cluster(self) -> None:
        """A Ray node of one CPU in each namespace, and all have begun."""
        base = [
            BIN / "ray",
            "start",
            "--num-cpus=1",
            "--object-store-memory=100000000",
            "--disable-usage-stats",
            "--include-log-monitor=false",  # a process of each node that would read logs
            "--block",
        ]
        head = ["--head", f"--port={PORT}", f"--node-ip-address={HEAD}", "--include-dashboard=false", "--no-monitor"]
        self.short = tempfile.mkdtemp(prefix="ray-", dir=tempfile.gettempdir())  # names of sockets may have 107 bytes
        self.start(0, *base, *head, f"--temp-dir={self.short}")
        for i, address in enumerate(
            self.addresses
        ):  # one after the other: on one file system they would take the same names
            if i:
                self.start(i, *base, f"--address={HEAD}:{PORT}", f"--node-ip-address={address}")
            wait_for(lambda i=i: len(list(Path(self.short).glob("session_2*/sockets/raylet*"))) == 1 + i)

    def run(self, folder: Path) -> subprocess.Popen[bytes]:
        """Fetch on the cluster."""
        return self.start(0, *DRIFTLINE, folder, "--until", "fetch", "--engine", "ray", RAY_ADDRESS=f"{HEAD}:{PORT}")

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
        if short := getattr(self, "short", ""):
            shutil.rmtree(short, ignore_errors=True)


def prepare(folder: Path, records: int) -> Path:
    """A run folder whose photos the head serves."""
    folder.mkdir()
    lines = [yfcc_line(i + 1, url=f"http://{HEAD}:38080/{i % PICTURES}.jpg") for i in range(records)]
    (folder / "dataset.tsv").write_text("".join(line + "\n" for line in lines))
    (folder / "driftline.yaml").write_text(CONFIG.format(path=folder / "dataset.tsv"))
    return folder


def shards(folder: Path) -> dict[str, bytes]:
    """Name → bytes of what fetch wrote."""
    fetched = folder / "stages" / "03_fetch"
    return {p.name: p.read_bytes() for p in fetched.glob("*") if p.suffix in (".tar", ".parquet")}


def wait_for(what: Callable[[], object], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
