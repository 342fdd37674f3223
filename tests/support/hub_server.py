"""A Hub on loopback, after what huggingface_hub 2.4.0, the Hub's own client, sends to huggingface.co and reads (its
hf_api.py, _commit_api.py, lfs.py, file_download.py and utils/_pagination.py, read on 27 November 2026).

Its contract is that client at work. The Hub's OpenAPI document (https://huggingface.co/.well-known/openapi.json) has
the same paths.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.stand_ins import Answer, Query, StandIn, serve

TOKEN = "hf_loopbackloopbackloopbackloopback"
NAME = r"([\w.-]+/[\w.-]+)"


class Hub(StandIn):
    """private, commits, tags: by repository; a commit is (SHA, files). store: large files by SHA-256. page: files of a
    page of a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.private: dict[str, bool] = {}
        self.commits: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.tags: dict[str, dict[str, str]] = {}
        self.store: dict[str, bytes] = {}
        self.token = TOKEN
        self.page = 1000
        self.puts = 0

    def head(self, repo: str) -> tuple[str, dict[str, bytes]]:
        """The newest commit."""
        return self.commits[repo][-1]

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        """Add a commit of these files; its SHA."""
        sha = hashlib.sha1(f"{repo}{len(self.commits[repo])}".encode()).hexdigest()
        self.commits[repo].append((sha, files))
        return sha

    def reply(self, method: str, path: str, query: Query, headers: Any, body: bytes) -> Answer:
        if match := re.fullmatch(r"/store/(\w+)", path):  # an address that is signed: the token is not sent there
            self.puts += 1
            if hashlib.sha256(body).hexdigest() != match[1]:
                return 400, {"error": "differs"}, {}
            self.store[match[1]] = body
            return 200, b"", {"ETag": '"x"'}
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"error": "Invalid username or password."}, {}
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        lfs = re.fullmatch(rf"/datasets/{NAME}\.git/info/lfs/objects/(batch|verify)", path)
        file = re.fullmatch(rf"/datasets/{NAME}/resolve/([^/]+|refs/convert/parquet)/(.+)", path)
        api = re.fullmatch(rf"/api/datasets/{NAME}(?:/(.*))?", path)
        route = lfs or file or api
        if not route or route[1] not in self.commits:
            return self._missing("Repo")
        if lfs:
            return self._batch(route[1], json.loads(body)) if lfs[2] == "batch" else self._verify(json.loads(body))
        return self._resolve(*file.groups()) if file else self._repository(route[1], route[2] or "", query, body)

    def _missing(self, what: str) -> Answer:
        return 404, {"error": f"{what} not found"}, {"X-Error-Code": f"{what}NotFound"}

    def _create(self, asked: dict[str, Any]) -> Answer:
        owner = asked.get("organization")
        repo = f"{owner}/{asked['name']}" if owner else asked["name"]
        address = f"{self.address}/datasets/{repo}"
        if repo in self.commits:
            return 409, {"error": "You already created this dataset repo", "url": address}, {}
        private = asked.get("private") or asked.get("visibility") == "private"
        self.private[repo] = bool(private)
        self.commits[repo], self.tags[repo] = [], {}
        self.commit(repo, {".gitattributes": b"*.parquet filter=lfs\n"})
        return 200, {"url": address, "name": repo}, {}

    def _at(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The commit that a revision names."""
        if revision == "main":
            return self.head(repo)
        sha = self.tags[repo].get(revision, revision)
        return next((commit for commit in self.commits[repo] if commit[0] == sha), None)

    def _resolve(self, repo: str, revision: str, name: str) -> Answer:
        if not (at := self._at(repo, revision)):
            return self._missing("Revision")
        if name not in at[1]:
            status, document, headers = self._missing("Entry")
            return status, document, {**headers, "X-Repo-Commit": at[0]}
        data = at[1][name]
        tag = hashlib.sha256(data) if hashlib.sha256(data).hexdigest() in self.store else hashlib.sha1(data)
        facts = {"ETag": f'"{tag.hexdigest()}"', "X-Repo-Commit": at[0]}
        return 200, data, facts

    def _batch(self, repo: str, asked: dict[str, Any]) -> Answer:
        objects = []
        for wanted in asked["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.store:
                verify = f"{self.address}/datasets/{repo}.git/info/lfs/objects/verify"
                upload = {"href": f"{self.address}/store/{wanted['oid']}", "header": {}}
                entry["actions"] = {"upload": upload, "verify": {"href": verify, "header": {}}}
            objects.append(entry)
        return 200, {"transfer": "basic", "objects": objects}, {}

    def _verify(self, asked: dict[str, Any]) -> Answer:
        size = len(self.store.get(asked["oid"], b""))
        return (200, {}, {}) if size == asked["size"] else (404, {"error": "Object does not exist"}, {})

    def _repository(self, repo: str, rest: str, query: Query, body: bytes) -> Answer:
        word, _, revision = rest.partition("/")
        if word in ("", "revision", "tree"):
            if not (at := self._at(repo, revision or "main")):
                return self._missing("Revision")
            if word == "tree":
                return self._tree(f"/api/datasets/{repo}/{rest}", at[1], int(query.get("cursor", 0)))
            siblings = [{"rfilename": name} for name in at[1]]
            return 200, {"id": repo, "sha": at[0], "private": self.private[repo], "siblings": siblings}, {}
        if word == "preupload":
            return 200, {"files": [self._mode(file) for file in json.loads(body)["files"]]}, {}
        if word == "tag":
            tag = json.loads(body)["tag"]
            if tag in self.tags[repo]:
                return 409, {"error": "Tag exists"}, {}
            self.tags[repo][tag] = self.head(repo)[0]
            return 200, {}, {}
        if word == "commit":
            return self._commit(repo, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": rest}, {}

    def _mode(self, file: dict[str, Any]) -> dict[str, Any]:
        large = file["path"].endswith((".parquet", ".tar"))
        return {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False, "oid": None}

    def _tree(self, path: str, files: dict[str, bytes], cursor: int) -> Answer:
        rows: list[dict[str, Any]] = []
        for name, data in list(files.items())[cursor : cursor + self.page]:
            row = {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            if (sha := hashlib.sha256(data).hexdigest()) in self.store:
                row["lfs"] = {"oid": sha, "size": len(data), "pointerSize": 134}
            rows.append(row)
        cursor += self.page
        if cursor >= len(files):
            return 200, rows, {}
        return 200, rows, {"Link": f'<{self.address}{path}?cursor={cursor}>; rel="next"'}

    def _commit(self, repo: str, lines: list[dict[str, Any]]) -> Answer:
        sha, files = self.head(repo)
        if lines[0]["value"].get("parentCommit", sha) != sha:
            return 412, {"error": "A commit has happened since."}, {}
        new = dict(files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                new[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                new[value["path"]] = self.store[value["oid"]]
            else:  # deletedFile
                del new[value["path"]]
        sha = self.commit(repo, new)
        address = f"{self.address}/datasets/{repo}/commit/{sha}"
        return 200, {"success": True, "commitUrl": address, "commitOid": sha}, {}


@contextmanager
def hub() -> Iterator[Hub]:
    """A running stand-in."""
    with serve(Hub()) as state:
        yield state
