"""Settings of fetch, and the addresses of mirrors."""

import hashlib
from typing import Annotated, Literal

from pydantic import Field, field_validator

from driftline.curate.core.settings import SPEED, Form, Positive, Stages
from driftline.curate.images.checks import ImageLimits

MIRRORS = {
    "multimedia-commons": "https://multimedia-commons.s3-us-west-2.amazonaws.com/data/images/{first}/{second}/{hash}.jpg"
}


class FetchSettings(ImageLimits):
    """How images are downloaded and checked."""

    downloader: Literal["native", "img2dataset"] = "native"
    """native (one event loop a worker) or img2dataset, with its own retries and fewer limits"""
    shard_size: Positive = 1000
    """photos per shard; fixed for a run"""
    stop_after: Positive | None = None
    """keep the smallest prefix, in metadata order, that holds this many images (null: all)"""
    timeout: Annotated[float, Field(gt=0), SPEED] = 10.0
    """seconds for each read from a server"""
    deadline: Annotated[float, Field(gt=0), SPEED] = 60.0
    """seconds for one image in total"""
    retries: Annotated[int, Field(ge=0, le=20), SPEED] = 2
    """further rounds for temporary failures (time-outs, 429, 5xx); img2dataset: further tries for any failure"""
    backoff: Annotated[float, Field(ge=0), SPEED] = 1.0
    """seconds before the first further round, doubling; a longer Retry-After is obeyed"""
    threads: Annotated[int, Field(ge=1, le=256), SPEED] = 16
    """connections of each process"""
    per_host: Annotated[int, Field(ge=1, le=256), SPEED] = 16
    """native: connections of each process to one host"""
    rate: Annotated[Annotated[float, Field(gt=0)] | None, SPEED] = None
    """native: requests a second to one host, over all workers (null: no limit)"""
    outage: Annotated[float, Field(ge=0, le=1), Stages()] = 0.1
    """fetch stops as unfinished if the network loses more than this share of the photos (no connection, no DNS answer,
    time-out) and it is the reason of most failed downloads; 1: never"""
    private_addresses: Literal["auto", "allow", "refuse"] = "auto"
    """URLs of private networks: auto allows them if most of the collection's URLs are such"""
    mirror: str | None = None
    """where to look for an image whose URL is dead: multimedia-commons (the S3 copy of YFCC100M), or a URL with
    {hash} and, if needed, {first} and {second}"""
    placeholders: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), Form("64 digits 0-9, a-f")], ...] = ()
    """SHA-256 of images that stand for "no image" """

    @field_validator("mirror")
    @classmethod
    def _is_a_mirror(cls, value: str | None) -> str | None:
        if value is not None and value not in MIRRORS:
            try:
                address = mirror_url(value, "")
            except (KeyError, IndexError, ValueError):
                address = ""
            if "{hash}" not in value or not address.startswith(("http://", "https://")):
                raise ValueError(
                    f"Expected {', '.join(MIRRORS)} or an http(s) URL with {{hash}}, {{first}}, {{second}}"
                )
        return value


def yfcc_hash(url: str) -> str:
    """The key of a photo in the YFCC100M copy on S3: MD5 of its address, each byte without its leading zero.

    (The ReadMe's "MD5 of the identifier" is wrong; this matches 1,000 of 1,000 real lines.)

    >>> yfcc_hash("http://farm9.staticflickr.com/8209/8183226351_0a939ba06a.jpg")
    '5a8f3976f619af2a2c3851f3a80a88'
    """
    return "".join(f"{byte:x}" for byte in hashlib.md5(url.encode(), usedforsecurity=False).digest())


def mirror_url(template: str, url: str) -> str:
    """The address of the image of `url` in a mirror. template: a name of MIRRORS, or a URL.

    >>> mirror_url("http://127.0.0.1/{first}/{second}/{hash}.jpg", "http://farm9.staticflickr.com/8209/8183226351_0a939ba06a.jpg")
    'http://127.0.0.1/5a8/f39/5a8f3976f619af2a2c3851f3a80a88.jpg'
    """
    key = yfcc_hash(url)
    return MIRRORS.get(template, template).format(hash=key, first=key[:3], second=key[3:6])
