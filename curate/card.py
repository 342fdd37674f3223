"""The data card of a release: facts generated from the release, judgement written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def card(facts: Mapping[str, Any]) -> str:
    """`release.json` → README.md with the YAML head that the Hugging Face Hub reads.

    Judgement comes from `provenance.judgement` (Markdown); where it is missing, the card says so.
    """
    from jinja2 import Environment, StrictUndefined

    template = files("curate").joinpath("templates/card.md.j2").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.filters["md"] = plain
    return environment.from_string(template).render(**facts, total=sum, size=_size(facts["images"]))


def plain(text: Any) -> str:
    """Outside text as one harmless line of Markdown.

    >>> plain("a|b <script>")
    'a\\\\|b &lt;script&gt;'
    """
    line = re.sub(r"\s+", " ", str(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([|`*_\[\]])", r"\\\1", line)


def _size(n: int) -> str:
    """Size category in the Hub's words.

    >>> _size(999), _size(66_000)
    ('n<1K', '10K<n<100K')
    """
    steps = [
        (10**3, "n<1K"),
        (10**4, "1K<n<10K"),
        (10**5, "10K<n<100K"),
        (10**6, "100K<n<1M"),
        (10**7, "1M<n<10M"),
    ]
    return next((name for limit, name in steps if n < limit), "10M<n<100M")
