"""The data card of a release: facts generated from the release, judgement written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal


def card(
    facts: Mapping[str, Any],
    layout: Literal["webdataset", "parquet"] = "webdataset",
    features: Mapping[str, Any] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> str:
    """`release.json` → README.md with the YAML head that the Hugging Face Hub reads.

    layout: which files stand beside it. parquet: `features` of its columns and (images, bytes) of each split are told
    in the head, too. Judgement comes from `provenance.judgement` (Markdown); where it is missing, the card says so.
    """
    from jinja2 import Environment, StrictUndefined

    template = files("curate").joinpath("templates/card.md.j2").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.filters["md"] = plain
    info = "" if layout == "webdataset" else _dataset_info(features or {}, sizes or {})
    return environment.from_string(template).render(
        **facts, total=sum, size=_size(facts["images"]), layout=layout, dataset_info=info
    )


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
