"""Croissant 1.1 metadata of a release in tars or in Parquet: files, columns, responsible-AI properties.

The vocabulary is that of MLCommons. Facts come from `release.json`, texts from the sections of the judgement file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftline.curate.release.card_sections import CARD_SECTIONS, parse_judgement
from driftline.curate.validation.answers.rule_text import answers_text, per_image, rule_text

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
            "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileProperty", "fileObject",
            "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path",
            "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator", "source",
            "subField", "transform",
        )
    },
}  # fmt: skip
MISSING = "Not written yet."
WEB = ("yfcc", "flickr", "wikimedia", "iiif")  # sources whose photos are gathered from the web
PARQUET = "application/x-parquet"
TYPES = {"string": "sc:Text", "int64": "sc:Integer", "int32": "sc:Integer", "float": "sc:Float"}


def croissant(
    facts: Mapping[str, Any], columns: Mapping[str, str], files: Sequence[tuple[str, str, int]], url: str | None = None
) -> dict[str, Any]:
    """The document of a release in Parquet.

    facts: content of `release.json`. columns: column → Arrow type of the Parquet files. files: (path, sha256, bytes) of
    each. url: address of the folder; None: paths are relative to the document.
    """
    parquet = _node("FileSet", "parquet-files", encodingFormat=PARQUET, includes="data/*.parquet")
    distribution = [*(_file(path, digest, size, PARQUET, url) for path, digest, size in files), parquet]
    source = {"fileSet": {"@id": "parquet-files"}}
    fields = [_field("images", name, kind, source | _column(name)) for name, kind in columns.items()]
    return _document(facts, distribution, [_records("images", fields)], url)


def croissant_tars(
    facts: Mapping[str, Any], columns: Mapping[str, str], table: tuple[str, int], tars: Sequence[tuple[str, str, int]],
    names_are_unique: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """The document of a release in tars. columns: of `metadata.parquet`; table: its (sha256, bytes). tars: (path,
    sha256, bytes) of each.

    Rows are joined with images by the name of the file: images in the tars that have no row any more are left out. If
    names are not unique, an image that changed is in two tars, of which readers would take both: then only the rows are
    described, which name the tar.
    """
    url = facts["provenance"].get("url")
    source = {"fileObject": {"@id": "metadata.parquet"}}
    pictures = _node(
        "FileSet",
        "pictures",
        containedIn=[{"@id": path} for path, *_ in tars],
        encodingFormat="image/jpeg",
        includes=["*.jpg", "*.png", "*.webp", "*.gif", "*.bmp", "*.tif"],
    )
    distribution = [
        _file("metadata.parquet", *table, PARQUET, url),
        *(_file(path, digest, size, "application/x-tar", url) for path, digest, size in tars),
        pictures,
    ]
    rows = [_field("metadata", name, kind, source | _column(name)) for name, kind in columns.items()]
    if not names_are_unique:
        return _document(facts, distribution[:-1], [_records("metadata", rows)], url)
    files = [
        _field("files", name, "string", {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": kind}})
        for name, kind in (("name", "filename"), ("image", "content"))
    ]
    joined = {
        name: _field("images", name, columns[name], {"field": {"@id": f"metadata/{name}"}})
        for name in ("member", "id", "bucket", "class", "label")
    }
    joined["member"] |= {"references": {"field": {"@id": "files/name"}}}
    image = _field("images", "image", "", {"field": {"@id": "files/image"}})
    records = [
        _records("metadata", rows),
        _records("files", files, "name"),
        _records("images", [*joined.values(), image]),
    ]
    return _document(facts, distribution, records, url)


def _document(
    facts: Mapping[str, Any], distribution: list[dict[str, Any]], records: list[dict[str, Any]], url: str | None
) -> dict[str, Any]:
    """The properties that both layouts share."""
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
        "distribution": distribution,
        "recordSet": records,
    }
    if provenance.get("published"):  # a setting, because the current date would make equal runs differ
        document["datePublished"] = provenance["published"]
    return document | _responsible(facts)


def _node(kind: str, id_: str, **properties: Any) -> dict[str, Any]:
    """A node whose name is the last part of its id; only files have their whole path as name."""
    return {"@type": f"cr:{kind}", "@id": id_, "name": id_.rpartition("/")[2], **properties}


def _file(path: str, digest: str, size: int, kind: str, url: str | None) -> dict[str, Any]:
    address = path if url is None else f"{url.rstrip('/')}/{path}"
    facts = {"contentUrl": address, "contentSize": f"{size} B", "encodingFormat": kind, "sha256": digest}
    return _node("FileObject", path, **facts) | {"name": path}


def _records(name: str, fields: list[dict[str, Any]], key: str = "id") -> dict[str, Any]:
    return _node("RecordSet", name, key={"@id": f"{name}/{key}"}, field=fields)


def _field(records: str, name: str, kind: str, source: Mapping[str, Any]) -> dict[str, Any]:
    data_type = "sc:ImageObject" if name == "image" else TYPES.get(kind, "sc:Text")
    return _node("Field", f"{records}/{name}", dataType=data_type, source=source)


def _column(name: str) -> dict[str, Any]:
    """Where a Parquet file has a field; the bytes of an image are inside a struct."""
    return {"extract": {"column": name}} | ({"transform": {"jsonPath": "bytes"}} if name == "image" else {})


def _responsible(facts: Mapping[str, Any]) -> dict[str, Any]:
    provenance = facts["provenance"]
    answers: Mapping[str, Mapping[str, int]] = facts.get("answers", {})
    written = parse_judgement(provenance.get("judgement"))
    starts = [b["start"] for b in facts["buckets"] if b["start"]]
    ends = [b["end"] for b in facts["buckets"] if b["end"]]
    drops = "; ".join(
        f"{stage}: " + ", ".join(f"{reason} {n}" for reason, n in counts["dropped"].items())
        for stage, counts in provenance["counts"].items()
        if counts["dropped"]
    )
    people = {"rai:annotationsPerItem": per_image(answers["people"])} if answers.get("people") else {}
    judges = (provenance.get("agreement") or {}).get("judges", []) if answers.get("judges") else []
    changes = [f"{text}: {n} images" for text, n in facts.get("file_changes", {}).items()]
    return {
        "rai:dataCollection": f"Pictures of the source {provenance['source']}, filtered, fetched, bucketed by time.",
        "rai:dataCollectionType": ["Web Scraping" if provenance["source"] in WEB else "Existing datasets"],
        "rai:dataCollectionMissingData": drops or "Nothing was dropped.",
        "rai:dataCollectionTimeframe": [*starts[:1], *ends[-1:]],
        "rai:dataPreprocessingProtocol": [
            f"Candidates: the images nearest to each class's prompts by {provenance['encoder']['model']}.",
            *([f"What was done to the files: {'; '.join(changes)}."] if changes else []),
        ],
        "rai:dataAnnotationProtocol": " ".join(
            text for text in (rule_text(provenance["validation"]), answers_text(answers)) if text
        ),
        **people,
        "rai:machineAnnotationTools": [str(provenance["encoder"]["model"]), *judges],
        "rai:hasSyntheticData": bool(provenance.get("notice")) and "rendered" in provenance["notice"],
        "prov:wasDerivedFrom": provenance["source"],
        "prov:wasGeneratedBy": f"driftline {provenance['driftline']}, seed {provenance['seed']}",
        **{section.rai: written.get(section.title, MISSING) for section in CARD_SECTIONS if section.rai},
    }
