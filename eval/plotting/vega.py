"""Specifications of interactive charts for Vega-Lite, as plain data.

Columns of a chart's data are the fields "c0", "c1", …: names from outside are values or titles, never code. The page
adds the data, so that it is stored once. `static/vega.js` is Vega, Vega-Lite and Vega-Embed, as
`vl_convert.javascript_bundle()` writes them: the file is kept here, because the package that writes it has 84 MB. The
specifications are written without Altair, whose import takes longer than a whole report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLOURS = (  # contrast above 3.6 with light and dark paper
    "#1b7fb3", "#d2521e", "#35883f", "#9656b4", "#a67c00", "#cf3270", "#0d8795", "#a0673f", "#6c7a84", "#6b8610",
)  # fmt: skip
DASHES = ("", "6 3", "2 3", "8 3 2 3")
GRID = "#88888833"
SHADED = 3  # with more lines, only the band under the pointer is shown
CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor", "titleColor": "currentColor", "domainColor": "#888", "tickColor": "#888",
        "gridColor": GRID, "titleFontWeight": "normal", "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 160,
        "titleLimit": 400,
    },
    "header": {"labelColor": "currentColor", "labelFontSize": 12, "labelLimit": 160, "title": None},
    "text": {"color": "currentColor", "limit": 180},
}  # fmt: skip
Spec = dict[str, Any]


def styles(names: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and dashes of each name, by position."""
    return [(COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]) for i in range(len(names))]


def _of_names(names: Sequence[str]) -> dict[str, Any]:
    """Encodings of the field c0: colour and dashes do not change when names are hidden."""
    looks = styles(names)
    dashes = [[int(part) for part in dash.split()] or [1, 0] for _, dash in looks]
    return {
        "color": {"field": "c0", "type": "nominal", "legend": None, "scale": _scale(names, [c for c, _ in looks])},
        "strokeDash": {"field": "c0", "type": "nominal", "legend": None, "scale": _scale(names, dashes)},
    }


def _scale(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {"domain": list(names), "range": list(values)}


def _tooltip(columns: Sequence[str], skip: Sequence[int] = ()) -> list[dict[str, Any]]:
    formats = [{} if i == 0 else {"format": ",.4~g"} for i in range(len(columns))]
    kinds = ["nominal" if i == 0 else "quantitative" for i in range(len(columns))]
    return [
        {"field": f"c{i}", "type": kinds[i], "title": title, **formats[i]}
        for i, title in enumerate(columns)
        if i not in skip
    ]


def _hover(on: str = "c0") -> dict[str, Any]:
    select = {"type": "point", "fields": [on], "on": "pointerover", "clear": "pointerout", "nearest": False}
    return {"name": "hover", "select": select}


def _faded(low: float, high: float) -> dict[str, Any]:
    """Opacity: `high` for what is under the pointer, and for all if nothing is."""
    return {"condition": {"param": "hover", "value": high}, "value": low}


def lines(
    names: Sequence[str], columns: Sequence[str], log: bool = False, levels: Mapping[str, float] | None = None,
    marks: Mapping[str, float] | None = None, band: bool = False, ordinal: bool = False, zero: bool = True,
    points: bool = False,
) -> Spec:  # fmt: skip
    """A line for each name. Columns: name, x, y and, with `band`, low and high. levels, marks: name → y or x of a
    dashed line. ordinal: x are words. zero: the y axis begins at 0."""
    x: dict[str, Any] = {"field": "c1", "type": "ordinal" if ordinal else "quantitative", "title": columns[1]}
    if ordinal:
        x |= {"sort": None, "axis": {"labelAngle": 0, "labelOverlap": True}}
    else:
        x |= {"scale": {"type": "symlog" if log else "linear", "nice": False, "zero": False}, "axis": {"tickCount": 8}}
    y = {"field": "c2", "type": "quantitative", "title": columns[2], "scale": {"zero": zero}}
    both = {"x": x, "y": y, **_of_names(names)}
    layers: list[Spec] = []
    for name, level in (levels or {}).items():
        layers += _reference(name, "y", level)
    for name, mark in (marks or {}).items():
        layers += _reference(name, "x", mark)
    if band:
        ends = {"y": {**y, "field": "c3"}, "y2": {"field": "c4"}}
        shade = {"condition": {"param": "hover", "empty": len(names) <= SHADED, "value": 0.18}, "value": 0}
        area = {"x": x, **ends, "color": both["color"], "opacity": shade}
        layers.append({"mark": {"type": "area", "line": False}, "encoding": area})
    layers.append({"mark": {"type": "line", "strokeWidth": 2}, "encoding": {**both, "opacity": _faded(0.18, 1)}})
    dots = {key: value for key, value in both.items() if key != "strokeDash"}
    dots |= {"tooltip": _tooltip(columns), "opacity": _faded(0.1, 1) if points else {"value": 0.01}}
    layers.append({"params": [_hover()], "mark": {"type": "circle", "size": 40 if points else 90}, "encoding": dots})
    return {"height": 320, "layer": layers}  # the last one is under the pointer


def _reference(name: str, axis: str, value: float) -> list[Spec]:
    """A dashed line across the chart, with its name."""
    data = {"values": [{"at": value, "name": name}]}
    at = {axis: {"field": "at", "type": "quantitative"}}
    near = {"x": {"value": 4}} if axis == "y" else {"y": {"value": 8}}
    text = {"type": "text", "align": "left", "dy": -6 if axis == "y" else 0, "dx": 0 if axis == "y" else 4}
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "#888"}, "encoding": at},
        {"data": data, "mark": text, "encoding": {**at, **near, "text": {"field": "name", "type": "nominal"}}},
    ]


def panels(
    names: Sequence[str], columns: Sequence[str], order: Sequence[str], marks: Mapping[str, float] | None = None
) -> Spec:
    """Small multiples. Columns: name, x, y, panel. order: of the panels. marks: name → x of a dashed line in each. The
    page sets the size of a panel."""
    one = lines(names, columns[:3], marks=marks, points=True)
    one["layer"][-1]["encoding"]["tooltip"] = _tooltip(columns[:3])
    facet = {"field": "c3", "type": "nominal", "sort": list(order), "title": None}
    return {"facet": facet, "spec": {**one, "height": 130, "width": 200}, "columns": 4}


def points(columns: Sequence[str]) -> Spec:
    """A dot with its name for each row. Columns: name, x above 0 on a logarithmic scale, y, and "yes" for those in
    colour."""
    x = {"field": "c1", "type": "quantitative", "title": columns[1], "scale": {"type": "log", "nice": True}}
    x |= {"axis": {"format": "~s", "tickCount": 6}}
    y = {"field": "c2", "type": "quantitative", "title": columns[2], "scale": {"zero": False}}
    both = {"x": x, "y": y}
    colour = {"color": {"condition": {"test": "datum.c3 === 'yes'", "value": COLOURS[0]}, "value": "#8a949a"}}
    tip = {"tooltip": _tooltip(columns[:3])}
    dots = {"mark": {"type": "circle", "size": 90, "opacity": 1}, "encoding": {**both, **colour, **tip}}
    text = {"type": "text", "align": "left", "dx": 8, "fontSize": 11}
    return {"height": 320, "layer": [{"mark": text, "encoding": {**both, "text": {"field": "c0"}}}, dots]}


def spread(columns: Sequence[str]) -> Spec:
    """A dot with its interval for each name, in the order of the rows. Columns: name, value, low, high."""
    y = {"field": "c0", "type": "nominal", "sort": None, "title": None}
    x = {"field": "c1", "type": "quantitative", "title": columns[1], "scale": {"zero": False}}
    rule = {"y": y, "x": {**x, "field": "c2"}, "x2": {"field": "c3"}}
    grey = {"color": {"value": COLOURS[0]}}
    dot = {"y": y, "x": x, "tooltip": _tooltip(columns), **grey}
    return {
        "height": {"step": 22},
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.45}, "encoding": {**rule, **grey}},
            {"mark": {"type": "circle", "size": 80, "opacity": 1}, "encoding": dot},
        ],
    }


def whole(spec: Spec) -> Spec:
    """With what all charts have in common; the page adds the data named "rows"."""
    return {"data": {"name": "rows"}, "config": CONFIG, "width": "container", **spec}
