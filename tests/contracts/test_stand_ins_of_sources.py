"""Each stand-in of a live source against the document that it names: recorded shapes, and each rule.

A rule is one sentence of the document. A stand-in that breaks one rule must fail here, so that every rule has a test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from support.flickr_server import FlickrServer, photo
from support.stand_ins import check_shape, example
from support.wikimedia_server import STEPS, WikimediaServer, file, iso
from support.wikimedia_server import thumbnails as thumbnail_host

AGENT = {"User-Agent": "contract/1 (me@example.org)"}


def ask(address: str, headers: dict[str, str] = AGENT, **fields: Any) -> tuple[int, Any]:
    """Status and document (or text) of a GET."""
    url = f"{address}?{urlencode(fields)}" if fields else address
    try:
        with urlopen(Request(url, headers=headers), timeout=10) as answer:
            status, body = answer.status, answer.read()
    except HTTPError as refusal:
        status, body = refusal.code, refusal.read()
    with suppress(ValueError):
        return status, json.loads(body)
    return status, body.decode()


def flickr(broken: str, cleanup: ExitStack) -> None:
    """flickr.com/services/api, read on 2026-11-27."""
    photos = [photo(i, 100 + i, licence=(1, 4, 7)[i % 3]) for i in range(600)]
    photos += [photo(900 + i, 50_000 + i // 10, licence=2) for i in range(4600)]
    photos[3]["media"] = "video"
    server = FlickrServer(photos, broken=broken)
    cleanup.callback(server.close)

    def call(method: str = "flickr.photos.search", **fields: Any) -> Any:
        same = {"method": method, "api_key": "secret-key", "format": "json", "nojsoncallback": 1}
        status, document = ask(server.address, **{k: v for k, v in (same | fields).items() if v is not None})
        assert status == 200
        return document

    def ids(**fields: Any) -> list[int]:
        return [int(p["id"]) - 5_000_000_000 for p in call(**fields)["photos"]["photo"]]

    early = {"max_upload_date": 699, "min_upload_date": 100, "unknown": "argument"}
    first = call(**early)
    check_shape(example("flickr", "search"), first)
    check_shape(example("flickr", "licences"), call("flickr.photos.licenses.getInfo"))
    check_shape(example("flickr", "refusal"), call(api_key="another"))
    assert (call(api_key="another")["code"], call(api_key=None)["code"], call("flickr.x")["code"]) == (100, 100, 112)
    assert call()["code"] == 3
    assert len(first["photos"]["photo"]) == first["photos"]["perpage"] == 100
    assert (first["photos"]["total"], first["photos"]["pages"], first["photos"]["page"]) == (600, 6, 1)
    assert len(ids(**early, per_page=10_000)) == 500
    assert ids(**early, per_page=3) == [599, 598, 597], "the latest first"
    assert ids(**early, per_page=3, page=2, sort="date-posted-asc") == [3, 4, 5]
    assert ids(min_upload_date=102, max_upload_date=104, sort="date-posted-asc") == [2, 3, 4]
    assert ids(min_upload_date=102, max_upload_date=104, sort="date-posted-asc", media="photos") == [2, 4]
    assert ids(min_upload_date=100, max_upload_date=105, license="1,7", sort="date-posted-asc") == [0, 2, 3, 5]
    assert call(license="2")["code"] == 3
    assert call(min_upload_date=50_000, per_page=500)["photos"]["pages"] == 8, "4,000 of 4,600"
    assert set(first["photos"]["photo"][0]) == set(example("flickr", "search")["photos"]["photo"][0])
    more = call(**early, extras="license,url_m,no_extra")["photos"]["photo"][0]
    assert set(more) - set(first["photos"]["photo"][0]) == {"license", "url_m"}
    assert str(call(format=None)).startswith("<?xml")
    assert str(call(nojsoncallback=None)).startswith("jsonFlickrApi(")


def wikimedia(broken: str, cleanup: ExitStack) -> None:
    """mediawiki.org/wiki/API:Allimages and the others that the stand-in names, read on 2026-11-27."""
    files = [file(i, 1000 + i) for i in range(600)] + [file(700, 9000, [(8000 - i, "Ada") for i in range(600)])]
    server = WikimediaServer(files, page=10_000, broken=broken)
    cleanup.callback(server.close)
    same = {"action": "query", "format": "json", "formatversion": 2, "prop": "imageinfo"}

    def call(**fields: Any) -> Any:
        status, document = ask(server.address, **{k: v for k, v in (same | fields).items() if v is not None})
        assert status == 200
        return document

    def listing(first: int = 0, last: int = 7999, **fields: Any) -> Any:
        names = {"generator": "allimages", "gaisort": "timestamp", "gaistart": iso(first), "gaiend": iso(last)}
        return call(**(names | fields))

    assert ask(server.address, {"User-Agent": "python"}, **same)[0] == 403
    page = listing(gailimit=2, iiprop="timestamp|user|url|size|mime|extmetadata")
    check_shape(example("wikimedia", "listing"), page)
    assert len(listing()["query"]["pages"]) == 10
    assert len(listing(gailimit=2000)["query"]["pages"]) == 500
    assert "badparams" in str(listing(gaisort="name"))
    between = listing(1002, 1003)["query"]["pages"]
    assert sorted(p["title"] for p in between) == ["File:Bicycle 2.jpg", "File:Bicycle 3.jpg"]
    assert [p["pageid"] for p in between] == sorted(p["pageid"] for p in between)
    second = listing(gailimit=2, **page["continue"])
    assert {p["title"] for p in second["query"]["pages"]} == {"File:Bicycle 2.jpg", "File:Bicycle 3.jpg"}
    assert second["batchcomplete"] is True
    assert "continue" not in listing(1000, 1003)
    assert listing(gailimit=2, gaicontinue=page["continue"]["gaicontinue"])["error"]["code"] == "badcontinue"
    many = call(titles="File:Bicycle 700.jpg")["query"]["pages"][0]["imageinfo"]
    assert [sorted(version) for version in many] == [["timestamp", "user"]]
    assert len(call(titles="File:Bicycle 700.jpg", iilimit=5000)["query"]["pages"][0]["imageinfo"]) == 500
    assert isinstance(listing(formatversion=None)["query"]["pages"], dict)
    assert "Unrecognized parameter" in str(listing(limit=9)["warnings"])
    assert call(titles="|".join(map(str, range(51))))["error"]["code"] == "toomanyvalues"
    server.lag = 9
    check_shape(example("wikimedia", "error"), listing(maxlag=5))
    assert len(listing()["query"]["pages"]) == 10
    assert str(listing(format=None)).startswith("<!DOCTYPE")


def thumbnails(broken: str, cleanup: ExitStack) -> None:
    """mediawiki.org/wiki/Common_thumbnail_sizes and Phabricator T414805, read on 2026-11-27."""
    host = cleanup.enter_context(thumbnail_host())
    if broken:
        host.steps, host.anybody = (tuple(range(4000)), False) if "width" in broken else (STEPS, True)
    address = f"{host.url}/thumb/a/ab/{{0}}px-A.jpg"
    refusals = [ask(address.format(width)) for width in (19, 1024, 1281, 3841)]
    assert {status for status, _ in refusals} == {400}
    assert all("Use thumbnail steps" in text for _, text in refusals)
    with pytest.raises(UnicodeDecodeError):  # a JPEG
        ask(address.format(1280))
    assert ask(address.format(1280), {"User-Agent": "python"})[0] == 400


THUMBNAILS = ("a width that is no step is refused", "a program without a contact is refused")
CONTRACTS: dict[Callable[[str, ExitStack], None], tuple[str, ...]] = {
    flickr: FlickrServer.RULES,
    wikimedia: WikimediaServer.RULES,
    thumbnails: THUMBNAILS,
}
RULES = [(contract, rule) for contract, rules in CONTRACTS.items() for rule in rules]


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_a_stand_in_is_as_its_document_says(contract: Callable[[str, ExitStack], None], cleanup: ExitStack) -> None:
    contract("", cleanup)


@pytest.mark.parametrize(("contract", "rule"), RULES, ids=lambda value: getattr(value, "__name__", value))
def test_a_stand_in_that_breaks_a_rule_fails(
    contract: Callable[[str, ExitStack], None], rule: str, cleanup: ExitStack
) -> None:
    with pytest.raises((AssertionError, KeyError, TypeError, UnicodeDecodeError, pytest.fail.Exception)):
        contract(rule, cleanup)
