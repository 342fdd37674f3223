"""A Hub on loopback: what huggingface_hub asks of huggingface.co to create, upload, commit, tag and download."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from support.serving import serving

TOKEN = "hf_loopbackloopbackloopbackloopback"


class Hub:
    """The state of the stand-in."""

    def __init__(self) -> None:
        self.address = ""
        self.private: dict[str, bool] = {}
        self.commits: dict[str, list[tuple[str, dict[str, bytes]]]] = {}  # repository → (sha, files) of each commit
        self.store: dict[str, bytes] = {}  # large files by SHA-256
        self.tags: dict[str, list[str]] = {}
        self.requests: list[tuple[str, str]] = []
        self.puts = 0
        self.faults: list[list[Any]] = []  # [method, pattern, status or "drop" or "lose", times left]

    def head(self, repo: str) -> tuple[str, dict[str, bytes]]:
        return self.commits[repo][-1]

    def fault(self, method: str, path: str) -> Any:
        for entry in self.faults:
            if entry[0] == method and re.search(entry[1], path) and entry[3] > 0:
                entry[3] -= 1
                return entry[2]
        return None

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        sha = hashlib.sha1(f"{repo}{len(self.commits[repo])}".encode()).hexdigest()
        self.commits[repo].append((sha, files))
        return sha


@contextmanager
def hub() -> Iterator[Hub]:
    """A running stand-in."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, status: int, body: Any = b"", headers: dict[str, str] | None = None) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def handle_one(self) -> None:
            path = unquote(urlsplit(self.path).path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.requests.append((self.command, path))
            fault = state.fault(self.command, path)
            if fault == "drop":
                self.close_connection = True
                self.connection.close()
                return
            if isinstance(fault, int):
                return self.answer(fault, {"error": "planned"})
            if self.headers.get("Authorization") != "Bearer " + TOKEN and not path.startswith("/store/"):
                return self.answer(401, {"error": "no token"})
            status, document, headers = self.reply(path, body)
            if fault == "lose":  # done, but the answer is lost
                self.close_connection = True
                self.connection.close()
                return
            self.answer(status, document, headers)

        do_GET = do_HEAD = do_POST = do_PUT = handle_one

        def reply(self, path: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
            if path == "/api/repos/create":
                asked = json.loads(body)
                owner = asked.get("organization")
                repo = f"{owner}/{asked['name']}" if owner else asked["name"]
                if repo in state.commits:
                    return 409, {"error": "exists", "url": f"{state.address}/datasets/{repo}"}, {}
                state.private[repo] = bool(asked.get("private") or asked.get("visibility") == "private")
                state.commits[repo] = []
                state.commit(repo, {".gitattributes": b"*.parquet filter=lfs\n"})
                return 200, {"url": f"{state.address}/datasets/{repo}"}, {}
            if path == "/api/validate-yaml":
                return 200, {"errors": [], "warnings": []}, {}
            if found := re.fullmatch(r"/store/(\w+)", path):
                state.puts += 1
                if hashlib.sha256(body).hexdigest() != found[1]:
                    return 400, {"error": "differs"}, {}
                state.store[found[1]] = body
                return 200, b"", {"ETag": '"x"'}
            if found := re.fullmatch(r"/datasets/([\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch", path):
                return 200, {"transfer": "basic", "objects": [self.lfs(o) for o in json.loads(body)["objects"]]}, {}
            if found := re.fullmatch(r"/datasets/([\w.-]+/[\w.-]+)/resolve/([\w.-]+)/(.+)", path):
                sha, files = next((c for c in state.commits[found[1]] if c[0] == found[2]), state.head(found[1]))
                if found[3] not in files:
                    return 404, {"error": "none"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha}
                data = files[found[3]]
                return 200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": sha}
            if found := re.fullmatch(r"/api/datasets/([\w.-]+/[\w.-]+)(/.*)?", path):
                if found[1] not in state.commits:
                    return 404, {"error": "none"}, {"X-Error-Code": "RepoNotFound"}
                return self.repository(found[1], found[2] or "", body)
            return 404, {"error": path}, {}

        def lfs(self, asked: dict[str, Any]) -> dict[str, Any]:
            if asked["oid"] in state.store:
                return {"oid": asked["oid"], "size": asked["size"]}
            upload = {"href": f"{state.address}/store/{asked['oid']}", "header": {}}
            return {"oid": asked["oid"], "size": asked["size"], "actions": {"upload": upload}}

        def repository(self, repo: str, rest: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
            sha, files = state.head(repo)
            if rest == "" or rest.startswith("/revision/"):
                siblings = [{"rfilename": name} for name in files]
                return 200, {"id": repo, "sha": sha, "private": state.private[repo], "siblings": siblings}, {}
            if rest.startswith("/preupload/"):
                asked = json.loads(body)["files"]
                modes = [
                    {"path": f["path"], "shouldIgnore": False, "oid": None,
                     "uploadMode": "lfs" if f["path"].endswith((".parquet", ".tar")) else "regular"} for f in asked
                ]  # fmt: skip
                return 200, {"files": modes}, {}
            if rest.startswith("/tree/"):
                return 200, [{"type": "file", "path": n, "size": len(d), "oid": "0" * 40} for n, d in files.items()], {}
            if rest.startswith("/tag/"):
                state.tags.setdefault(repo, []).append(json.loads(body)["tag"])
                return 200, {}, {}
            if rest.startswith("/commit/"):
                return self.commit(repo, [json.loads(line) for line in body.splitlines()])
            return 404, {"error": rest}, {}

        def commit(self, repo: str, lines: list[dict[str, Any]]) -> tuple[int, Any, dict[str, str]]:
            sha, files = state.head(repo)
            if lines[0]["value"].get("parentCommit", sha) != sha:
                return 412, {"error": "A commit has happened since."}, {}
            new = dict(files)
            for line in lines[1:]:
                value = line["value"]
                if line["key"] == "file":
                    new[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    new[value["path"]] = state.store[value["oid"]]
                elif line["key"] == "deletedFile":
                    del new[value["path"]]
            made = state.commit(repo, new)
            return 200, {"commitUrl": f"{state.address}/datasets/{repo}/commit/{made}", "commitOid": made}, {}

    with serving(Handler) as address:
        state.address = address
        yield state
