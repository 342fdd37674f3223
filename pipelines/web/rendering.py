"""Templates, the stylesheet, small pictures, and periods of time buckets as people read them, of the local pages."""

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.images import as_rgb, open_image

THUMBNAIL = 192  # pixels of the longer edge
LARGE = 1280  # of the picture of one photo
LONG = 100 * 24 * 3600  # seconds: longer periods are shown in months, others in days
MOST_PIXELS = 200_000_000  # of an image that is decoded


def template(package: str, name: str) -> Template:
    """A template of a page; values are escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(files(package).joinpath("templates", name).read_text(encoding="utf-8"))


def stylesheet() -> str:
    """The stylesheet of all local pages, for pages that must be one file."""
    return files("driftline.pipelines.web").joinpath("static/page.css").read_text(encoding="utf-8")


def small(data: bytes, edge: int) -> bytes:
    """A JPEG of at most `edge` pixels a side, upright. Raises BadInput for what cannot be decoded."""
    with open_image(data, "An image") as image:
        if image.width * image.height > MOST_PIXELS:
            raise BadInput(f"An image has {image.width} × {image.height} pixels.", f"At most {MOST_PIXELS:,}.")
        image.draft("RGB", (edge, edge))
        picture = as_rgb(image)
        picture.thumbnail((edge, edge))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()


def labels(buckets: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Index → label of each bucket: its name, or the dates if the name is a number. The labels differ.

    buckets: index, name, start and end (ISO 8601 or None), as in `buckets.json`.

    >>> labels([{"index": 0, "name": "0", "start": "2004-01-12T12:43:33Z", "end": "2005-05-13T23:40:58Z"}])
    {0: '2004-01 to 2005-05'}
    """
    for days in (False, True):
        names = {b["index"]: _label(b, days) for b in buckets}
        if len(set(names.values())) == len(names):
            return names
    return {b["index"]: f"{_label(b, True)} ({b['name']})" for b in buckets}


def _label(bucket: Mapping[str, Any], days: bool) -> str:
    """days: whether dates are days; else those of periods longer than LONG are months."""
    name, ends = str(bucket["name"]), [bucket[key] for key in ("start", "end")]
    start, end = (None if end is None else int(datetime.fromisoformat(end).timestamp()) for end in ends)
    if name != str(bucket["index"]) or ends == [None, None]:
        return name
    fine = days or (start is not None and end is not None and end - 1 - start < LONG)
    first, last = (
        None if t is None else day(t)[: None if fine else -3] for t in (start, None if end is None else end - 1)
    )
    if first is None or last is None:
        return f"until {last}" if first is None else f"from {first}"
    return first if first == last else f"{first} to {last}"


def day(seconds: int) -> str:
    """The day of a second, UTC.

    >>> day(0)
    '1970-01-01'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d").rjust(10, "0")
