"""The columns of the metadata table and its ids, without pyarrow: settings are checked by them (see `schema`)."""

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from driftline.curate.core.errors import did_you_mean, without_secrets
from driftline.curate.foreign.names import RESERVED, one_form

# name → type as pyarrow calls it
COLUMNS = {
    "id": "string",
    "row": "int64",
    "url": "string",
    "path": "string",
    "uploaded": "int64",
    "until": "int64",
    "taken": "int64",
    "user": "string",
    "nickname": "string",
    "title": "string",
    "description": "string",
    "tags": "string",
    "camera": "string",
    "licence": "string",
    "licence_url": "string",
    "page_url": "string",
    "media": "string",
    "longitude": "float64",
    "latitude": "float64",
    "label": "string",
    "caption": "string",
    "extra": "string",
}

TimeUnit = Literal["auto", "year", "month", "day", "excel", "s", "ms", "us", "ns"]
NOT_IN_IDS, SLUG = "[^A-Za-z0-9_-]+", 80  # what becomes a hyphen, and characters that are kept
DEGREES = {"longitude": 180.0, "latitude": 90.0}
FLICKR_BEGAN = 1_075_593_600  # 1 February 2004: an earlier upload time of Flickr is no date
CC = "https://creativecommons.org/licenses/"
FLICKR_LICENCES = (  # names and addresses of 0 … 10 [flickr.photos.licenses.getInfo]
    ("All Rights Reserved", None),
    ("Attribution-NonCommercial-ShareAlike License", f"{CC}by-nc-sa/2.0/"),
    ("Attribution-NonCommercial License", f"{CC}by-nc/2.0/"),
    ("Attribution-NonCommercial-NoDerivs License", f"{CC}by-nc-nd/2.0/"),
    ("Attribution License", f"{CC}by/2.0/"),
    ("Attribution-ShareAlike License", f"{CC}by-sa/2.0/"),
    ("Attribution-NoDerivs License", f"{CC}by-nd/2.0/"),
    ("No known copyright restrictions", "https://www.flickr.com/commons/usage/"),
    ("United States Government Work", "http://www.usa.gov/copyright.shtml"),
    ("Public Domain Dedication (CC0)", "https://creativecommons.org/publicdomain/zero/1.0/"),
    ("Public Domain Mark", "https://creativecommons.org/publicdomain/mark/1.0/"),
)
LONGEST_RAW = 2000  # characters of a faulty row that are kept
NOT_FROM_TABLE = {"row", "media"}
ID = re.compile(r"[A-Za-z0-9_-]{1,90}")


def safe_id(text: str) -> str:
    """A text as an id of the contract; a text that must be changed gets a short hash, so that it stays unique: also a
    name that Windows reserves, since files are called by their id. Both Unicode forms of a text are one id.

    >>> safe_id("6985418911"), safe_id("image-7.jpg"), safe_id("con")
    ('6985418911', 'image-7-jpg-fe58a2af', 'con-1143da2b')
    """
    if ID.fullmatch(text) and not RESERVED.fullmatch(text):
        return text
    text = one_form(text)
    return _hashed(text, text)


def id_of_address(url: str) -> str:
    """`safe_id` of an address; a token in its query is in the hash alone, so that photos which differ by it are two.

    >>> id_of_address("http://h/a.jpg"), id_of_address("http://h/a.jpg?token=b")
    ('http-h-a-jpg-85e325b3', 'http-h-a-jpg-baa8208f')
    """
    shown = without_secrets(url)
    return safe_id(url) if shown == url else _hashed(shown, one_form(url))


def _hashed(shown: str, text: str) -> str:
    return hashed(re.sub(NOT_IN_IDS, "-", shown).strip("-")[:SLUG], text)


def hashed(slug: str, text: str) -> str:
    """An id of the readable part of a text, which `NOT_IN_IDS` and `SLUG` cut, and of the hash of the whole."""
    return f"{slug or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def check_columns(columns: dict[str, str], images: Sequence[str]) -> dict[str, str]:
    """The columns as given. Raises ValueError unless they name `uploaded` and one of `images`, and nothing unknown."""
    allowed = [*(name for name in COLUMNS if name not in NOT_FROM_TABLE), *(i for i in images if i == "image")]
    for name in columns:
        if name not in allowed:
            parts = (f"There is no column {name!r}.", did_you_mean(name, allowed), f"Available: {', '.join(allowed)}")
            raise ValueError(" ".join(filter(None, parts)))
    if "uploaded" not in columns or not set(images) & set(columns):
        raise ValueError(
            f"Expected at least uploaded and one of {', '.join(images)}, as in "
            "{path: filename, uploaded: year, label: species}"
        )
    return columns


def printable(text: str) -> str:
    """At most LONGEST_RAW characters of the text, with \\xNN for each byte that was not UTF-8 (also in a `repr`)."""
    clean = text[:LONGEST_RAW].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return re.sub(r"\\udc([0-9a-f]{2})", r"\\x\1", clean)[:LONGEST_RAW]
