"""Which manifests a museum publishes, by its list of changes, which is read backwards until the newest change known.

Protocol: IIIF Change Discovery API 1.0 (iiif.io/api/discovery/1.0, sections 2 and 3.5): an OrderedCollection leads to
its last page, each page to the one before; activities are in order of time. Level 0 (no times), 1 (times) and 2
(Create, Delete, Move, Add, Remove, Refresh).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from driftline.curate.core.errors import BadInput
from driftline.curate.core.outside.json_api import Answer
from driftline.curate.core.times.dates import seconds_of

GONE, HERE = ("Delete", "Remove"), ("Create", "Update", "Add")


def is_list_of_changes(document: Any) -> bool:
    """Whether a document is the entry of such a list."""
    return isinstance(document, Mapping) and document.get("type") == "OrderedCollection"


def published(
    entry: Mapping[str, Any],
    ask: Callable[[str], Answer],
    address: str,
    before: Mapping[str, Any] | None,
    limit: int,
) -> dict[str, Any]:
    """{"newest": time of the newest change, "manifests": [[address, time of its last change], …]}, oldest ones first.

    entry: the OrderedCollection at `address`. before: what was last returned. limit: pages at most. Raises BadInput,
    naming the page.
    """
    newest = None if before is None else before["newest"]
    seen, only_gone = newest, False
    gone: set[str] = set()  # the last that happened to them
    again: set[str] = set()  # were gone, and came back
    here: dict[str, str] = {}  # the newest first
    for kind, url, time in _backwards(entry, ask, address, limit):
        if time is not None and seen is not None and seconds_of(time) < seconds_of(seen):
            break
        if time is not None and (newest is None or seconds_of(time) > seconds_of(newest)):
            newest = time
        if kind == "Refresh":
            if before is None:
                break
            only_gone = True
        elif kind in GONE:
            (again if url in here else gone).add(url)
        elif not (only_gone or url in gone or url in again):
            here[url] = here.pop(url, time or "")  # its place is that of its first activity
    manifests = {} if before is None else dict(before["manifests"])
    if newest is None:  # level 0: the list is what exists
        manifests = {url: time for url, time in manifests.items() if url in here}
    for url in gone | again:
        manifests.pop(url, None)
    manifests |= {url: here[url] for url in reversed(here)}
    return {"newest": newest, "manifests": list(map(list, manifests.items()))}


def _backwards(
    entry: Mapping[str, Any], ask: Callable[[str], Answer], address: str, limit: int
) -> Iterator[tuple[str, str, str | None]]:
    """(type, manifest, time) of all activities on manifests, the newest first; a Move is a Create and a Delete."""
    url, met = _id(entry.get("last")), set[str]()
    while url and url not in met:
        if len(met) == limit:
            raise BadInput(f"{address} has more than {limit:,} pages.", "", "Raise collection.limit.")
        met.add(url)
        answer = ask(url)
        page = answer.document if isinstance(answer.document, Mapping) else {}
        items = page.get("orderedItems")
        if not isinstance(items, list):
            raise BadInput(
                f"{url} is no page of the list of changes {address} ({answer.fault or 'it has no orderedItems'}).",
                "Expected an OrderedCollectionPage of IIIF Change Discovery 1.0.",
                "Check collection.manifest, or tell the museum.",
            )
        for activity in reversed(items):
            if isinstance(activity, Mapping):
                yield from _changes(activity, address)
        url = _id(page.get("prev"))


def _changes(activity: Mapping[str, Any], address: str) -> Iterator[tuple[str, str, str | None]]:
    kind, time = activity.get("type"), activity.get("endTime", activity.get("startTime"))
    try:
        seconds_of(str(time))
    except (ValueError, OverflowError):
        time = None
    if kind == "Refresh":
        yield "Refresh", "", time
        return
    if kind == "Move":
        changes = [("Create", activity.get("target")), ("Delete", activity.get("object"))]
    elif {"Add": _id(activity.get("target")), "Remove": _id(activity.get("origin"))}.get(str(kind), address) == address:
        changes = [(str(kind), activity.get("object"))]
    else:  # of another list
        return
    for what, resource in changes:
        url = _id(resource)
        if isinstance(resource, Mapping) and url and resource.get("type") == "Manifest" and what in (*GONE, *HERE):
            yield what, url, time


def _id(resource: Any) -> str:
    name = resource.get("id") if isinstance(resource, Mapping) else None
    return name if isinstance(name, str) else ""
