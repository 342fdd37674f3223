"""What fetch is asked to do, and what became of one row."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from curate.images.checks import ImageRules

# Misses that another try may mend; all others are final.
MAY_PASS = {"timeout", "connection_failed", "truncated_body", "http_408", "http_429", "http_5xx", "no_result"}
# What a server may say in X-Robots-Tag to keep a picture out of collections (the list of img2dataset).
OPT_OUT = ("noai", "noimageai", "noindex", "noimageindex")
# Flickr answers for a deleted photo with a redirect to a real picture of these names [openimages/dataset#9].
PLACEHOLDER_URL = r"/photo_(un|not_)?available[^/]*\.(png|gif|jpe?g)$"
MIRRORS = {
    "multimedia-commons": "https://multimedia-commons.s3-us-west-2.amazonaws.com/data/images/{first}/{second}/{hash}.jpg"
}
LONGEST_WAIT = 120.0  # seconds: a server that asks for more is asked again in a later round all the same


@dataclass(frozen=True)
class FetchRules:
    """way: "native" (asyncio) or "img2dataset". shard_size: rows a shard, fixed for the whole run. stop_after: the
    smallest prefix in row order that holds this many images is kept. timeout: seconds for each read. deadline:
    seconds for one image in all. retries: further rounds for misses that may pass. backoff: seconds before the first
    further round, doubling; a longer Retry-After is obeyed. threads: connections at a time. per_host: of them to one
    host. rate: requests a second to one host (None: no limit). private: addresses of private networks are allowed.
    mirror: where an image is looked for when its own address gives none: a name of MIRRORS or a URL with {hash},
    {first}, {second}. placeholders: SHA-256 of pictures that stand for "no picture"."""

    way: Literal["native", "img2dataset"] = "native"
    shard_size: int = 1000
    stop_after: int | None = None
    timeout: float = 10.0
    deadline: float = 60.0
    retries: int = 2
    backoff: float = 1.0
    threads: int = 16
    per_host: int = 16
    rate: float | None = None
    private: bool = False
    mirror: str | None = None
    placeholders: tuple[str, ...] = ()
    images: ImageRules = field(default_factory=ImageRules)


@dataclass(frozen=True)
class Got:
    """The outcome of one try: bytes, or a fault with detail. retry_after: seconds that the server asked for."""

    data: bytes | None
    fault: str | None = None
    detail: str | None = None
    retry_after: float = 0.0


def yfcc_hash(url: str) -> str:
    """The key of a photo in the YFCC100M copy on S3: MD5 of its address, each byte without its leading zero.

    (The ReadMe's "MD5 of the identifier" is wrong; this matches 1,000 of 1,000 real lines.)

    >>> yfcc_hash("http://farm9.staticflickr.com/8209/8183226351_0a939ba06a.jpg")
    '5a8f3976f619af2a2c3851f3a80a88'
    """
    return "".join(f"{byte:x}" for byte in hashlib.md5(url.encode(), usedforsecurity=False).digest())


def mirror_url(template: str, url: str) -> str:
    """Where `template` (a name of MIRRORS or a URL) keeps the image of `url`.

    >>> mirror_url("http://127.0.0.1/{first}/{second}/{hash}.jpg", "http://farm9.staticflickr.com/8209/8183226351_0a939ba06a.jpg")
    'http://127.0.0.1/5a8/f39/5a8f3976f619af2a2c3851f3a80a88.jpg'
    """
    key = yfcc_hash(url)
    return MIRRORS.get(template, template).format(hash=key, first=key[:3], second=key[3:6])


def opted_out(values: list[str], agent: str = "driftline") -> bool:
    """X-Robots-Tag headers → does the owner refuse? `noai`, or `driftline: noai`; other agents' lines do not count.

    >>> opted_out(["noai"]), opted_out(["otherbot: noai"]), opted_out(["driftline: index, noai"]), opted_out(["all"])
    (True, False, True, False)
    """
    for value in values:
        who, colon, words = value.rpartition(":")
        if colon and who.strip().lower() != agent:
            continue
        if any(word.strip().lower() in OPT_OUT for word in words.split(",")):
            return True
    return False


def seconds_after(value: str | None) -> float:
    """Retry-After: seconds or a date → seconds from now, at most LONGEST_WAIT; 0 where there is none.

    >>> seconds_after("3"), seconds_after("9999"), seconds_after("soon"), seconds_after(None)
    (3.0, 120.0, 0.0, 0.0)
    """
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    if value is None:
        return 0.0
    try:
        wait = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        wait = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return min(max(wait, 0.0), LONGEST_WAIT) if wait == wait else 0.0
