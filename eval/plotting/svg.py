"""SVG by hand: elements, straight lines, text, and the whole of a picture."""

from __future__ import annotations

import html
from collections.abc import Sequence

Path = Sequence[tuple[float, float]]


def tag(kind: str, *inside: str, **attributes: object) -> str:
    """An element; inside: markup. Attributes are escaped, numbers have one decimal.

    >>> tag("g", class_="a", stroke_width=2.25, data_n="<'>")
    "<g class='a' stroke-width='2.2' data-n='&lt;&#x27;&gt;'></g>"
    """
    words = []
    for name, value in attributes.items():
        shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) and abs(value) >= 1 else str(value)
        words.append(f" {name.rstrip('_').replace('_', '-')}='{html.escape(shown, quote=True)}'")
    return f"<{kind}{''.join(words)}>{''.join(inside)}</{kind}>"


def line(x1: float, y1: float, x2: float, y2: float, **look: object) -> str:
    """A straight line, in the colour of the text unless `look` has another."""
    ends = {name: round(value, 1) for name, value in (("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2))}
    return tag("line", **ends, **{"stroke": "currentColor", **look})


def dashed(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin dashed line."""
    return line(x1, y1, x2, y2, stroke_dasharray="4 4", opacity=0.6)


def text(x: float, y: float, shown: str, anchor: str = "start", size: int = 11, **look: object) -> str:
    """Text in the colour of the page's; it is escaped."""
    place = {"x": round(x, 1), "y": round(y, 1), "text_anchor": anchor, "font_size": size, "fill": "currentColor"}
    return tag("text", html.escape(shown), **place, **look)


def corners(path: Path) -> str:
    """The attribute `points` of a line."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def svg_of(parts: Sequence[str], description: str, height: float, width: float) -> str:
    """A whole picture. description: what it shows, in words."""
    size = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "style": f"width:100%;max-width:{width + 36:.0f}px;height:auto"}
    return tag("svg", *parts, **size, role="img", aria_label=description)
