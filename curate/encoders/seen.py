"""What encoders may have seen: the newest data of their training, and who says so.

A claim is an upper bound: nothing in the data is newer, because the data or the weights were published then. What has
no source is "unknown".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import write_text
from driftline.curate.core.errors import BadConfig, reason

UNKNOWN, NO_DATA = "unknown", "no data"
FILE = "seen.yaml"  # of a model's folder: trained_until, data, source
DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


@dataclass(frozen=True)
class Seen:
    """What an encoder was trained on."""

    trained_until: str = UNKNOWN
    """the newest year, month or day of its data, inclusive: "2014", "2021-01"; or "unknown\""""
    data: str = UNKNOWN
    """what the data are"""
    source: str = UNKNOWN
    """who says so"""

    def facts(self) -> dict[str, str]:
        """What a stream of its vectors says."""
        return {"encoder_cutoff": self.trained_until, "encoder_data": self.data, "encoder_source": self.source}


NOBODY = Seen()
OPENAI = Seen(
    "2021-01",
    "OpenAI's own pairs, not published",
    "model date January 2021: github.com/openai/CLIP, model-card.md",
)
IMAGENET = Seen(
    "2012", "ImageNet", "labelled July 2008 to April 2010: en.wikipedia.org/wiki/ImageNet; tasks of 2012 or older"
)
LAION_5B = Seen("2022-03", "LAION-5B", "released in March 2022: laion.ai/blog/laion-5b, en.wikipedia.org/wiki/LAION")
DATACOMP = Seen("2023-04", "DataComp, from Common Crawl", "arXiv:2304.14108, April 2023")
DINOV2 = Seen("2023-04", "LVD-142M", "arXiv:2304.07193, April 2023; github.com/facebookresearch/dinov2, MODEL_CARD.md")
PAIRS_1B = Seen(
    "2021",
    "1 billion pairs of sentences",
    "made in Hugging Face's community week of 2021: model card of sentence-transformers/all-MiniLM-L6-v2; "
    "huggingface.co/blog/1b-sentence-embeddings",
)
CLIP_TAGS = {  # of open_clip's weights
    r"openai": OPENAI,
    r"yfcc15m": Seen("2014", "YFCC100M, English texts", "published by Flickr in 2014: arXiv:1503.01817"),
    r"cc12m": Seen("2021-02", "Conceptual 12M", "arXiv:2102.08981, February 2021"),
    r"laion400m_e3[12]": Seen(
        "2021-08", "LAION-400M", "crawled 2014 to 2021, published 20 August 2021: laion.ai/blog/laion-400-open-dataset"
    ),
    r"laion2b(_s\d+b_b\d+k|_e16)": LAION_5B,
    r"laion5b_s13b_b90k": LAION_5B,
    r"(datacomp|commonpool)_\w+": DATACOMP,
    r"metaclip_400m": Seen(
        "2023-09", "MetaCLIP-400M", "released 28 September 2023: github.com/facebookresearch/MetaCLIP, README.md"
    ),
}
RECIPE = r"((tv2?|a1h?|a2|a3|ra\d?|augreg2?|orig|timm)_)?"  # of training, in timm's tags
TIMM_TAGS = {  # data of timm's weights; a tag with other words is unknown
    RECIPE + r"in(1k|12k|21k|22k)(_ft_in1k)?": IMAGENET,
    r"openai": OPENAI,
    r"lvd142m": DINOV2,
}
SENTENCES = {r"(sentence-transformers/)?all-(MiniLM-L(6|12)-v[12]|mpnet-base-v[12]|distilroberta-v1)": PAIRS_1B}
DRAWN = "photos that a program draws"
BUILT_IN = {
    "driftline-photo-world": Seen("2014-04", DRAWN, "part of driftline"),
    "driftline-photos-of-2004": Seen("2004", DRAWN, "part of driftline"),
    "driftline-paintings-before-1904": Seen("1903", "the USDA's older watercolours", "part of driftline"),
}


def seen(kind: str, model: str, weights: str | None = None) -> Seen:
    """What an encoder (`KIND:MODEL:WEIGHTS`) may have seen: what its folder says, or what is known of its published
    weights; else "unknown". Raises BadConfig for a folder whose `seen.yaml` cannot be read."""
    for place in (weights, model):
        if place and (Path(place) / FILE).is_file():
            return declared(Path(place) / FILE)
        if place in BUILT_IN:
            return BUILT_IN[place]
    if kind == "ngrams":
        return Seen(NO_DATA, "none: counts of letters", "part of driftline")
    if kind == "sentence":
        return _matching(SENTENCES, model)
    return _matching({"clip": CLIP_TAGS, "backbone": TIMM_TAGS}.get(kind, {}), weights or "")


def _matching(table: dict[str, Seen], name: str) -> Seen:
    return next((claim for pattern, claim in table.items() if re.fullmatch(pattern, name)), NOBODY)


def declared(path: Path) -> Seen:
    """What a file with `trained_until`, `data` and `source` says. Raises BadConfig for other contents."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise BadConfig(
            f"{path} cannot be read as YAML ({reason(error)}).", "Expected trained_until, data, source."
        ) from None
    keys = {"trained_until", "data", "source"}
    if not isinstance(values, dict) or not set(values) <= keys or "trained_until" not in values:
        raise BadConfig(f"{path} does not say what its model has seen.", "Expected trained_until, data, source.")
    texts = {key: str(value) for key, value in values.items()}
    return Seen(**texts | {"trained_until": checked(texts["trained_until"])})


def write_seen(folder: Path, seen: Seen) -> None:
    """Write `seen.yaml` beside a model's weights."""
    import yaml

    names = {"trained_until": seen.trained_until, "data": seen.data, "source": seen.source}
    write_text(folder / FILE, yaml.safe_dump(names, sort_keys=False, allow_unicode=True))


def recorded(provenance: Mapping[str, Any], features: str) -> Seen:
    """What the encoder of a release's features may have seen, by the release's record."""
    embedded = features == "clip"  # the name of those by the encoder of its run
    claim = provenance["encoder"].get("seen") if embedded else provenance.get("seen", {}).get(features)
    return NOBODY if claim is None else Seen(claim["trained_until"], claim["data"], claim["source"])


def checked(date: str) -> str:
    """A year, month or day, or "unknown". Raises BadConfig for something else."""
    if date != UNKNOWN and not DATE.fullmatch(date):
        raise BadConfig(
            f"The encoder's newest data is {date!r}.", "Expected a year, month or day, as in 2021-01, or unknown."
        )
    return date
