"""HTML of a report. All of it comes from Jinja templates that escape: text stays text, and `Markup` is what one of them
has rendered."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from driftline.eval.plotting.frames import SHADES, colour, ink, shade
from driftline.eval.protocol import Score
from driftline.eval.reporting.text import detail, value_text
from driftline.eval.scoring.aggregate import plain
from driftline.eval.scoring.ranking import mean_of

SCRIPT = "report.js"  # the only file that pages of a report need, for what is more than reading


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    """what it says; "" with `image`"""
    below: str = ""
    """small, on a second line"""
    beside: str = ""
    """small, on the same line"""
    kind: str = ""
    """class"""
    image: bytes = b""
    """JPEG; then `text` says what it shows"""

    @property
    def source(self) -> str:
        """The image inside the page."""
        return f"data:image/jpeg;base64,{base64.b64encode(self.image).decode()}"


def table(heads: Sequence[object], rows: Sequence[Sequence[object]], kind: str = "scores") -> Markup:
    """A table that scrolls. Heads and cells: text, numbers, `Cell` or `Markup`; the first cell of a row is its heading,
    and a head of "" has none. kind: scores, plain or pictures."""
    return render("table", heads, rows, kind)


def render(macro: str, *values: Any) -> Markup:
    """What a macro of parts.html.j2 says of these values."""
    return Markup(getattr(_parts(), macro)(*values))


@cache
def _parts() -> Any:
    return environment().get_template("parts.html.j2").module


@cache
def environment() -> Environment:
    """The templates of a report, and the filters that they use."""
    loader = PackageLoader("driftline.eval.reporting")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters |= {
        "pct": partial(value_text, Score("", "")),
        "value_text": lambda value, score: value_text(score, value).replace("-", "−"),
        "mean_of": lambda result, score: mean_of(score, result),
        "detail": lambda result, score: detail(score, result),
        "shade": shade,
        "island": lambda value: Markup(as_json(value)),
    }
    ends = (0.0, float(SHADES))
    rules = (f".m{k}{{background:{colour(k, ends)};color:{ink(k, ends)}}}" for k in range(SHADES + 1))
    jinja.globals |= {"script": SCRIPT, "shades": Markup("".join(rules))}
    return jinja


@cache
def script() -> str:
    """The script of all pages."""
    return files("driftline.eval.plotting").joinpath("static", SCRIPT).read_text(encoding="utf-8")


def as_json(value: Any) -> str:
    """JSON for an element <script type="application/json">: no text in it ends the element, and NaN is null.

    >>> as_json({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script>","b":null}'
    """
    shown = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return shown.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
