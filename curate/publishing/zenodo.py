"""`zenodo:` or `zenodo:DEPOSIT`: a deposit with a reserved DOI, through Zenodo's documented REST API.

Zenodo has no folders and takes at most 100 files: what is in folders goes into one tar for each. The deposit stays a
draft, which only you see, unless it is made public: publishing on Zenodo cannot be taken back.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driftline.curate.core.atomic_io import TEMPORARY, json_value
from driftline.curate.core.errors import BadConfig, BadInput, Unfinished
from driftline.curate.core.outside.http import Client, Policy, Reply, Temporary
from driftline.curate.publishing.plan import Plan, Published, Settings, token_of
from driftline.curate.release.croissant.provenance import maker
from driftline.curate.release.licences import NOT_STATED

HOME = "https://zenodo.org"
MOST_FILES, MOST_BYTES = 100, 50_000_000_000
POLICY = Policy(4, 0.5)
CONTINUE = "Run the same command with --to zenodo:{}: it continues."


def publish(plan: Plan, place: str, settings: Settings) -> Published:
    """A Zenodo deposit with a DOI; a draft, unless it is public. Files that are there with the same MD5 are not sent
    again. Raises what `Publisher` names."""
    if place and not place.isdecimal():
        raise BadConfig(f"--to is 'zenodo:{place}'.", "Expected zenodo: for a new deposit, or zenodo:NUMBER.")
    token = token_of(settings) or os.environ.get("ZENODO_TOKEN")
    if not token:
        raise BadConfig("There is no access token.", "", "Set ZENODO_TOKEN, or use --token-file FILE.")
    if plan.size > MOST_BYTES:
        raise BadInput(f"{plan.folder} has {plan.size:,} bytes.", f"Zenodo takes at most {MOST_BYTES:,}.")
    server = _Server((settings.endpoint or HOME).rstrip("/"), token)
    path = f"/api/deposit/depositions/{place}" if place else "/api/deposit/depositions"
    deposit = server.call("GET" if place else "POST", path, None if place else {}, place)
    number = str(deposit["id"])
    if deposit.get("submitted"):
        raise BadInput(f"The deposit {number} is published.", "It cannot change.", "Make a new one with --to zenodo:.")
    there = {str(file["filename"]): str(file["checksum"]).removeprefix("md5:") for file in deposit.get("files", ())}
    doi = deposit.get("metadata", {}).get("prereserve_doi", {}).get("doi", "")
    sent = 0
    parts = list(_parts(plan))
    if len(parts) > MOST_FILES:
        raise BadInput(f"{plan.folder} has {len(parts)} files.", f"Zenodo takes at most {MOST_FILES}.")
    for name, members in parts:
        packed = plan.folder / name
        if members is not None:
            packed = plan.folder.parent / f"{TEMPORARY}{plan.folder.name}-{name}"
            _pack(plan.folder, members, packed)
        try:
            if there.get(name) != _md5(packed):
                server.put(f"{deposit['links']['bucket']}/{name}", packed, number)
                sent += 1
        finally:
            if members is not None:
                packed.unlink(missing_ok=True)
    server.call("PUT", f"/api/deposit/depositions/{number}", {"metadata": _metadata(plan)}, number)
    if settings.public:
        server.call("POST", f"/api/deposit/depositions/{number}/actions/publish", None, number)
    note = f"DOI {doi}" if settings.public else f"DOI {doi} is reserved; the draft waits for you to publish it."
    return Published(f"{server.home}/deposit/{number}", sent, public=settings.public, note=note)


class _Server:
    """Requests with the token in a header, never in an address; errors without it."""

    def __init__(self, home: str, token: str) -> None:
        self.home, self._headers = home, {"Authorization": f"Bearer {token}"}
        self._client = Client(secret=token, deadline=math.inf)  # files are large

    def call(self, method: str, path: str, body: Any, number: str) -> Any:
        """The JSON answer."""
        headers = self._headers | {"Content-Type": "application/json"}
        return self._send(method, self.home + path, None if body is None else json.dumps(body), headers, number)

    def put(self, address: str, file: Path, number: str) -> None:
        """Upload a file. The token goes to the deposit's own server only."""
        if urlsplit(address)[:2] != urlsplit(self.home)[:2]:
            raise BadInput(f"{self.home} names another server for files, {urlsplit(address).netloc}.")
        with file.open("rb") as content:
            headers = self._headers | {"Content-Length": str(file.stat().st_size)}
            self._send("PUT", address, content, headers, number)

    def _send(self, method: str, address: str, body: Any, headers: dict[str, str], number: str) -> Any:
        way_out = CONTINUE.format(number)

        def document(reply: Reply) -> Any:
            if reply.status in (401, 403):
                raise BadConfig(
                    f"{self.home} does not let you write (status {reply.status}).",
                    "Expected a token with deposit:write.",
                )
            if reply.status >= 500 or reply.status in (409, 412, 429):
                raise Unfinished(f"{self.home} failed (status {reply.status}).", "Nothing was published.", way_out)
            if reply.status >= 300:
                raise BadInput(f"{self.home} refused the deposit (status {reply.status}).", "", way_out)
            try:
                return json_value(reply.body or b"{}")
            except (ValueError, RecursionError):
                raise BadInput(f"{self.home} answered without JSON.", "Expected Zenodo's REST API.") from None

        try:
            return self._client.ask(method, address, document, POLICY, body=body, headers=headers)
        except Temporary as failure:
            raise Unfinished(f"{self.home} cannot be reached ({failure}).", "", way_out) from None


def _parts(plan: Plan) -> Iterator[tuple[str, list[str] | None]]:
    """(name, files of a tar, or None for a file of its own)."""
    folders: dict[str, list[str]] = {}
    for name in plan.files:
        top, slash, _ = name.partition("/")
        if slash:
            folders.setdefault(top, []).append(name)
        else:
            yield name, None
    for top, names in folders.items():
        yield f"{top}.tar", names


def _pack(folder: Path, names: list[str], target: Path) -> None:
    """A tar whose bytes depend on the files only."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = (folder / name).stat().st_size
            with (folder / name).open("rb") as content:
                archive.addfile(info, content)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _metadata(plan: Plan) -> dict[str, Any]:
    """Zenodo's metadata, from release.json."""
    licences = ", ".join(plan.facts.get("licences", {})) or NOT_STATED
    creator, _ = maker({"provenance": {}} | plan.facts)
    text = (
        f"{plan.facts.get('images', '?')} images of {len(plan.facts.get('classes', ()))} classes. Licences: {licences}."
    )
    more = ", ".join(name for name in ("README.md", "ATTRIBUTION.csv", "croissant.json") if name in plan.files)
    return {
        "title": f"{plan.name} {plan.version}",
        "upload_type": "dataset",
        "version": plan.version,
        "description": f"{text} See {more}.",
        "creators": [{"name": "see README.md" if creator == NOT_STATED else creator}],
        "access_right": "open",
    }
