"""What was done to a photo's bytes, in words: written where it is done, read by card, attribution and Croissant.

An image's record joins the steps in their order, such as "re-encoded from AVIF as JPEG; metadata removed".
"""

from driftline.curate.foreign.images import OPAQUE, PROFILE, TURNED

NONE = "none"  # published are the bytes that were fetched
REENCODED = "re-encoded from {} as JPEG"
PREVIEW = "the JPEG preview inside a RAW file"
REMOVED, COMPRESSED = "metadata removed", "compressed again"
AS_PNG = "stored as PNG"
ALTERING = ("re-encoded", PREVIEW, COMPRESSED, OPAQUE, "scaled to 8 bits", PROFILE)
KINDS = {  # what may be done to a picture, for counts → words of the record
    "orientation": TURNED, "depth": "to 8 bits", "alpha": OPAQUE, "frames": "picture", "profile": "CMYK",
}  # fmt: skip


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


def kinds_of(record: str) -> list[str]:
    """The kinds of preparation in a record.

    >>> kinds_of("turned upright; compressed again; metadata removed"), kinds_of("none")
    (['orientation'], [])
    """
    steps = [step for step in record.split("; ") if step != PREVIEW]
    return [kind for kind, words in KINDS.items() if any(words in step for step in steps)]
