"""`zenodo:` or `zenodo:DEPOSIT`: a deposit with a reserved DOI, through Zenodo's REST API [developers.zenodo.org].

Zenodo has no folders and takes at most 100 files: what is in folders goes into one tar for each. The deposit stays a
draft, which only you see, unless it is made public: publishing on Zenodo cannot be taken back. So `zenodo:` goes on
with a deposit of the same title, which a killed run left, and makes a new one only where there is none.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from driftline.curate.core.atomic_io import TEMPORARY, json_value
from driftline.curate.core.errors import BadConfig, BadInput, Unfinished, shortened
from driftline.curate.core.outside.http import Client, Policy, Reply, Temporary
from driftline.curate.publishing.plan import CONTINUE, Plan, Published, Settings, other_content, token_of
from driftline.curate.release.croissant.provenance import maker
from driftline.curate.release.licences import NOT_STATED, Entry, deed, listed

HOME = "https://zenodo.org"
DEPOSITS = "/api/deposit/depositions"
MOST_FILES, MOST_BYTES = 100, 50_000_000_000
POLICY = Policy(6, 2.0)  # pauses of 62 s together: limits count requests of a minute [Rate Limiting]


@dataclass(frozen=True)
class _Deposit:
    """The representation of a deposit [Entities, Deposit], as far as it is used."""

    number: str
    submitted: bool
    """whether it is published"""
    bucket: str
    """address of its files"""
    doi: str
    files: dict[str, str]
    """file → MD5"""


def publish(plan: Plan, place: str, settings: Settings) -> Published:
    """A Zenodo deposit with a DOI; a draft, unless it is public. Files that are there with the same MD5 are not sent
    again. Raises what `Publisher` names."""
    if place and not place.isdecimal():
        raise BadConfig(f"--to is 'zenodo:{place}'.", "Expected zenodo: for a new deposit, or zenodo:NUMBER.")
    token = token_of(settings) or os.environ.get("ZENODO_TOKEN")
    if not token:
        raise BadConfig("There is no access token.", "", "Set ZENODO_TOKEN, or use --token-file FILE.")
    parts = dict(_parts(plan))
    if plan.size > MOST_BYTES:
        raise BadInput(f"{plan.folder} has {plan.size:,} bytes.", f"Zenodo takes at most {MOST_BYTES:,}.")
    if len(parts) > MOST_FILES:
        raise BadInput(f"{plan.folder} has {len(parts)} files.", f"Zenodo takes at most {MOST_FILES}.")
    server, metadata = _Server((settings.endpoint or HOME).rstrip("/"), token), _metadata(plan)
    number = place or server.deposit_titled(metadata["title"])
    deposit = server.deposit("GET", f"/{number}") if number else server.deposit("POST", "", {"metadata": metadata})
    own = f"/{deposit.number}"
    if unwanted := sorted(set(deposit.files) - set(parts)):
        if deposit.submitted:
            raise _published(plan, place, deposit)
        given = f"The draft {deposit.number} has a file {unwanted[0]!r} that the release does not have."
        raise BadInput(given, "Expected files of this release only.", "Delete it there, then run the same command.")
    sent = 0
    for name, members in parts.items():
        with _packed(plan, name, members) as packed:
            digest = _md5(packed)
            if deposit.files.get(name) == digest:
                continue
            if deposit.submitted:
                raise _published(plan, place, deposit)
            server.put(f"{deposit.bucket}/{quote(name)}", packed, digest)
            sent += 1
    address = f"{server.home}/deposit/{deposit.number}"
    if deposit.submitted:
        return Published(address, 0, public=True, note=f"DOI {deposit.doi}. This version is there already.")
    server.deposit("PUT", own, {"metadata": metadata})
    if settings.public:
        server.deposit("POST", f"{own}/actions/publish")
    doi = f"DOI {deposit.doi}"
    note = doi if settings.public else f"{doi} is reserved; the draft waits for you to publish it."
    return Published(address, sent, public=settings.public, note=note)


def _published(plan: Plan, place: str, deposit: _Deposit) -> BadInput:
    """The error for a deposit that is published with other files."""
    if not place:
        return other_content(f"The deposit {deposit.number}", plan)
    return BadInput(f"The deposit {place} is published.", "It cannot change.", "Make a new one with --to zenodo:.")


class _Server:
    """Requests with the token in a header, never in an address; errors without it."""

    def __init__(self, home: str, token: str) -> None:
        self.home, self._headers = home, {"Authorization": f"Bearer {token}"}
        self._client = Client(secret=token, deadline=math.inf)  # files are large

    def deposit_titled(self, title: str) -> str:
        """Number of the deposit of this account with a title: the published one, else the newest; "" without one."""
        seen: dict[int, dict[str, Any]] = {}
        for page in count(1):
            phrase = json.dumps(title, ensure_ascii=False)
            query = urlencode({"q": phrase, "all_versions": "true", "size": 100, "page": page})
            rows = self._call("GET", f"{DEPOSITS}?{query}")
            try:
                new = {int(row["id"]): row for row in rows if row["id"] not in seen}
            except (KeyError, TypeError, ValueError):
                raise self._other_answer() from None
            if not new:
                break
            seen |= new
        named = [(bool(row.get("submitted")), id_) for id_, row in seen.items() if row.get("title") == title]
        return str(max(named)[1]) if named else ""

    def deposit(self, method: str, path: str, body: Any = None) -> _Deposit:
        """The deposit that a request answers with."""
        document = self._call(method, DEPOSITS + path, body)
        try:
            files = {f["filename"]: str(f["checksum"]).removeprefix("md5:") for f in document.get("files") or ()}
            doi = str((document.get("metadata") or {}).get("prereserve_doi", {}).get("doi", ""))
            bucket = urlsplit(str(document["links"]["bucket"])).geturl()
            return _Deposit(str(int(document["id"])), document["submitted"] is True, bucket, doi, files)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._other_answer() from None

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        headers = self._headers | {"Content-Type": "application/json"}
        return self._send(method, self.home + path, None if body is None else json.dumps(body), headers)

    def put(self, address: str, file: Path, digest: str) -> None:
        """Upload a file with an MD5. The token goes to the deposit's own server only."""
        if urlsplit(address)[:2] != urlsplit(self.home)[:2]:
            raise BadInput(f"{self.home} names another server for files, {urlsplit(address).netloc}.")
        with file.open("rb") as content:
            headers = self._headers | {"Content-Length": str(file.stat().st_size)}
            stored = self._send("PUT", address, content, headers)
        if not isinstance(stored, dict) or str(stored.get("checksum")).removeprefix("md5:") != digest:
            raise Unfinished(f"{self.home} did not confirm that it stored {file.name} whole.", "", CONTINUE)

    def _other_answer(self) -> Unfinished:
        return Unfinished(f"{self.home} answered with something else.", "Expected Zenodo's REST API.", CONTINUE)

    def _send(self, method: str, address: str, body: Any, headers: dict[str, str]) -> Any:
        def document(reply: Reply) -> Any:
            if reply.status in (401, 403):
                raise BadConfig(
                    f"{self.home} does not let you write (status {reply.status}).",
                    "Expected a token with deposit:write and deposit:actions.",
                    CONTINUE,
                )
            if reply.status >= 500 or reply.status == 409:
                raise Unfinished(f"{self.home} failed (status {reply.status}).", "", CONTINUE)
            if reply.status >= 300:
                words = shortened(self._client.hidden(reply.body.decode("utf-8", "replace")), 200)
                raise BadInput(f"{self.home} refused the deposit (status {reply.status}): {words}")
            try:
                return json_value(reply.body)
            except (ValueError, RecursionError):
                raise self._other_answer() from None

        try:
            return self._client.ask(method, address, document, POLICY, body=body, headers=headers)
        except Temporary as failure:
            raise Unfinished(POLICY.error(self.home, failure, "").given, "", CONTINUE) from None


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


@contextmanager
def _packed(plan: Plan, name: str, members: list[str] | None) -> Iterator[Path]:
    """A file of the deposit; a tar, whose bytes depend on its files only, while it is needed."""
    if members is None:
        yield plan.folder / name
        return
    target = plan.folder.parent / f"{TEMPORARY}{plan.folder.name}-{name}"
    try:
        with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
            for member in members:
                info = tarfile.TarInfo(member)
                info.size = (plan.folder / member).stat().st_size
                with (plan.folder / member).open("rb") as content:
                    archive.addfile(info, content)
        yield target
    finally:
        target.unlink(missing_ok=True)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _metadata(plan: Plan) -> dict[str, Any]:
    """Zenodo's metadata, from release.json."""
    entries = listed(plan.facts)
    licences = ", ".join(dict.fromkeys(entry["name"] for entry in entries))
    creator, _ = maker({"provenance": {}} | plan.facts)
    text = (
        f"{plan.facts.get('images', '?')} images of {len(plan.facts.get('classes', ()))} classes. Licences: {licences}."
    )
    more = ", ".join(name for name in ("README.md", "ATTRIBUTION.csv", "croissant.json") if name in plan.files)
    return {
        "title": f"{plan.name} {plan.version}",
        "upload_type": "dataset",
        "version": plan.version,
        "description": html.escape(f"{text} See {more}."),
        "creators": [{"name": "see README.md" if creator == NOT_STATED else creator}],
        "access_right": "open",
        "license": _licence(entries),
    }


def _licence(entries: Sequence[Entry]) -> str:
    """Zenodo's identifier of the licence of all files; "notspecified" for several, and for one that it may not list.

    It must be sent: without one, Zenodo puts a data set into the public domain [Deposit metadata, license].
    """
    codes = {"-".join(parts[0]) + f"-{parts[1]}" if (parts := deed(entry)) else "" for entry in entries}
    code = codes.pop() if len(codes) == 1 else ""
    if code == "zero-1.0":
        return "cc-zero"
    return f"cc-{code}" if re.fullmatch(r"by(-nc)?(-nd|-sa)?-(1\.0|2\.0|2\.5|3\.0|4\.0)", code) else "notspecified"
