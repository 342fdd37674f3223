"""Croissant 1.1 metadata of a release in tars or in Parquet: files, columns, licences, provenance, terms of use.

The vocabulary is that of MLCommons (docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html; its Appendix 1 is
CONTEXT). Facts come from `release.json` and the sections of the judgement file; what neither says is "Not known".
mlcroissant 1.1.1 reads 1.1, but not `excludes` and no FileSet in a FileSet.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from driftline.curate.images.changes import alters
from driftline.curate.release.data_card import CARD_SECTIONS, coverage, maker, parse_judgement, time_span
from driftline.curate.release.licences import NOT_STATED, licence_nodes, listed, usage
from driftline.curate.validation.answers.verdicts import agreement_texts, answers_text, per_image, rule_text

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "odrl": "http://www.w3.org/ns/odrl/2/",
    "cc": "http://creativecommons.org/ns#",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{
        name: f"cr:{name}"
        for name in (
            "annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes", "extract",
            "field", "fileProperty", "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset",
            "jsonPath", "key", "md5", "parentField", "path", "readLines", "recordSet", "references", "regex",
            "repeated", "replace", "samplingRate", "sdVersion", "separator", "source", "subField", "transform",
            "unArchive", "value",
        )
    },
}  # fmt: skip
PARQUET = "application/x-parquet"
TYPES = {"string": "sc:Text", "int64": "sc:Integer", "int32": "sc:Integer", "float": "sc:Float"}
FORMATS = {
    "jpg": "image/jpeg", "png": "image/png", "webp": "image/webp", "gif": "image/gif", "bmp": "image/bmp",
    "tif": "image/tiff",
}  # fmt: skip
LICENCE = {"dataType": "sc:URL", "equivalentProperty": "sc:license"}
NO_CHECKSUM = "https://github.com/mlcommons/croissant/issues/80"  # mlcroissant asks for one, and git has none
HUB = re.compile(r"(https://huggingface\.co/datasets/[\w.-]+/[\w.-]+)/resolve/[^/]+/?")
ACTIVITIES = {  # what was done → its item of Wikidata, as NeurIPS's editor of RAI metadata has it; stages
    "Data collection": ("Q4929239", ("ingest", "filter", "fetch")),
    "Data preprocessing": ("Q5227332", ("bucket", "embed", "retrieve")),
    "Data annotation": ("Q109719325", ("ask", "tally")),
}
UNWRITTEN = "Not known: the makers of the release have not written it."
USERS = "User-generated content data"
SOURCES: dict[str, tuple[str | None, tuple[str, ...]]] = {  # source → its page; words of Croissant RAI 1.0
    "yfcc": ("http://projects.dfki.uni-kl.de/yfcc100m/", ("Secondary Data analysis", "Web Scraping", USERS)),
    "flickr": ("https://www.flickr.com/", ("Web API", USERS)),
    "huggingface": (None, ("Secondary Data analysis",)),
}


def croissant(
    facts: Mapping[str, Any], columns: Mapping[str, str], files: Sequence[tuple[str, str, int]], url: str | None = None
) -> dict[str, Any]:
    """The document of a release in Parquet.

    facts: content of `release.json`. columns: column → Arrow type of the Parquet files. files: (path, sha256, bytes) of
    each. url: address of the folder; None: paths are relative to the document.
    """
    parquet = _node("FileSet", "parquet-files", encodingFormat=PARQUET, includes="data/*.parquet")
    distribution = [*(_file(path, digest, size, PARQUET, url) for path, digest, size in files), parquet]
    if repository := HUB.fullmatch(url or ""):  # of files with addresses, mlcroissant reads sets in archives and in git
        parquet["containedIn"] = {"@id": "repo"}
        git = {"contentUrl": repository[1], "encodingFormat": "git+https", "sha256": NO_CHECKSUM}
        distribution.insert(0, _node("FileObject", "repo", **git))  # as the Hub's own Croissant has it
    fields = _columns("images", columns, {"fileSet": {"@id": "parquet-files"}})
    return _document(facts, distribution, [_records("images", fields)], url)


def croissant_tars(
    facts: Mapping[str, Any], columns: Mapping[str, str], table: tuple[str, int], tars: Sequence[tuple[str, str, int]],
    extensions: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """The document of a release in tars. columns: of `metadata.parquet`; table: its (sha256, bytes). tars: (path,
    sha256, bytes) of each. extensions: of the images, each once.

    Rows are joined with images by the name of the file.
    """
    url = facts["provenance"].get("url")
    distribution = [
        _file("metadata.parquet", *table, PARQUET, url),
        *(_file(path, digest, size, "application/x-tar", url) for path, digest, size in tars),
    ]
    rows = _columns("metadata", columns, {"fileObject": {"@id": "metadata.parquet"}})
    files = [
        _field("files", name, "string", {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": kind}})
        for name, kind in (("name", "filename"), ("image", "content"))
    ]
    joined = {
        name: _field("images", name, columns.get(name, "string"), {"field": {"@id": f"metadata/{name}"}})
        for name in ("member", "id", "bucket", "class", "label", "licence", "license")
    }
    joined["member"] |= {"references": {"field": {"@id": "files/name"}}}
    joined["license"] |= LICENCE
    image = _field("images", "image", "", {"field": {"@id": "files/image"}})
    records = [
        _records("metadata", rows),
        _records("files", files, "name"),
        _records("images", [*joined.values(), image]),
    ]
    return _document(facts, [*distribution, *_pictures(tars, extensions)], records, url)


def _document(
    facts: Mapping[str, Any], distribution: list[dict[str, Any]], records: list[dict[str, Any]], url: str | None
) -> dict[str, Any]:
    """The properties that both layouts share."""
    provenance, entries = facts["provenance"], listed(facts)
    creator, contact = maker(facts)
    reached = {} if contact == NOT_STATED else {"email" if "@" in contact else "url": contact}
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
        "license": licence_nodes(entries),
        "usageInfo": usage(entries),
        "url": url or "https://pypi.org/project/driftline/",  # required; without one, the page of what wrote it
        "creator": {"@type": "sc:Organization", "name": creator, **reached},
        "citeAs": f"{facts['name']} {facts['version']}, built with driftline {provenance['driftline']}",
        "isLiveDataset": bool(provenance.get("live")),
        "keywords": ["continual learning", "temporal", *facts["classes"]],
        "distribution": distribution,
        "recordSet": records,
    }
    if span := coverage(facts):
        document["temporalCoverage"] = span
    if provenance.get("published"):  # a setting, because the current date would make equal runs differ
        document["datePublished"] = provenance["published"]
    return document | responsible(facts) | _provenance(facts)


def _pictures(tars: Sequence[tuple[str, str, int]], extensions: Sequence[str]) -> list[dict[str, Any]]:
    """One FileSet for each format of images. If there are several, `pictures` is their union, which readers need
    because a Field has one source."""
    inside: dict[str, Any] = {"containedIn": [{"@id": path} for path, *_ in tars]}
    patterns: dict[str, list[str]] = {}
    for extension in extensions:
        patterns.setdefault(FORMATS.get(extension, f"image/{extension}"), []).append(f"*.{extension}")
    sets = [
        _node("FileSet", f"pictures-{kind.rpartition('/')[2]}", **inside, encodingFormat=kind, includes=includes)
        for kind, includes in patterns.items()
    ]
    every = {"encodingFormat": [*patterns], "includes": [f"*.{extension}" for extension in extensions]}
    return [sets[0] | {"@id": "pictures", "name": "pictures"}] if len(sets) == 1 else [
        *sets, _node("FileSet", "pictures", **inside, **every),
    ]  # fmt: skip


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


def _columns(records: str, columns: Mapping[str, str], source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A field for each column of Parquet files; the bytes of an image are inside a struct. `license` is the address of
    a record's licence, `licence` its name."""
    fields = []
    for name, kind in columns.items():
        place = {"extract": {"column": name}} | ({"transform": {"jsonPath": "bytes"}} if name == "image" else {})
        fields.append(_field(records, name, kind, {**source, **place}))
    if "licence_url" in columns:
        address = {**source, "extract": {"column": "licence_url"}}
        fields.append(_field(records, "license", "string", address) | LICENCE)
    return fields


def _provenance(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The `prov:` properties (Croissant 1.1, "Provenance Representation"): what the release was derived from, what made
    it, and their agents."""
    provenance = facts["provenance"]
    name = provenance["source"]
    source = _prov("Entity", SOURCES.get(name, (None,))[0] or f"#source-{quote(name, safe='')}", name)
    entities = [source]
    if former := (facts.get("changes") or {}).get("against"):
        entities.append(_prov("Entity", "#previous-version", f"{former['name']} {former['version']}"))
    program = f"driftline {provenance['driftline']}, seed {provenance['seed']}"
    software, encoder = (_prov("Agent", "#driftline", program),
                         _prov("Agent", "#encoder", str(provenance["encoder"]["model"])))  # fmt: skip
    people = [_prov("Agent", "#people", "people who answered")] if facts.get("answers", {}).get("people") else []
    judges = [_prov("Agent", f"#judge-{i}", judge) for i, judge in enumerate(judges_of(facts))]
    agents = ([software], [software, encoder], [software, *people, *judges])
    activities = []
    for (label, (item, stages)), own in zip(ACTIVITIES.items(), agents, strict=True):
        counts = [(stage, provenance["counts"][stage]) for stage in stages if stage in provenance["counts"]]
        text = "; ".join(f"{stage} read {count['read']} and kept {count['kept']}" for stage, count in counts)
        activity = _prov("Activity", f"#{label.lower().replace(' ', '-')}", label)
        activity |= {
            "prov:type": {"@id": f"https://www.wikidata.org/wiki/{item}"},
            "sc:description": text or "Not known: no stage is recorded.",
            "prov:wasAssociatedWith": own,
        }
        activities.append(activity)
    activities[0]["prov:used"] = {"@id": source["@id"]}
    creator, _ = maker(facts)
    attributed = {} if creator == NOT_STATED else {"prov:wasAttributedTo": _prov("Agent", "#creator", creator)}
    return {"prov:wasDerivedFrom": entities, "prov:wasGeneratedBy": activities, **attributed}


def _prov(kind: str, id_: str, label: str) -> dict[str, Any]:
    return {"@type": f"prov:{kind}", "@id": id_, "prov:label": label}


def responsible(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The `rai:` properties (Croissant RAI 1.0). facts: content of `release.json`."""
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
        "rai:dataCollection": f"Images of the source {provenance['source']}, filtered, fetched, bucketed by time.",
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


def judges_of(facts: Mapping[str, Any]) -> list[str]:
    """Names of the models that answered about published images."""
    agreement = facts["provenance"].get("agreement") or {}
    return list(agreement.get("judged", {}).get("judges", [])) if facts.get("answers", {}).get("judges") else []
