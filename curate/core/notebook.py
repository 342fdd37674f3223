"""HTML of objects in a notebook: tables of escaped text and inline thumbnails."""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

EDGE = 48  # pixels of a thumbnail


def rendered(value: object, target: str) -> str:
    """HTML of `value`, made by the function `module:name`, which is imported now: data does not import its display."""
    module, _, name = target.partition(":")
    html: str = getattr(importlib.import_module(module), name)(value)
    return html


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
                small = image.convert("RGB")
        except Exception:  # Pillow's decoders raise OSError, SyntaxError, struct.error, …
            return f"{escape(self.name)}<br>{escape(self.text)}"
        small.thumbnail((EDGE, EDGE))
        buffer = io.BytesIO()
        small.save(buffer, "PNG")
        source = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        return f'<img src="{source}" alt="{escape(self.name)}" title="{escape(self.name)}"><br>{escape(self.text)}'


def table(title: str, heads: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table; cells are text, numbers or thumbnails, and the first one of a row is its heading."""
    head = "".join(f'<th scope="col">{escape(str(cell))}</th>' for cell in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(str(first))}</th>{"".join(f"<td>{_cell(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: object) -> str:
    return cell.html() if isinstance(cell, Thumbnail) else escape(f"{cell:,}" if isinstance(cell, int) else str(cell))
