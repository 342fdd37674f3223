"""The data card of a release: facts generated from the release, judgement written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Literal

from curate.core.errors import BadConfig
from curate.release.card_sections import PARTS, parse

UNWRITTEN = "Not written yet: this needs a person's judgement"


def card(
    facts: Mapping[str, Any],
    layout: Literal["webdataset", "parquet"] = "webdataset",
    features: Mapping[str, Any] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    template: str | None = None,
) -> str:
    """`release.json` → README.md with the YAML head that the Hugging Face Hub reads.

    layout: which files stand beside it. parquet: `features` of its columns and (images, bytes) of each split are told
    in the head, too. template: another text for the card (Jinja, in a sandbox). Judgement comes from
    `provenance.judgement` (Markdown); a part that nobody wrote says so.

    Raises BadConfig for a template that cannot be read or asks for what a release does not have.
    """
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    text = template or files("curate.release").joinpath("templates/card.md.j2").read_text(encoding="utf-8")
    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["md"] = plain
    info = "" if layout == "webdataset" else _dataset_info(features or {}, sizes or {})
    judgement = facts["provenance"].get("judgement")
    try:
        return environment.from_string(text).render(
            **facts,
            size=_size(facts["images"]),
            layout=layout,
            dataset_info=info,
            judged=judged_by(judgement),
            judged_otherwise=parse(judgement).get("", ""),
        )
    except TemplateError as error:
        raise BadConfig(
            f"The card's template cannot be filled: {error}.",
            f"A release has the fields {', '.join(sorted(facts))}.",
            "Correct the file that release.card names.",
        ) from None


def judged_by(judgement: str | None) -> Callable[[str], str]:
    """Title of a part → its paragraph in a card; what nobody wrote says what is to be written."""
    written = parse(judgement)
    asks = {part.title: part.asks for part in PARTS}

    def judged(title: str) -> str:
        return f"**{title}.** {written.get(title) or f'*{UNWRITTEN} ({asks[title]}).*'}\n"

    return judged


def _dataset_info(features: Mapping[str, Any], sizes: Mapping[str, tuple[int, int]]) -> str:
    """The section `dataset_info` of the head. Splits are ignored by `datasets` unless they tell images and bytes."""
    import yaml

    told: list[dict[str, Any]] = []
    for name, feature in features.items():
        if feature["_type"] == "ClassLabel":
            names = {str(i): n for i, n in enumerate(feature["names"])}
            told.append({"name": name, "dtype": {"class_label": {"names": names}}})
        else:
            told.append({"name": name, "dtype": feature.get("dtype", "image")})
    splits = [{"name": n, "num_bytes": size, "num_examples": images} for n, (images, size) in sizes.items()]
    total = sum(size for _, size in sizes.values())
    info = {"features": told, "splits": splits, "download_size": total, "dataset_size": total}
    return str(yaml.safe_dump({"dataset_info": info}, sort_keys=False, allow_unicode=True)).rstrip()


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
