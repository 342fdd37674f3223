"""A museum's list of changes (IIIF Change Discovery 1.0): `driftline grow` asks for new and changed manifests only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.document_server import DocumentServer
from support.stand_ins import check_shape, example

from driftline.curate.core.errors import BadInput
from driftline.curate.core.outside.json_api import Answer
from driftline.curate.core.run_log import RunLog
from driftline.curate.sources.iiif.changes import published
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.stage import Context

HOME = "http://museum"
CONTEXT = "http://iiif.io/api/discovery/1/context.json"
Change = tuple[str, str, str | None]  # type, manifest, year


def activity(change: Change, home: str = HOME) -> dict[str, Any]:
    kind, name, year = change
    whole: dict[str, Any] = {"type": kind, "object": {"id": f"{home}/{name}", "type": "Manifest"}}
    if kind == "Move":
        old, new = name.split(">")
        whole |= {
            "object": {"id": f"{home}/{old}", "type": "Manifest"}, "target": {"id": f"{home}/{new}", "type": "Manifest"}
        }  # fmt: skip
    elif kind in ("Add", "Remove"):
        whole |= {"target" if kind == "Add" else "origin": {"id": f"{home}/changes", "type": "OrderedCollection"}}
    elif kind == "Refresh":
        whole.pop("object")
    time = {} if year is None else {"startTime" if kind == "Refresh" else "endTime": f"{year}-01-01T00:00:00Z"}
    return whole | time


def pages(changes: Sequence[Change], home: str = HOME, size: int = 2) -> dict[str, Any]:
    """Path → document of a list with `size` activities a page."""
    parts = [changes[i : i + size] for i in range(0, len(changes), size)]
    documents: dict[str, Any] = {
        f"/page{i}": {
            "@context": CONTEXT,
            "id": f"{home}/page{i}",
            "type": "OrderedCollectionPage",
            "partOf": {"id": f"{home}/changes", "type": "OrderedCollection"},
            "startIndex": i * size,
            "orderedItems": [activity(change, home) for change in part],
            **({"prev": {"id": f"{home}/page{i - 1}", "type": "OrderedCollectionPage"}} if i else {}),
        }
        for i, part in enumerate(parts)
    }
    last = {"id": f"{home}/page{len(parts) - 1}", "type": "OrderedCollectionPage"}
    entry = {"@context": CONTEXT, "id": f"{home}/changes", "type": "OrderedCollection", "last": last}
    return documents | {"/changes": entry | {"totalItems": len(changes)}}


def test_the_lists_of_these_tests_are_as_the_document_says() -> None:
    """iiif.io/api/discovery/1.0, sections 2.1, 3.1 and 3.2, read on 2026-11-27."""
    documents = pages([("Create", "a", "2001"), ("Update", "b", "2002"), ("Delete", "a", "2003")])
    check_shape(example("iiif", "list of changes"), documents["/changes"])
    check_shape(example("iiif", "page of changes"), documents["/page1"])


def read(changes: Sequence[Change], known: Any = None) -> tuple[dict[str, Any], list[str]]:
    """What is published, and the pages that were asked for."""
    documents, asked = pages(changes), []

    def ask(url: str) -> Answer:
        asked.append(url.removeprefix(HOME))
        return Answer(documents.get(asked[-1]), "" if asked[-1] in documents else "http_404")

    return published(documents["/changes"], ask, f"{HOME}/changes", known, 100), asked


def names(found: dict[str, Any]) -> list[str]:
    return [url.removeprefix(f"{HOME}/") for url, _ in found["manifests"]]


OTHER = """
embed: {model: driftline-photo-world}
retrieve: {per_class: 9, background_share: 0, concepts: [{name: car, prompts: [a car]}]}
"""
HISTORY: list[Change] = [
    ("Create", "a", "2001"), ("Create", "b", "2002"), ("Add", "c", "2003"), ("Update", "a", "2004"),
    ("Delete", "b", "2005"), ("Create", "d", "2006"), ("Move", "c>e", "2007"), ("Create", "b", "2008"),
    ("Remove", "d", "2009"), ("Update", "a", "2010"),
]  # fmt: skip


def test_a_list_is_walked_to_its_start_and_then_only_to_what_is_known() -> None:
    found, asked = read(HISTORY)
    assert names(found) == ["a", "e", "b"]
    assert (found["newest"][:4], dict(found["manifests"])[f"{HOME}/a"][:4]) == ("2010", "2010")
    assert asked == ["/page4", "/page3", "/page2", "/page1", "/page0"]
    later: list[Change] = [*HISTORY, ("Create", "f", "2011")]
    again, asked = read(later, found)
    assert names(again) == ["a", "e", "b", "f"]
    assert asked == ["/page5", "/page4"]


@pytest.mark.parametrize("cut", range(1, len(HISTORY)))
def test_read_in_two_steps_it_is_what_it_is_at_once(cut: int) -> None:
    known, _ = read(HISTORY[:cut])
    assert read(HISTORY, known)[0] == read(HISTORY)[0]


def test_behind_a_refresh_only_deletions_count() -> None:
    known, _ = read([("Create", "a", "2001"), ("Create", "b", "2002")])
    changes: list[Change] = [
        ("Create", "a", "2001"), ("Create", "b", "2002"), ("Delete", "a", "2003"), ("Create", "lost", "2004"),
        ("Refresh", "", "2005"), ("Update", "b", "2006"),
    ]  # fmt: skip
    assert names(read(changes, known)[0]) == ["b"]
    assert read(changes)[1] == ["/page2"], "a first reader stops there"


def test_a_list_without_times_is_what_exists() -> None:
    known, _ = read([("Update", "a", None), ("Update", "b", None)])
    assert names(read([("Update", "b", None), ("Update", "c", None)], known)[0]) == ["b", "c"]


def test_other_lists_other_things_and_no_pages() -> None:
    entry = pages([])["/changes"]
    strange = [
        activity(("Create", "a", "2001")) | {"object": {"id": f"{HOME}/x", "type": "Collection"}},
        activity(("Remove", "a", "2001")) | {"origin": {"id": f"{HOME}/other"}},
        activity(("Create", "a", "someday")), 7, {"type": "Create", "object": []},
    ]  # fmt: skip
    answers = {f"{HOME}/page-1": Answer({"orderedItems": strange})}
    assert names(published(entry, answers.__getitem__, f"{HOME}/changes", None, 9)) == ["a"]
    with pytest.raises(BadInput, match=r"page-1 is no page of the list of changes .* \(http_404\)"):
        published(entry, lambda url: Answer(None, "http_404"), f"{HOME}/changes", None, 9)


@pytest.fixture
def museum() -> Iterator[DocumentServer]:
    server = DocumentServer()
    yield server
    server.close()


def test_grow_asks_for_what_is_new_only(museum: DocumentServer, tmp_path: Path) -> None:
    def publish(changes: list[Change]) -> None:
        museum.documents |= pages(changes, museum.address)
        for name in ("a", "b", "c"):
            body = {"id": f"{museum.address}/{name}.jpg", "type": "Image"}
            canvas = {"id": f"{museum.address}/canvas/{name}", "items": [{"items": [{"body": body}]}]}
            museum.documents[f"/{name}"] = {"type": "Manifest", "navDate": "2001-01-01T00:00:00Z", "items": [canvas]}

    run_file = f"collection: {{source: iiif, manifest: '{museum.address}/changes', rate: 36000000}}\n{OTHER}"
    (tmp_path / "driftline.yaml").write_text(run_file)
    context = Context(tmp_path, load(tmp_path / "driftline.yaml"), RunLog(quiet=True))
    first: list[Change] = [("Create", "a", "2001"), ("Create", "b", "2002"), ("Update", "a", "2003")]
    publish(first)
    assert grow(context, until="ingest")["rows"]["new"] == 2
    asked = museum.asked.copy()
    assert grow(context, until="ingest")["stages"][0]["state"] == "done"
    assert museum.asked - asked == {"/changes": 1, "/page1": 1, "/page0": 1}
    publish([*first, ("Create", "c", "2004"), ("Delete", "a", "2005")])
    asked = museum.asked.copy()
    assert grow(context, until="ingest")["rows"] == {"new": 1, "gone": 1, "kept": 0}
    assert museum.asked - asked == {"/changes": 1, "/page2": 1, "/page1": 1, "/page0": 1, "/c": 1}
    table = pq.read_table(tmp_path / "stages" / "01_ingest" / "table" / "part-00000.parquet")
    assert [url[-5:] for url in table["url"].to_pylist()] == ["b.jpg", "c.jpg"]
