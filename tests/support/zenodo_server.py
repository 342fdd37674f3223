"""Zenodo on loopback, after https://developers.zenodo.org, read on 27 November 2026 in its source
(github.com/zenodo/developers.zenodo.org, source/includes): deposits, their files, publishing, errors, lists.

Where the running service differs, its own tests say so (github.com/zenodo/zenodo-rdm, site/tests/legacy, read on the
same day): a published deposit that is changed is 404 there, not 403.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from support.hub_server import TOKEN
from support.stand_ins import Answer, Query, StandIn, serve

HOME = "/api/deposit/depositions"
STAMP = "2026-11-27T08:00:00.000000+00:00"
NEEDED = ("title", "upload_type", "description", "creators")  # to publish


class Zenodo(StandIn):
    """deposits: number → what is in it: files (name → bytes), metadata, submitted."""

    RULES: ClassVar = (
        "Authorization: Bearer TOKEN; without it 401",
        "publishing needs the scope deposit:actions; without it 403",
        "POST and PUT of metadata are application/json; else 415",
        "an error has message and status",
        "POST makes a deposit: 201",
        "a deposit has a reserved DOI",
        "a deposit is unsubmitted, then submitted",
        "title is set from the metadata",
        "a file is a PUT to links.bucket/NAME: 201, checksum md5:…",
        "a file of a deposit has a bare MD5",
        "a file of the same name is replaced",
        "license defaults to cc-zero for data sets",
        "publishing needs title, upload_type, description, creators: 400 with errors",
        "publishing answers 202",
        "a published deposit does not change",
        "lists have q",
        "lists have page, from 1",
        "lists have size, 10 unless asked",
        "a deposit that is not there is 404",
    )

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self.deposits: dict[int, dict[str, Any]] = {}
        self.scopes = {"deposit:write", "deposit:actions"}
        self.token = TOKEN

    def add(self, title: str, submitted: bool = False) -> int:
        """A deposit that somebody made before; its number."""
        number = max(self.deposits, default=6) + 1
        self.deposits[number] = {"files": {}, "metadata": {"title": title} if title else {}, "submitted": submitted}
        return number

    def reply(self, method: str, path: str, query: Query, headers: Any, body: bytes) -> Answer:
        scheme = "Bearer" if self.keeps(self.RULES[0]) else "Token"
        if headers.get("Authorization") != f"{scheme} {self.token}":
            return self.error(401, "The server could not verify that you are authorized to access the URL requested.")
        parts = path.removeprefix("/api/").strip("/").split("/")
        if parts[0] == "files" and method == "PUT":
            return self._file(int(parts[1].removeprefix("bucket-")), "/".join(parts[2:]), body)
        if parts[:2] != ["deposit", "depositions"]:
            return self.error(404, "Not found")
        if len(parts) == 2 and method == "GET":
            return self._list(query)
        described = method in ("POST", "PUT") and parts[3:] != ["actions", "publish"]
        other = headers.get("Content-Type") != "application/json"
        if described and other and self.keeps("POST and PUT of metadata are application/json; else 415"):
            return self.error(415, "Unsupported media type")
        if len(parts) == 2:
            number = self.add("")
            self._describe(number, json.loads(body))
            return 201 if self.keeps("POST makes a deposit: 201") else 400, self.shown(number), {}
        number = int(parts[2])
        if number not in self.deposits:
            if self.keeps("a deposit that is not there is 404"):
                return self.error(404, "Deposition not found")
            self.deposits[number] = {"files": {}, "metadata": {}, "submitted": False}
        if method == "GET":
            return 200, self.shown(number), {}
        if self.deposits[number]["submitted"] and self.keeps("a published deposit does not change"):
            return self.error(403, "Deposition is published")
        if method == "PUT":
            self._describe(number, json.loads(body))
            return 200, self.shown(number), {}
        return self._publish(number) if parts[3:] == ["actions", "publish"] else self.error(405, "No such method")

    def error(self, status: int, message: str, errors: list[dict[str, Any]] | None = None) -> Answer:
        """An error response."""
        if not self.keeps("an error has message and status"):
            return status, {"error": message}, {}
        return status, {"message": message, "status": status} | ({"errors": errors} if errors else {}), {}

    def _describe(self, number: int, body: dict[str, Any]) -> None:
        metadata = dict(body.get("metadata") or {})
        free = metadata.get("access_right", "open") == "open" and metadata.get("upload_type")
        if free and self.keeps("license defaults to cc-zero for data sets"):
            metadata.setdefault("license", "cc-zero" if metadata["upload_type"] == "dataset" else "cc-by")
        self.deposits[number]["metadata"] = metadata

    def _file(self, number: int, name: str, body: bytes) -> Answer:
        deposit = self.deposits[number]
        if deposit["submitted"] and self.keeps("a published deposit does not change"):
            return self.error(403, "Deposition is published")
        if name not in deposit["files"] or self.keeps("a file of the same name is replaced"):
            deposit["files"][name] = body
        address = f"{self.address}/api/files/bucket-{number}/{name}"
        document = {
            "key": name, "mimetype": "application/octet-stream", "checksum": f"md5:{hashlib.md5(body).hexdigest()}",
            "version_id": "38a724d3", "size": len(body), "created": STAMP, "updated": STAMP, "is_head": True,
            "delete_marker": False, "links": {"self": address, "version": f"{address}?v", "uploads": f"{address}?u"},
        }  # fmt: skip
        if not self.keeps("a file is a PUT to links.bucket/NAME: 201, checksum md5:…"):
            document["checksum"] = hashlib.sha256(body).hexdigest()
        return 201, document, {}

    def _publish(self, number: int) -> Answer:
        deposit = self.deposits[number]
        scoped = "deposit:actions" in self.scopes
        if not scoped and self.keeps("publishing needs the scope deposit:actions; without it 403"):
            return self.error(403, "Missing scope")
        missing = [name for name in NEEDED if not deposit["metadata"].get(name)]
        if missing and self.keeps("publishing needs title, upload_type, description, creators: 400 with errors"):
            errors = [{"code": 10, "message": "Missing data for required field.", "field": n} for n in missing]
            return self.error(400, "Validation error", errors)
        deposit["submitted"] = True
        return 202 if self.keeps("publishing answers 202") else 302, self.shown(number), {}

    def _list(self, query: Query) -> Answer:
        phrase = json.loads(query.get("q", '""')) if self.keeps("lists have q") else ""
        numbers = [n for n, d in self.deposits.items() if phrase in d["metadata"].get("title", "")]
        size = int(query.get("size", 10)) if self.keeps("lists have size, 10 unless asked") else 10_000
        page = int(query.get("page", 1)) - (1 if self.keeps("lists have page, from 1") else 0)
        return 200, [self.shown(number) for number in numbers[page * size : (page + 1) * size]], {}

    def shown(self, number: int) -> dict[str, Any]:
        """The representation of a deposit."""
        deposit, home = self.deposits[number], f"{self.address}{HOME}/{number}"
        bare = self.keeps("a file of a deposit has a bare MD5")
        files = [
            {"id": f"f-{name}", "filename": name, "filesize": len(data),
             "checksum": (hashlib.md5 if bare else hashlib.sha1)(data).hexdigest()}
            for name, data in deposit["files"].items()
        ]  # fmt: skip
        metadata = dict(deposit["metadata"])
        if self.keeps("a deposit has a reserved DOI"):
            metadata["prereserve_doi"] = {"doi": f"10.5281/zenodo.{number}", "recid": number}
        submitted = deposit["submitted"] and self.keeps("a deposit is unsubmitted, then submitted")
        title = deposit["metadata"].get("title", "") if self.keeps("title is set from the metadata") else ""
        actions = {name: f"{home}/actions/{name}" for name in ("publish", "edit", "discard")}
        return {
            "conceptrecid": str(number - 1), "created": STAMP, "modified": STAMP, "id": number, "record_id": number,
            "owner": 12345, "files": files, "metadata": metadata, "title": title, "submitted": submitted,
            "state": "done" if submitted else "unsubmitted",
            "links": {"self": home, "bucket": f"{self.address}/api/files/bucket-{number}", "files": f"{home}/files",
                      "html": f"{self.address}/deposit/{number}", "latest_draft": home, **actions},
        }  # fmt: skip


@contextmanager
def zenodo(broken: str = "") -> Iterator[Zenodo]:
    """A running stand-in."""
    with serve(Zenodo(broken)) as state:
        yield state
