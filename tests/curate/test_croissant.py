"""Case 42: the Croissant of a grown release with mixed licences and formats is valid, is iterated, and says the same as
the card and the header for the Hub."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from support.helpers import release_of, saved

from driftline.curate.core.atomic_io import read_json
from driftline.curate.export import EXPORTS
from driftline.curate.release import Release
from driftline.curate.release.croissant import croissant, responsible
from driftline.curate.release.licences import hub_licences, licence_list, licence_nodes, usage
from driftline.curate.release.settings import ReleaseSettings

pytestmark = pytest.mark.usefixtures("croissant_cache")
DEEDS = "https://creativecommons.org/licenses"
LICENCES: list[tuple[str | None, str | None]] = [
    ("Attribution License", f"{DEEDS}/by/2.0/"),
    ("Attribution-NonCommercial License", f"{DEEDS}/by-nc/2.0/"),
    ("CC BY-SA 4.0", f"{DEEDS}/by-sa/4.0"),
    ("CC0", "http://creativecommons.org/publicdomain/zero/1.0/deed.en"),
    ("Attribution-NoDerivs License", f"{DEEDS}/by-nd/2.0/"),
    ("Public domain | see page", None),
    (None, None),
]
CLASSES = ["tea & cake", 'a "b" <c>#?{d} é', "@type"]
BUCKETS = [
    {"index": b, "name": f"the {b}. year", "start": f"200{b}-01-01T00:00:00Z", "end": f"200{b + 1}-01-01T00:00:00Z"}
    for b in (1, 2)
]
PROVENANCE = {
    "driftline": "0", "notice": "", "source": "flickr", "seed": 7, "encoder": {"model": "clip", "fingerprint": "f"},
    "prompts": {}, "validation": {"method": "none"}, "counts": {"fetch": {"read": 20, "kept": 14, "dropped": {"x": 6}}},
    "judgement": None, "author": "A Lab <lab@example.org>", "published": "2026-11-27", "live": True,
}  # fmt: skip


def picture(i: int, kind: str) -> bytes:
    return saved(Image.new("RGB", (8 + i, 8), (9 * i, 0, 0)), kind)


def mixed(folder: Path, kinds: str = "JP", licences: Any = LICENCES, **provenance: Any) -> Release:
    """Fourteen images of two buckets in four tars. kinds: JPEG (J) or PNG (P) in turn."""
    rows = [
        {"id": f"i{i:02d}", "bucket": 1 + i // 7, "concept": CLASSES[i % 3], "user": f"u{i}", "uploaded": i,
         "licence": licences[i % len(licences)][0], "licence_url": licences[i % len(licences)][1],
         "width": 8 + i, "height": 8}
        for i in range(14)
    ]  # fmt: skip
    kind = [{"J": ("JPEG", "jpg"), "P": ("PNG", "png")}[kinds[i % len(kinds)]] for i in range(14)]
    images = {row["id"]: (picture(i, kind[i][0]), kind[i][1]) for i, row in enumerate(rows)}
    return release_of(
        rows, images, np.zeros((14, 2), np.float16), BUCKETS, CLASSES, PROVENANCE | provenance, folder,
        ReleaseSettings(name="mixed", version="1.1.0"), shard_images=4,
    )  # fmt: skip


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return mixed(tmp_path_factory.mktemp("croissant") / "release")


@pytest.fixture(scope="module")
def hub(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "export"
    EXPORTS["huggingface"](release, out)
    return out


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def iterated(jsonld: Any, records: str = "images", **mapping: str) -> tuple[Any, list[dict[str, Any]]]:
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=jsonld, mapping=mapping)
    rows = [{key.rpartition("/")[2]: text(v) for key, v in row.items()} for row in dataset.records(records)]
    return dataset.metadata, rows


@pytest.mark.parametrize("layout", ["tars", "parquet"])
def test_case_42_mlcroissant_finds_no_fault_and_iterates_every_image_with_its_licence(release, hub, layout):
    metadata, records = iterated(str((release.path if layout == "tars" else hub) / "croissant.json"))
    assert (metadata.issues.errors, metadata.issues.warnings) == (set(), set())
    assert metadata.ctx.conforms_to.value == "http://mlcommons.org/croissant/1.1"
    expected = {
        row["id"]: (row["class"], row["licence"], row["licence_url"], row["width"], row["member"][-3:])
        for row in release.table.to_pylist()
    }
    suffix = {"JPEG": "jpg", "PNG": "png"}
    read = {
        r["id"]: (r["class"], r["licence"], r["license"], r["image"].width, suffix[r["image"].format]) for r in records
    }
    assert read == expected
    assert len(records) == len(expected)


MINIMAL = ("dataLimitations", "dataBiases", "personalSensitiveInformation", "dataUseCases", "dataSocialImpact")


@pytest.mark.parametrize("layout", ["tars", "parquet"])
def test_case_42_passes_the_checks_that_neurips_publishes(tmp_path: Path, layout: str) -> None:
    """mlcommons/croissant, health/croissant-validator-neurips: the parsed JSON, without its folder, makes a dataset,
    and each record set yields a record. The editor of RAI metadata asks for MINIMAL, a boolean, and PROV nodes."""
    mixed(tmp_path / "r", url="https://huggingface.co/datasets/me/mixed/resolve/main")
    folder = tmp_path / "r"
    if layout == "parquet":
        folder = tmp_path / "hub"
        EXPORTS["huggingface"](Release.open(tmp_path / "r"), folder)
    document = json.loads((folder / "croissant.json").read_text())
    files = {f["@id"]: str(folder / f["@id"]) for f in document["distribution"] if f["@type"] == "cr:FileObject"}
    files |= {"repo": str(folder)} if "repo" in files else {}
    for name in [records["@id"] for records in document["recordSet"]]:
        assert iterated(json.loads((folder / "croissant.json").read_text()), name, **files)[1]
    assert all(isinstance(document[f"rai:{name}"], str) and document[f"rai:{name}"] for name in MINIMAL)
    assert isinstance(document["rai:hasSyntheticData"], bool)
    assert all(entity["@id"] and entity["prov:label"] for entity in document["prov:wasDerivedFrom"])
    for activity in document["prov:wasGeneratedBy"]:
        assert activity["prov:type"]["@id"].startswith("https://www.wikidata.org/wiki/Q")
        assert activity["prov:label"]
        assert activity["sc:description"]
    required = {"@context", "@type", "conformsTo", "description", "license", "name", "url", "creator", "datePublished"}
    assert required <= document.keys()


@pytest.mark.parametrize(("kinds", "formats"), [("JP", ["jpeg", "png"]), ("J", ["jpeg"]), ("P", ["png"])])
def test_case_42_each_format_is_one_set_of_files_and_holds_no_other(tmp_path, kinds, formats):
    document = read_json(mixed(tmp_path / "r", kinds).path / "croissant.json")
    nodes = [node for node in document["distribution"] if node["@type"] == "cr:FileSet"]
    patterns = {"image/jpeg": ["*.jpg"], "image/png": ["*.png"]}
    single = [node for node in nodes if isinstance(node["encodingFormat"], str)]
    assert [node["encodingFormat"] for node in single] == [f"image/{name}" for name in formats]
    assert all(node["includes"] == patterns[node["encodingFormat"]] for node in single)
    (whole,) = (node for node in nodes if node["@id"] == "pictures")
    assert whole["includes"] == [pattern for node in single for pattern in node["includes"]]
    assert len(nodes) == len(formats) + (len(formats) > 1)


def test_case_42_differing_licences_are_a_list_of_addresses_and_of_names_where_none_is_known(release: Release) -> None:
    document = read_json(release.path / "croissant.json")
    addresses = [entry for entry in document["license"] if isinstance(entry, str)]
    assert set(addresses) == {url for _, url in LICENCES if url}
    assert [node for node in document["license"] if isinstance(node, dict)] == [
        {"@type": "sc:CreativeWork", "name": name} for name in ("Public domain | see page", "not stated")
    ]
    assert not any(re.search(r"\s", address) for address in addresses)


@pytest.mark.parametrize(
    ("licences", "expected"),
    [
        ([("CC0", "https://x.org/zero")], "https://x.org/zero"),
        ([("CC0", "https://x.org/zero"), (None, None)],
         ["https://x.org/zero", {"@type": "sc:CreativeWork", "name": "not stated"}]),
        ([("https://x.org/by", None)], "https://x.org/by"),
        ([("mine", "https://x.org/a page")], {"@type": "sc:CreativeWork", "name": "mine"}),
        ([("a", "https://x.org/zero"), ("b", "https://x.org/zero")], "https://x.org/zero"),
    ],
)  # fmt: skip
def test_case_42_one_licence_is_one_node_and_photos_without_one_are_named(licences: Any, expected: Any) -> None:
    """A neighbour: one licence, but some photos without."""
    assert licence_nodes(licence_list(licences)) == expected


NC, ND, ALL = "cc:CommercialUse", "cc:DerivativeWorks", {"cc:Reproduction", "cc:Distribution", "cc:DerivativeWorks"}


@pytest.mark.parametrize(
    ("address", "allowed", "duties", "prohibited", "duo", "hub"),
    [
        (f"{DEEDS}/by/2.0/", ALL, {"cc:Attribution"}, set(), ["42"], "cc-by-2.0"),
        (f"{DEEDS}/by-sa/3.0/de/", ALL, {"cc:Attribution", "cc:ShareAlike"}, set(), ["42"], "cc-by-sa-3.0"),
        (f"{DEEDS}/by-nc-nd/4.0", ALL - {ND}, {"cc:Attribution"}, {NC, ND}, ["42", "46"], "cc-by-nc-nd-4.0"),
        (f"{DEEDS}/by-nd/2.0/", ALL - {ND}, {"cc:Attribution"}, {ND}, ["42"], "other"),
        ("http://creativecommons.org/publicdomain/zero/1.0/", ALL, set(), set(), ["04"], "cc0-1.0"),
        ("https://x.org/by-nc/4.0/", None, set(), set(), [], "other"),
    ],
)
def test_case_42_terms_of_use_follow_from_the_licence(address, allowed, duties, prohibited, duo, hub):
    def actions(rule: Any) -> set[str]:
        return {action["@id"] for action in rule["odrl:action"]} if rule else set()

    entries = licence_list([("x", address)])
    *terms, offer = usage(entries)
    permission = offer.get("odrl:permission")
    assert ("odrl:Offer" in offer["@type"]) == bool(permission)
    assert (actions(permission) or None, actions((permission or {}).get("odrl:duty"))) == (allowed, duties)
    assert actions(offer.get("odrl:prohibition")) == prohibited
    assert [term["termCode"][-2:] for term in terms] == duo
    assert hub_licences(entries) == [hub]


def test_case_42_terms_of_the_whole_are_those_of_its_most_restricted_image(release: Release) -> None:
    codes = [node.get("termCode") for node in read_json(release.path / "croissant.json")["usageInfo"]]
    assert codes[0] == "DUO_0000046"
    assert codes[1:] == [None] * 7, "nothing more is claimed while the terms of one licence are not known"
    two = usage(licence_list([("a", f"{DEEDS}/by/2.0/"), ("b", f"{DEEDS}/by-nc/2.0/")]))
    assert [node["termCode"] for node in two if "termCode" in node] == ["DUO_0000042", "DUO_0000046"]


def nodes_of(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [node for child in value for node in nodes_of(child)]
    return [value, *nodes_of(list(value.values()))] if isinstance(value, dict) else []


def test_case_42_provenance_is_nodes_and_every_id_is_an_iri(tmp_path: Path) -> None:
    """Neighbours: names of classes and of a source that an @id cannot have."""
    answers = {"agreement": {"judged": {"judges": ["a judge"], "unseen_labels": 0, "kept_labels": 1}}}
    release = mixed(tmp_path / "r", source="my pkg:Söurce <1>", **answers)
    facts = release.facts | {"answers": {"people": {"3": 14}, "judges": {"1": 14}}}
    facts["changes"] = {"against": {"name": "mixed", "version": "1.0.0"}}
    document = croissant(facts, {}, [])
    kinds = {"Entity", "Activity", "Agent"}
    for name in ("prov:wasDerivedFrom", "prov:wasGeneratedBy", "prov:wasAttributedTo"):
        for node in nodes_of(document[name]):
            assert node.keys() == {"@id"} or node["@type"].removeprefix("prov:") in kinds
    labels = {node["prov:label"] for node in nodes_of(document) if "prov:label" in node}
    assert {"my pkg:Söurce <1>", "mixed 1.0.0", "driftline 0, seed 7", "people who answered", "a judge"} <= labels
    ids = [node["@id"] for node in nodes_of({**document, "@context": None}) if "@id" in node]
    assert all(re.fullmatch(r"[A-Za-z0-9#:/._%-]+", id_) for id_ in ids), ids
    assert set(CLASSES) <= set(document["keywords"])


RAI = {
    "dataCollection", "dataCollectionType", "dataCollectionMissingData", "dataCollectionRawData",
    "dataCollectionTimeframe", "dataImputationProtocol", "dataManipulationProtocol", "dataPreprocessingProtocol",
    "dataAnnotationProtocol", "dataAnnotationPlatform", "dataAnnotationAnalysis", "dataReleaseMaintenancePlan",
    "personalSensitiveInformation", "dataSocialImpact", "dataBiases", "dataLimitations", "dataUseCases",
    "annotationsPerItem", "annotatorDemographics", "machineAnnotationTools", "hasSyntheticData",
}  # fmt: skip


def test_case_42_responsible_ai_is_complete_and_says_what_is_not_known(release: Release) -> None:
    """Croissant RAI 1.0, "RAI property information": every property."""
    document = read_json(release.path / "croissant.json")
    assert {f"rai:{name}" for name in RAI} == {name for name in document if name.startswith("rai:")}
    assert all(document[f"rai:{name}"] not in ("", []) for name in RAI)
    asked = responsible(release.facts | {"answers": {"people": {"3": 14}}, "file_changes": {}})
    unknown = {name for name, value in asked.items() if str(value).startswith(("Not known", "['Not known"))}
    assert unknown == {
        f"rai:{name}" for name in (*MINIMAL, "dataReleaseMaintenancePlan", "dataAnnotationPlatform",
                                   "dataAnnotationAnalysis", "annotatorDemographics", "dataManipulationProtocol")
    }  # fmt: skip
    assert document["rai:annotationsPerItem"] == "0"
    nobody = {document[f"rai:{name}"] for name in ("dataAnnotationPlatform", "annotatorDemographics")}
    assert nobody == {"None: no person was asked."}


def test_case_42_a_release_that_does_not_grow_is_not_live(tmp_path: Path, release: Release) -> None:
    still = mixed(tmp_path / "r", "J", live=False).path / "croissant.json"
    assert read_json(still)["isLiveDataset"] is False
    assert read_json(release.path / "croissant.json")["isLiveDataset"] is True


def cells(card: str, first: str) -> list[list[str]]:
    """The rows of the table whose head begins so."""
    table = card[card.index(f"\n| {first} ") :].strip().split("\n\n")[0].splitlines()[2:]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table]


@pytest.mark.parametrize("layout", ["tars", "parquet"])
@pytest.mark.parametrize("author", ["A Lab <lab@example.org>", None])
def test_case_42_card_croissant_and_hub_say_the_same_field_by_field(tmp_path, layout, author):
    folder = mixed(tmp_path / "r", author=author).path
    rows = Release.open(folder).table.to_pylist()
    if layout == "parquet":
        folder = tmp_path / "hub"
        EXPORTS["huggingface"](Release.open(tmp_path / "r"), folder)
    document, whole = read_json(folder / "croissant.json"), (folder / "README.md").read_text(encoding="utf-8")
    _, header, card = whole.split("---\n", 2)
    head = yaml.safe_load(header)
    name, version = re.search(r"^# (\S+) (\S+)$", card, re.M).groups()  # type: ignore[union-attr]
    assert head["pretty_name"] == document["name"] == name == "mixed"
    assert head["version"] == document["version"] == version == "1.1.0"
    listed = [entry if isinstance(entry, str) else entry["name"] for entry in document["license"]]
    table = cells(card, "licence")
    assert head["licences"] == listed == [label if url == "–" else url for label, _, url in table]
    of_records = Counter((row["licence"] or "not stated", row["licence_url"] or "–") for row in rows)
    assert {(label, url): int(n) for label, n, url in table} == dict(of_records)
    counts = {int(n) for n in re.findall(r"^(\d+) images of", document["description"] + "\n" + card, re.M)}
    assert counts | {sum(int(n) for _, n, _ in table)} == {14}
    span = document["rai:dataCollectionTimeframe"]
    in_card = [cells(card, "bucket")[0][1], cells(card, "bucket")[-1][2]]
    assert head["temporal_coverage"].split("/") == document["temporalCoverage"].split("/") == span == in_card
    named = re.search(r"^Creator: (.*)\. Contact: (.*)\.$", card, re.M).groups()  # type: ignore[union-attr]
    assert (head["creator"], head["contact"]) == named
    assert named == (document["creator"]["name"], document["creator"].get("email", "not stated"))
    assert named == (("A Lab", "lab@example.org") if author else ("not stated", "not stated"))
    assert head["source_datasets"] == [node["prov:label"] for node in document["prov:wasDerivedFrom"]]
