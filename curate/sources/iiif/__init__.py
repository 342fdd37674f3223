"""Museums and archives that publish IIIF: a collection or manifest → one record a canvas, with its date and licence.

Protocol: IIIF Presentation API 3.0 (iiif.io/api/presentation/3.0: `items`, `navDate`, `rights`, `metadata` as language
maps, painting annotations) and 2.1 (iiif.io/api/presentation/2.1: `manifests`, `members`, `sequences`, `license`, pages
by `first` and `next`); read on 2026-11-27. Image addresses are those of the Image API: ID/full/SIZE/0/default.jpg
(`sizes`); servers of level 0 have fixed sizes only.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import Field

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json
from driftline.curate.core.errors import BadInput
from driftline.curate.core.outside.json_api import JsonApi, agent, text_of, text_of_html
from driftline.curate.core.outside.secrets import without_secrets
from driftline.curate.core.settings import SPEED, Contact, Positive
from driftline.curate.core.times.dates import last_second, precision_of, seconds_of
from driftline.curate.fetch.address_guard import leaves_public
from driftline.curate.metadata.column_mapping import LONGEST_RAW
from driftline.curate.metadata.columns import safe_id
from driftline.curate.metadata.schema import rebatch
from driftline.curate.sources.base import HERE, Source, Workplace, numbered
from driftline.curate.sources.iiif.changes import is_list_of_changes, published
from driftline.curate.sources.iiif.sizes import size_of

DATE = re.compile(r"(?<!\d)(1[0-9]\d\d|20\d\d)(?:-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?)?(?!\d)")
MAKERS = ("creator", "artist", "photographer", "author", "maker")  # titles of metadata entries
KINDS = {"Collection": "collection", "CollectionPage": "collection", "Manifest": "manifest"}
Url = Annotated[str, Field(pattern=r"^https?://\S+$")]


class Iiif(Source):
    """Museums that publish IIIF: all images of a collection, with the dates of their objects.

    The date is `navDate`, else the first date or year in an entry of the object's metadata. Collections, manifests and
    pages that were read are kept in DIR/downloads and not asked for again. `driftline grow` asks again for those that
    could not be read; of a list of changes, it reads what is new, and asks for new and changed manifests.
    """

    manifest: Url
    """address of a IIIF collection or manifest, version 2 or 3, or of a museum's list of changes (Change Discovery)"""
    dates: tuple[str, ...] = ("Date", "Date created", "Creation date", "Date of creation", "Dated", "Year")
    """titles of metadata entries that have the date, in any case; the first that is there counts"""
    label: str | None = None
    """title of the metadata entry that is the known label, e.g. Object type (null: no labels)"""
    size: Annotated[int, Field(ge=64, le=8192)] = 1024
    """pixels of the longer edge, where the server scales images"""
    limit: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """documents that are read at most: a collection of collections may have no end"""
    contact: Annotated[Contact, SPEED] = "https://pypi.org/project/driftline/"
    """your e-mail or web page, for the owner of the server"""
    rate: Annotated[Positive, SPEED] = 3600
    """requests an hour"""
    records_version: ClassVar[int] = 2

    def requested(self, url: str) -> str:
        """The largest size, where the server scales."""
        scaled = re.search(rf"/full/(!{self.size},{self.size}|{self.size},|,{self.size})/0/", url)
        return f"requested at no more than {self.size} pixels" if scaled else ""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """What is known of a list of changes; else none: the source is not on this machine."""
        return [path] if (path := self._changes(at)).is_file() else []

    def prepare(self, at: Workplace = HERE, again: bool = False) -> None:
        """Read a list of changes, or what is new in it."""
        path, before = self._changes(at), None
        if path.is_file():
            if not again:
                return
            before = read_json(path)
        for document in self.ledger(at).glob("*.json") if again else ():
            if read_json(document).get("fault"):
                document.unlink()
        api = self._api()
        entry = self._asked(api, self.manifest, at)["document"]
        if is_list_of_changes(entry):
            entry = entry if before is None else api.get(self.manifest).document
            write_json(path, published(entry or {}, api.get, self.manifest, before, self.limit))

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a canvas, objects in the order of the collection; a document that cannot be read is a record
        with a fault."""
        yield from rebatch(self._read(at, skip), rows)

    def ledger(self, at: Workplace = HERE) -> Path:
        """Folder of the documents that were read."""
        return at.work / "iiif" / fingerprint([self.manifest])[:16]

    def _changes(self, at: Workplace) -> Path:
        return self.ledger(at) / "changes.json"

    def _read(self, at: Workplace, skip: int) -> Iterator[pa.RecordBatch]:
        self.prepare(at)
        empty = BadInput(
            f"{self.manifest} is empty: it leads to no image.",
            "Expected a IIIF collection or manifest with images.",
            "Check collection.manifest.",
        )
        yield from numbered(self._objects(at), skip, lambda record, row: {**record, "row": row}, empty)

    def _api(self) -> JsonApi:
        headers, refused = {"User-Agent": agent(self.contact)}, leaves_public(self.manifest)
        return JsonApi("The IIIF server", self.rate, headers, refused=refused)

    def _asked(self, api: JsonApi, url: str, at: Workplace, time: str = "") -> Any:
        """A document, as it was kept. time: of its last change, if known. Raises BadInput where the first one cannot be
        read: then nothing is kept, and the same command asks again."""
        path = self.ledger(at) / f"{fingerprint([url, time] if time else url)[:24]}.json"
        if not path.is_file():
            answer = api.get(url)
            write_json(path, {"fault": answer.fault, "document": answer.document})
        document = read_json(path)
        if document["fault"] and url == self.manifest:
            path.unlink()
            raise BadInput(
                f"{url} cannot be read ({document['fault']}).",
                "Expected a IIIF collection, manifest or list of changes.",
                "Check collection.manifest, or run the same command again later.",
            )
        return document

    def _objects(self, at: Workplace) -> Iterator[list[dict[str, Any]]]:
        """The records of each manifest, and one with a fault for each document that cannot be read."""
        api, changes = self._api(), self._changes(at)
        times = dict(read_json(changes)["manifests"]) if changes.is_file() else {self.manifest: ""}
        waiting, met, read = deque(times), set(times), 0
        while waiting:
            url = waiting.popleft()
            if read == self.limit:
                yield [_bad("too_many_documents", f"{url}: collection.limit is {self.limit:,}")]
                return
            read += 1
            page = self._asked(api, url, at, times.get(url, ""))
            document, kind = page["document"], kind_of(page["document"])
            if page["fault"] or kind == "":
                yield [_bad(page["fault"] or "not_iiif", f"{url}: {json.dumps(document)}")]
            elif kind == "manifest":
                yield self._canvases(document, url)
            else:
                urls, faults = members(document)
                yield [_bad("bad_member", f"{url}: {text}") for text in faults]
                fresh = [u for u in dict.fromkeys(urls) if u not in met]
                met.update(fresh)
                waiting.extend(fresh)

    def _canvases(self, manifest: Mapping[str, Any], url: str) -> list[dict[str, Any]]:
        entries = metadata_of(manifest)
        records = []
        for canvas in canvases_of(manifest):
            id_ = _id(canvas) if isinstance(canvas, Mapping) else None
            image = None if id_ is None else image_of(canvas, self.size)
            if id_ is None or image is None:
                records.append(_bad("no_image", f"{url}: {json.dumps(canvas)}"))
                continue
            own = {**entries, **metadata_of(canvas)}
            when = self._date(canvas, manifest, own)
            label = None if self.label is None else own.get(self.label.casefold())
            title = words(manifest.get("label"))
            records.append(
                {
                    "id": safe_id(id_),
                    "url": image,
                    "uploaded": None if when is None else when[0],
                    "until": None if when is None else last_second(when[0], when[2]),
                    "nickname": next((own[key] for key in MAKERS if key in own), None),
                    "title": ", ".join(t for t in (title, words(canvas.get("label"))) if t) or None,
                    "description": words(manifest.get("summary", manifest.get("description"))),
                    "licence": words(_required(manifest)),
                    "licence_url": text_of(manifest.get("rights")) or text_of(manifest.get("license")),
                    "page_url": _page(manifest) or without_secrets(url),
                    "media": "photo",
                    "label": label,
                    "extra": None if when is None else json.dumps({"date_from": when[1], "date_precision": when[2]}),
                }
            )
        return records or [_bad("no_image", f"{url}: a manifest without canvases")]

    def _date(
        self, canvas: Mapping[str, Any], manifest: Mapping[str, Any], entries: Mapping[str, str]
    ) -> tuple[int, str, str] | None:
        """Seconds UTC, where the date was found, and its precision."""
        for holder in (canvas, manifest):
            try:
                return seconds_of(str(holder["navDate"])), "navDate", "second"
            except (KeyError, ValueError, OverflowError):
                continue
        for title in self.dates:
            if match := DATE.search(entries.get(title.casefold(), "")):
                text = "-".join(part for part in match.groups() if part)
                try:
                    return seconds_of(text), title, precision_of(text)
                except ValueError:  # 30 February
                    continue
        return None


def kind_of(document: Any) -> str:
    """ "collection" (also a page of one), "manifest", or "" for anything else."""
    if not isinstance(document, Mapping):
        return ""
    kind = str(document.get("type", document.get("@type", ""))).rpartition(":")[2]
    return {"Collection": "collection", "CollectionPage": "collection", "Layer": "", "Manifest": "manifest"}.get(
        kind, ""
    )


def members(collection: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Addresses of the manifests, collections and further pages of a collection; texts of entries that name none."""
    entries: list[Any] = []
    for key in ("items", "collections", "manifests", "members"):
        value = collection.get(key, [])
        entries += value if isinstance(value, list) else [value]
    urls, faults = [], []
    for entry in entries:
        url = _id(entry) if isinstance(entry, Mapping) else entry
        if isinstance(url, str) and is_address(url):
            urls.append(url)
        else:
            faults.append(json.dumps(entry))
    for key in ("first", "next"):
        page = collection.get(key)
        page = _id(page) if isinstance(page, Mapping) else page
        if isinstance(page, str) and is_address(page):
            urls.append(page)
    return urls, faults


def is_address(url: str) -> bool:
    """Whether a text is an address of the web."""
    try:
        return urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname) and len(url) <= 4000
    except ValueError:
        return False


def canvases_of(manifest: Mapping[str, Any]) -> list[Any]:
    """The canvases: `items` in version 3; in version 2 those of the first sequence."""
    if isinstance(manifest.get("items"), list):
        return list(manifest["items"])
    sequences = manifest.get("sequences")
    first = sequences[0] if isinstance(sequences, list) and sequences else {}
    canvases = first.get("canvases") if isinstance(first, Mapping) else None
    return list(canvases) if isinstance(canvases, list) else []


def image_of(canvas: Mapping[str, Any], size: int) -> str | None:
    """Address of the image that is painted on a canvas, at most `size` pixels long if its server scales."""
    for body in bodies(canvas):
        for service in _listed(body.get("service")):
            base = _id(service) if isinstance(service, Mapping) else None
            if base and is_address(base) and (scaled := size_of(service, body, size)):
                return f"{base.rstrip('/')}/full/{scaled}/0/default.jpg"
        url = _id(body)
        if url is not None and is_address(url):
            return url
    return None


def bodies(canvas: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The images of a canvas: bodies of painting annotations in version 3, resources in version 2; of a choice, the
    first."""
    annotations = [
        a for page in _listed(canvas.get("items")) if isinstance(page, Mapping) for a in _listed(page.get("items"))
    ]
    annotations += _listed(canvas.get("images"))
    for annotation in annotations:
        if not isinstance(annotation, Mapping):
            continue
        for body in _listed(annotation.get("body", annotation.get("resource"))):
            if isinstance(body, Mapping) and str(body.get("type", body.get("@type"))).endswith("Choice"):
                body = next(iter(_listed(body.get("items", body.get("default")))), None)
            if isinstance(body, Mapping) and str(body.get("type", body.get("@type"))).endswith("Image"):
                yield body


def metadata_of(resource: Mapping[str, Any]) -> dict[str, str]:
    """Title of each metadata entry, in lower case → its text."""
    texts: dict[str, str] = {}
    for entry in _listed(resource.get("metadata")):
        if isinstance(entry, Mapping):
            title, value = words(entry.get("label")), words(entry.get("value"))
            if title and value:
                texts.setdefault(title.casefold(), value)
    return texts


def words(value: Any) -> str | None:
    """A text of version 2 or 3 without HTML: a string, {"@value"}, a list, or a language map, English first.

    >>> words({"de": ["Haus"], "en": ["<b>House</b>"]}), words(["a", {"@value": "b"}]), words(7)
    ('House', 'a; b', None)
    """
    if isinstance(value, Mapping):
        if "@value" in value:
            return words(value["@value"])
        keys = [key for key in ("en", "none", "@none", *value) if key in value]
        return words(value[keys[0]]) if keys else None
    if isinstance(value, list):
        return "; ".join(text for part in value if not isinstance(part, list) and (text := words(part))) or None
    if not isinstance(value, str):
        return None
    return text_of_html(value)


def _required(manifest: Mapping[str, Any]) -> Any:
    statement = manifest.get("requiredStatement")
    return statement.get("value") if isinstance(statement, Mapping) else manifest.get("attribution")


def _page(manifest: Mapping[str, Any]) -> str | None:
    """The object's page for people."""
    for key in ("homepage", "related"):
        for entry in _listed(manifest.get(key)):
            url = _id(entry) if isinstance(entry, Mapping) else entry
            if isinstance(url, str) and is_address(url):
                return url
    return None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _id(resource: Mapping[str, Any]) -> str | None:
    return text_of(resource.get("id")) or text_of(resource.get("@id"))


def _bad(fault: str, text: str) -> dict[str, Any]:
    return {"fault": fault, "raw": without_secrets(text)[:LONGEST_RAW]}
