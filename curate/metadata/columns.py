"""The columns of the metadata table and its ids, without pyarrow: settings are checked by them (see `schema`)."""

from __future__ import annotations

import hashlib
import re

from driftline.curate.core.outside.names import RESERVED, one_form
from driftline.curate.core.outside.secrets import without_secrets

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
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", shown).strip("-")[:80]
    return f"{slug or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
