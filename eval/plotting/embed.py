"""Charts as parts of a page: the picture, and what the page's script needs to make it interactive."""

from __future__ import annotations

import html
import json
import math
from functools import cache
from importlib.resources import files
from typing import Any

from driftline.eval.plotting import vega
from driftline.eval.plotting.charts import Figure, Picture

SCRIPT = "report.js"  # the only file that pages of a report need, for what is more than reading


@cache
def script() -> str:
    """The script of all pages: Vega and our own part."""
    folder = files("driftline.eval.plotting").joinpath("static")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in ("vega.js", SCRIPT))


def as_json(value: Any) -> str:
    """JSON for an element <script type="application/json">: no text in it ends the element, and NaN is null.

    >>> as_json({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script>","b":null}'
    """
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def data_island(value: Any, kind: str) -> str:
    """Data for the page's script. kind: a class, by which the script finds it."""
    return f"<script type='application/json' class='{kind}'>{as_json(value)}</script>"


def figure(chart: Figure, label: str = "h3") -> str:
    """A heading, the chart and its caption. label: the heading's element; "" for none."""
    heading = f"<{label}>{html.escape(chart.title)}</{label}>" if label else ""
    caption = f"<figcaption class='soft'>{html.escape(chart.caption)}</figcaption>"
    return heading + f"<figure class='chart'>{plot(chart.picture, chart.title)}{caption}</figure>"


def plot(picture: Picture, title: str) -> str:
    """The picture with its data. title: for the names of saved files."""
    island = ""
    if picture.columns:
        about: dict[str, Any] = {"title": title, "columns": picture.columns, "rows": picture.rows}
        about |= {"spec": vega.whole(dict(picture.spec))} if picture.spec else {}
        island = data_island(about, "chart-data")
    return f"<div class='plot scroll' tabindex='0'>{picture.svg}</div>{island}"
