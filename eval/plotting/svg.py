"""SVG by hand: elements, straight lines, text, colours, and the whole of a picture."""

import html
from collections.abc import Sequence

Path = Sequence[tuple[float, float]]
COLOURS = (  # contrast above 3.6 with light and dark paper
    "#1b7fb3", "#d2521e", "#35883f", "#9656b4", "#a67c00", "#cf3270", "#0d8795", "#a0673f", "#6c7a84", "#6b8610",
)  # fmt: skip
DASHES = ("", "6 3", "2 3", "8 3 2 3")
GREY = "#8a949a"
SHADES = 40  # of a matrix, beyond its lightest; static/report.js has the same number


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
    style = f"width:100%;max-width:{1.16 * width:.0f}px;height:auto"  # on a page, text is as large as that around it
    size = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "style": style}
    return tag("svg", *parts, **size, role="img", aria_label=description)


def dash(i: int) -> str:
    """Dashes of the line at a position."""
    return DASHES[i // len(COLOURS) % len(DASHES)]


def colour(value: float, span: tuple[float, float]) -> str:
    """A cell's background: light for the lowest value of the page's matrices, dark blue for the highest.

    >>> colour(0.0, (0.0, 1.0)), colour(1.0, (0.0, 1.0))
    ('#f1f5f2', '#0b4f6c')
    """
    t = _place(value, span)
    ends = ((241, 245, 242), (11, 79, 108))
    return "#" + "".join(f"{round(a + (b - a) * t):02x}" for a, b in zip(*ends, strict=True))


def shade(value: float, span: tuple[float, float]) -> int:
    """Number of the style of a cell, whose colour is the nearest one to its own: a page has thousands of cells."""
    return round(SHADES * _place(value, span))


def _place(value: float, span: tuple[float, float]) -> float:
    """0 for the lowest value, 1 for the highest."""
    low, high = span
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 1.0


def ink(value: float, span: tuple[float, float]) -> str:
    """A cell's text colour: black or white, for the higher contrast with `colour` (above 4.5)."""
    hexed = colour(value, span)
    parts = [int(hexed[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # WCAG 2
    return "#ffffff" if luminance < 0.179 else "#000000"
