"""Which licences permit that copies are given on, by their name or address."""

from __future__ import annotations

import re

# Creative Commons in all kinds (BY, SA, NC, ND: whole copies), public domain, and the free licences of Commons [Flickr:
# flickr.photos.licenses.getInfo; rightsstatements.org: of its twelve statements only two].
_PERMITS = re.compile(
    r"(?i)\s*(cc[ -]?(by|0|zero)\b|attribution\b|pd(m|$|-)|no restrictions|(copyrighted )?free use|gfdl|fal$)"
    r"|.*(creativecommons\.org/(licenses|publicdomain)/|public domain|no known copyright|usa\.gov/copyright"
    r"|rightsstatements\.org/(vocab|page)/(noc-us|nkc)"
    r"|united states government work|gnu free documentation|free art li)",
    re.DOTALL,
)


def permits_copies(*licence: str | None) -> bool:
    """Whether one of these names or addresses is that of a licence which permits copies; unknown ones do not.

    >>> permits_copies("Attribution License"), permits_copies(None, "https://creativecommons.org/licenses/by-nd/2.0/")
    (True, True)
    >>> permits_copies("All rights reserved"), permits_copies(None), permits_copies("http://rightsstatements.org/vocab/InC/1.0/")
    (False, False, False)
    """
    return any(text and _PERMITS.match(text) for text in licence)
