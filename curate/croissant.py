"""Croissant 1.1 for a release in Parquet: what the files are, what each column means, and the responsible-AI facts.

The vocabulary is MLCommons'; the facts are generated from `release.json`. What needs judgement comes from the card's
judgement file: a paragraph that begins with a bold name (JUDGED) goes into the property of that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{
        name: f"cr:{name}"
        for name in (
            "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet",
            "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet",
            "references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField",
            "transform",
        )
    },
}  # fmt: skip
JUDGED = {
    "intended uses": "rai:dataUseCases",
    "uses to avoid": "rai:dataLimitations",
    "known biases": "rai:dataBiases",
    "people": "rai:personalSensitiveInformation",
    "social impact": "rai:dataSocialImpact",
    "maintenance": "rai:dataReleaseMaintenancePlan",
}
MISSING = "Not written yet."
TYPES = {"string": "sc:Text", "int64": "sc:Integer", "int32": "sc:Integer", "float": "sc:Float"}


def judgement_of(text: str | None) -> dict[str, str]:
    """The judged properties of a judgement file; MISSING where a paragraph lacks.

    >>> judgement_of("**People.** None are shown.")["rai:personalSensitiveInformation"]
    'None are shown.'
    """
    found = dict.fromkeys(JUDGED.values(), MISSING)
    for name, content in re.findall(r"\*\*([^*]+?)\.?\*\*\s*(.+?)(?=\n\s*\n|\Z)", text or "", re.S):
        if name.strip().lower() in JUDGED:
            found[JUDGED[name.strip().lower()]] = " ".join(content.split())
    return found


def croissant(
    facts: Mapping[str, Any], columns: Mapping[str, str], files: Sequence[tuple[str, str, int]], url: str | None = None
) -> dict[str, Any]:
    """facts: `release.json`. columns: column → Arrow type of the Parquet files. files: (path, sha256, bytes) of each.
    url: where the folder will be found; without it, paths are relative to the document. The date of publication is the
    publisher's to set (`release.published`): a clock's would make two equal runs differ."""
    base = "" if url is None else url.rstrip("/") + "/"
    provenance = facts["provenance"]
    licences = list(facts["licences"])
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": facts["name"],
        "version": facts["version"],
        "description": (
            f"{facts['images']} images of {len(facts['classes'])} classes in {len(facts['buckets'])} time buckets, for "
            "measuring how image classifiers age."
        ),
        "license": licences[0] if len(licences) == 1 else "https://creativecommons.org/licenses/ (one for each image)",
        "url": url or "https://pypi.org/project/driftline/",
        "creator": {"@type": "sc:Organization", "name": facts["name"]},
        "citeAs": f"{facts['name']} {facts['version']}, built with driftline {provenance['driftline']}",
        "isLiveDataset": False,
        "keywords": ["continual learning", "temporal", *facts["classes"]],
        "distribution": [
            *(
                {
                    "@type": "cr:FileObject",
                    "@id": path,
                    "name": path,
                    "contentUrl": base + path,
                    "contentSize": f"{size} B",
                    "encodingFormat": "application/x-parquet",
                    "sha256": digest,
                }
                for path, digest, size in files
            ),
            {
                "@type": "cr:FileSet",
                "@id": "parquet-files",
                "name": "parquet-files",
                "encodingFormat": "application/x-parquet",
                "includes": "data/*.parquet",
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "images",
                "name": "images",
                "key": {"@id": "images/id"},
                "field": [_field(name, kind) for name, kind in columns.items()],
            }
        ],
    }
    if provenance.get("published"):
        document["datePublished"] = provenance["published"]
    return document | _responsible(facts)


def _field(name: str, kind: str) -> dict[str, Any]:
    extract: dict[str, Any] = {"column": name}
    source: dict[str, Any] = {"fileSet": {"@id": "parquet-files"}, "extract": extract}
    if name == "image":
        source["transform"] = {"jsonPath": "bytes"}
    return {
        "@type": "cr:Field",
        "@id": f"images/{name}",
        "name": name,
        "dataType": "sc:ImageObject" if name == "image" else TYPES.get(kind, "sc:Text"),
        "source": source,
    }


def _responsible(facts: Mapping[str, Any]) -> dict[str, Any]:
    provenance = facts["provenance"]
    validation = provenance["validation"]
    crowd = validation["method"] == "crowd"
    starts = [b["start"] for b in facts["buckets"] if b["start"]]
    ends = [b["end"] for b in facts["buckets"] if b["end"]]
    drops = "; ".join(
        f"{stage}: " + ", ".join(f"{reason} {n}" for reason, n in counts["dropped"].items())
        for stage, counts in provenance["counts"].items()
        if counts["dropped"]
    )
    answers = (
        f"{validation['workers']} answers an image, kept when {validation['agree']} agree (rule {validation['rule']})"
    )
    return {
        "rai:dataCollection": f"Pictures of the source {provenance['source']}, filtered, fetched, bucketed by time.",
        "rai:dataCollectionType": [
            "Web Scraping" if provenance["source"] in ("yfcc", "flickr") else "Existing datasets"
        ],
        "rai:dataCollectionMissingData": drops or "Nothing was dropped.",
        "rai:dataCollectionTimeframe": [*starts[:1], *ends[-1:]],
        "rai:dataPreprocessingProtocol": [
            f"Candidates: the images nearest to each class's prompts by {provenance['encoder']['model']}."
        ],
        "rai:dataAnnotationProtocol": answers if crowd else "Labels of the source's own catalogue.",
        "rai:dataAnnotationPlatform": ["crowd" if crowd else "none"],
        "rai:annotationsPerItem": str(validation["workers"] if crowd else 1),
        "rai:machineAnnotationTools": [str(provenance["encoder"]["model"])],
        "rai:hasSyntheticData": bool(provenance.get("notice")) and "rendered" in provenance["notice"],
        "prov:wasDerivedFrom": provenance["source"],
        "prov:wasGeneratedBy": f"driftline {provenance['driftline']}, seed {provenance['seed']}",
        **judgement_of(provenance.get("judgement")),
    }
