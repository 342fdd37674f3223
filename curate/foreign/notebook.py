"""HTML of objects in a notebook: tables of escaped text and inline thumbnails."""

import base64
import importlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from driftline.curate.core.errors import BadInput
from driftline.curate.core.late import jinja2
from driftline.curate.foreign.images import as_rgb, open_image

EDGE = 48  # pixels of a thumbnail
LEFT, CENTRE = "left", "center"  # notebooks align cells to the right


def rendered(value: object, target: str) -> str:
    """HTML of `value`, made by the function `module:name`, which is imported now: data does not import its display."""
    module, _, name = target.partition(":")
    html: str = getattr(importlib.import_module(module), name)(value)
    return html


@dataclass(frozen=True)
class Strong:
    """Text in bold in a cell of a table."""

    text: str


@dataclass(frozen=True)
class Thumbnail:
    """An image in a cell of a table."""

    data: bytes
    """of an image file"""
    name: str
    """what the image shows, for those who cannot see it"""
    text: str = ""
    """below the image"""

    @property
    def source(self) -> str:
        """The image as an inline PNG of at most EDGE pixels a side; "" if it cannot be decoded."""
        try:
            with open_image(self.data, self.name) as image:
                image.draft("RGB", (EDGE, EDGE))
                small = as_rgb(image)
        except BadInput:
            return ""
        small.thumbnail((EDGE, EDGE))
        buffer = io.BytesIO()
        small.save(buffer, "PNG")
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def table(title: str, heads: Sequence[object], rows: Sequence[Sequence[object]], *notes: str) -> str:
    """A table; cells are text, numbers, bold text or thumbnails, and the first one of a row is its heading. Text is
    aligned to the left and numbers, also as text, to the right. notes: below the table."""
    sides = [_side([row[k] for row in rows if k < len(row)]) for k in range(max(map(len, [heads, *rows]), default=0))]
    return _template().render(title=title, heads=heads, rows=rows, sides=sides, notes=notes)


@cache
def _template() -> "jinja2.Template":
    text = files("driftline.curate.foreign").joinpath("templates/table.html.j2").read_text(encoding="utf-8")
    rules: dict[str, Any] = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return jinja2.Environment(autoescape=True, **rules).from_string(text)


def _side(cells: Sequence[object]) -> str:
    """How the cells of a column are aligned."""
    if any(isinstance(cell, Thumbnail) for cell in cells):
        return CENTRE
    return LEFT if any(isinstance(cell, str) and re.search(r"[^\W\d]", cell) for cell in cells) else ""
