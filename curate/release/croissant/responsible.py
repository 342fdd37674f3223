"""Responsible-AI properties of a Croissant document (Croissant RAI 1.0).

Everything comes from `release.json` and the sections of the judgement file; what neither says is "Not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.curate.images.changes import alters
from driftline.curate.release.card_sections import CARD_SECTIONS, parse_judgement
from driftline.curate.validation.answers.rule_text import agreement_texts, answers_text, per_image, rule_text

UNWRITTEN = "Not known: the makers of the release have not written it."
USERS = "User-generated content data"
SOURCES: dict[str, tuple[str | None, tuple[str, ...]]] = {  # source → its page; words of Croissant RAI 1.0
    "yfcc": ("http://projects.dfki.uni-kl.de/yfcc100m/", ("Secondary Data analysis", "Web Scraping", USERS)),
    "flickr": ("https://www.flickr.com/", ("Web API", USERS)),
    "huggingface": (None, ("Secondary Data analysis",)),
}


def responsible(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The `rai:` properties. facts: content of `release.json`."""
    provenance = facts["provenance"]
    answers: Mapping[str, Mapping[str, int]] = facts.get("answers", {})
    people, judges = answers.get("people"), judges_of(facts)
    written = parse_judgement(provenance.get("judgement"))
    changes = facts.get("file_changes", {})
    steps = "; ".join(f"{text}: {n} images" for text, n in changes.items())
    altered = sum(n for text, n in changes.items() if alters(text))
    drops = "; ".join(
        f"{stage}: " + ", ".join(f"{reason} {n}" for reason, n in counts["dropped"].items())
        for stage, counts in provenance["counts"].items()
        if counts["dropped"]
    )
    rule = (rule_text(provenance["validation"]), answers_text(answers))
    nobody = "None: no person was asked."
    return {
        "rai:dataCollection": f"Pictures of the source {provenance['source']}, filtered, fetched, bucketed by time.",
        "rai:dataCollectionType": list(SOURCES.get(provenance["source"], (None, ("Others",)))[1]),
        "rai:dataCollectionRawData": (
            "The photos that the source lists, one file each; `source_sha256` is of each file as it was fetched."
        ),
        "rai:dataCollectionMissingData": drops or "Nothing was dropped.",
        "rai:dataCollectionTimeframe": time_span(facts),
        "rai:dataPreprocessingProtocol": [
            f"Candidates: the images nearest to each class's prompts by {provenance['encoder']['model']}.",
            *([f"What was done to the files: {steps}."] if steps else []),
        ],
        "rai:dataManipulationProtocol": (
            f"Encoded again with loss or shown otherwise than in the fetched file: {altered} images."
            if changes
            else "Not known: the release does not record what was done to its files."
        ),
        "rai:dataImputationProtocol": "Nothing was imputed: what a source does not state is empty in the table.",
        "rai:dataAnnotationProtocol": " ".join(text for text in rule if text),
        "rai:dataAnnotationPlatform": "Not known: where people answered is not recorded." if people else nobody,
        "rai:dataAnnotationAnalysis": agreement_texts(provenance.get("agreement"))
        or ["Not known: the release records no agreement." if people else nobody],
        "rai:annotationsPerItem": per_image(people) if people else "0",
        "rai:annotatorDemographics": "Not known: driftline does not ask for demographics." if people else nobody,
        "rai:machineAnnotationTools": [str(provenance["encoder"]["model"]), *judges],
        "rai:hasSyntheticData": bool(provenance.get("notice")) and "rendered" in provenance["notice"],
        **{section.rai: written.get(section.title, UNWRITTEN) for section in CARD_SECTIONS if section.rai},
    }


def time_span(facts: Mapping[str, Any]) -> list[str]:
    """Begin of the first bucket and end of the last one, as far as they are known."""
    starts = [b["start"] for b in facts["buckets"] if b["start"]]
    ends = [b["end"] for b in facts["buckets"] if b["end"]]
    return [*starts[:1], *ends[-1:]]


def coverage(facts: Mapping[str, Any]) -> str:
    """The time span as an interval of ISO 8601; "" if an end is not known."""
    span = time_span(facts)
    return "/".join(span) if len(span) == 2 else ""


def judges_of(facts: Mapping[str, Any]) -> list[str]:
    """Names of the models that answered about published images."""
    agreement = facts["provenance"].get("agreement") or {}
    return list(agreement.get("judged", {}).get("judges", [])) if facts.get("answers", {}).get("judges") else []
