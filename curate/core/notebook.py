"""HTML of objects in a notebook: tables of escaped text and inline thumbnails."""

from __future__ import annotations

import base64
import importlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from driftline.curate.core.outside.images import as_rgb

EDGE = 48  # pixels of a thumbnail
LEFT, CENTRE = ' style="text-align:left"', ' style="text-align:center"'  # notebooks align cells to the right


def rendered(value: object, target: str) -> str:
    """HTML of `value`, made by the function `module:name`, which is imported now: data does not import its display."""
    module, _, name = target.partition(":")
    html: str = getattr(importlib.import_module(module), name)(value)
    return html


@dataclass(frozen=True)
class Strong:
    """Text in bold in a cell of a table."""

    text: str

    def html(self) -> str:
        """The text, escaped."""
        return f"<b>{escape(self.text)}</b>"


@dataclass(frozen=True)
class Thumbnail:
    """An image in a cell of a table."""

    data: bytes
    """of an image file"""
    name: str
    """what the image shows, for those who cannot see it"""
    text: str = ""
    """below the image"""

    def html(self) -> str:
        """The image as an inline PNG of at most EDGE pixels a side; its name if it cannot be decoded."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(self.data)) as image:
                image.draft("RGB", (EDGE, EDGE))
                small = as_rgb(image)
        except Exception:  # Pillow's decoders raise OSError, SyntaxError, struct.error, …
            return f"{escape(self.name)}<br>{escape(self.text)}"
        small.thumbnail((EDGE, EDGE))
        buffer = io.BytesIO()
        small.save(buffer, "PNG")
        source = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        return f'<img src="{source}" alt="{escape(self.name)}" title="{escape(self.name)}"><br>{escape(self.text)}'


def table(title: str, heads: Sequence[object], rows: Sequence[Sequence[object]], note: str = "") -> str:
    """A table; cells are text, numbers, bold text or thumbnails, and the first one of a row is its heading. Text is
    aligned to the left and numbers, also as text, to the right. note: below the table."""
    sides = [_side([row[k] for row in rows if k < len(row)]) for k in range(max(map(len, [heads, *rows]), default=0))]
    head = "".join(f'<th scope="col"{side}>{escape(str(cell))}</th>' for cell, side in zip(heads, sides, strict=False))
    body = "".join(
        f'<tr><th scope="row"{LEFT}>{escape(str(first))}</th>'
        + "".join(f"<td{side}>{_cell(cell)}</td>" for cell, side in zip(rest, sides[1:], strict=False))
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div><strong>{escape(title)}</strong></div><table style="margin:0 0 1em"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>" + (f"<p>{escape(note)}</p>" if note else "")
    )


def _side(cells: Sequence[object]) -> str:
    """How the cells of a column are aligned."""
    if any(isinstance(cell, Thumbnail) for cell in cells):
        return CENTRE
    return LEFT if any(isinstance(cell, str) and re.search(r"[^\W\d]", cell) for cell in cells) else ""


def _cell(cell: object) -> str:
    if isinstance(cell, Thumbnail | Strong):
        return cell.html()
    return escape(f"{cell:,}" if isinstance(cell, int) else str(cell))
