"""The outcome of one download, and how answers of servers are read."""

from dataclasses import dataclass

from driftline.curate.store import NETWORK_REASONS as NETWORK_REASONS

# Reasons that may be temporary: such a row is asked for again.
TEMPORARY_REASONS = {"timeout", "connection_failed", "truncated_body", "http_408", "http_429", "http_5xx", "no_result"}
# What a row is until the last pass, because its host is slow.
SLOW = "slow_host"
# Reasons that follow from the settings: under others the same answer may be an image.
LIMIT_REASONS = {"too_few_bytes", "too_many_bytes", "too_many_pixels", "too_small", "too_long", "unsupported_format",
                 "needs_heic_extra", "needs_jxl_extra", "placeholder", "private_address"}  # fmt: skip
# Reasons for which a smaller size of the same photo is asked for: Flickr no longer serves every original.
GONE = {"http_403", "http_404", "http_410", "placeholder"}
SMALLER = "smaller size"  # what the index calls it
# Words in X-Robots-Tag that keep an image out of collections: the list of img2dataset, and `none`, which is `noindex,
# nofollow`.
OPT_OUT = ("noai", "noimageai", "noindex", "noimageindex", "none")
WITH_VALUE = ("max-snippet", "max-image-preview", "max-video-preview", "unavailable_after")
# For a deleted photo, Flickr redirects to an image with one of these names [openimages/dataset#9].
PLACEHOLDER_URL = r"/photo_(un|not_)?available[^/]*\.(png|gif|jpe?g)$"


@dataclass(frozen=True)
class Download:
    """The outcome of one attempt: bytes, or the reason why there are none."""

    data: bytes | None
    """the answer's body; None for a failure"""
    fault: str | None = None
    """reason of a failure"""
    detail: str | None = None
    """what a person needs to understand the reason"""
    retry_after: float = 0.0
    """seconds that the server asks to wait"""


def opted_out(values: list[str]) -> bool:
    """Whether X-Robots-Tag headers refuse this collection: `noai`, or `driftline: noai`, not `otherbot: noai`.

    A name before a colon is an agent's only if it stands first and is not a directive with a value.

    >>> opted_out(["noai"]), opted_out(["otherbot: noai"]), opted_out(["driftline: index, noai"]), opted_out(["all"])
    (True, False, True, False)
    >>> opted_out(["noai, max-image-preview:large"]), opted_out(["max-snippet: 0, noai"]), opted_out(["none"])
    (True, True, True)
    """
    for value in values:
        words = value.lower()
        name, colon, rest = words.partition(":")
        if colon and "," not in name and name.strip() not in WITH_VALUE:
            if name.strip() != "driftline":
                continue
            words = rest
        if any(word.strip() in OPT_OUT for word in words.split(",")):
            return True
    return False
