"""Addresses of images in the size that is wanted, as far as an image server makes it.

Documents, read on 2026-11-27: iiif.io/api/image/3.0 and 2.1, section 4.2 (in version 3 a size beyond the image's own is
an error), and their compliance pages, section 3.2: `max` (`full` in version 2) at every level, `w,` and `,h` from level
1, `!w,h` from level 2. A server may name further features. Version 1 has other addresses and is not asked for sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

PROFILE = re.compile(r"(?:https?://iiif\.io/api/image/[23]/)?level([012])(?:\.json)?")
BY_EDGE, CONFINED = {"sizeByW", "sizeByH"}, "sizeByConfinedWh"
LEVELS: tuple[set[str], ...] = (set(), BY_EDGE, BY_EDGE | {CONFINED})


def size_of(service: Mapping[str, Any], body: Mapping[str, Any], size: int) -> str | None:
    """The size parameter for an image of at most `size` pixels; None where the server makes no such image, or its
    edges are not known. body: the image whose service it is.

    >>> [size_of({"profile": f"level{n}", "width": 3000, "height": 4000}, {}, 1024) for n in (0, 1, 2)]
    [None, ',1024', '!1024,1024']
    """
    features = {feature for profile in _profiles(service) for feature in profile}
    if CONFINED in features:
        return f"!{size},{size}"
    lengths = [[n for key in ("width", "height") if (n := _length(holder.get(key)))] for holder in (service, body)]
    wide, high = next((pair for pair in lengths if len(pair) == 2), (0, 0))
    if not wide or not features >= BY_EDGE:
        return None
    if max(wide, high) <= size:
        return "max" if service.get("type") == "ImageService3" else "full"
    return f"{size}," if wide >= high else f",{size}"


def _profiles(service: Mapping[str, Any]) -> Iterator[set[str]]:
    """The features of each entry of a service's `profile`, and those that it names beside (`supports` in version 2)."""
    profile = service.get("profile")
    for entry in [*(profile if isinstance(profile, list) else [profile]), service]:
        if isinstance(entry, str) and (match := PROFILE.fullmatch(entry)):
            yield LEVELS[int(match[1])]
        elif isinstance(entry, Mapping):
            for named in (entry.get("supports"), entry.get("extraFeatures")):
                yield {feature for feature in named if isinstance(feature, str)} if isinstance(named, list) else set()


def _length(value: Any) -> int:
    """The value if it is a length in pixels, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
