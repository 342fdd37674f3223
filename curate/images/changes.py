"""What was done to a photo's bytes, in words: written where it is done, read by card, attribution and Croissant.

An image's record joins the steps in their order, such as "re-encoded from AVIF as JPEG; metadata removed".
"""

from __future__ import annotations

NONE = "none"  # published are the bytes that were fetched
REENCODED = "re-encoded from {} as JPEG"
PREVIEW = "the JPEG preview inside a RAW file"
FIRST, OPAQUE, TURNED = "first picture only", "transparency removed", "turned upright"
REMOVED, LOSSLESS, COMPRESSED = "metadata removed", "encoded again without loss", "compressed again"
ALTERING = ("re-encoded", PREVIEW, COMPRESSED)


def joined(*steps: str | None) -> str:
    """The record of several steps, each a record itself.

    >>> joined(None, "metadata removed"), joined("none", "")
    ('metadata removed', 'none')
    """
    return "; ".join(step for step in steps if step and step != NONE) or NONE


def alters(changes: str) -> bool:
    """Whether the picture has other pixels than the photo that was fetched.

    >>> alters("re-encoded from AVIF as JPEG"), alters("metadata removed")
    (True, False)
    """
    return any(word in changes for word in ALTERING)
