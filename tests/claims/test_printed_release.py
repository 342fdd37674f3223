"""Each number that a release prints is counted again here, from its files: counts and sizes differ, many are primes.

Nothing of card, Croissant or writer is imported for the counting: bytes are measured on disk, images counted in the
table, shares divided by hand.
"""

import csv
import hashlib
import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.helpers import ImagesInMemory

from driftline.curate.export.layouts import huggingface as export
from driftline.curate.release import Release
from driftline.curate.release.compose import write_release
from driftline.curate.release.packing import Packed, pack
from driftline.curate.release.settings import ReleaseSettings

CLASSES = ["zebra", "ant", "mole"]  # neither alphabetical nor in the order of their counts
IMAGES = {(3, "zebra"): 7, (3, "ant"): 11, (3, "mole"): 3, (5, "zebra"): 5, (5, "ant"): 2, (5, "mole"): 13}
DAYS = {3: ("2003-07-05", "2003-11-13"), 5: ("2005-02-03", "2005-05-29")}  # of each bucket: first, and after the last
LICENCES = ["CC BY", "CC0", "CC BY", "CC BY-SA", "CC BY"]
SPLITS = {"split_0": {3: 5, 5: 2}, "split_1": {3: 3, 5: 11}}  # tests of each bucket
COUNTS = {
    "ingest": {"read": 131, "kept": 127, "dropped": {"not_utf8": 4}},
    "filter": {"read": 127, "kept": 101, "dropped": {"few_tags": 19, "no_date": 7}},
}
AGREEMENT = {
    "workers": 17, "answers": 2311, "fleiss_kappa": 0.613, "krippendorff_alpha": 0.617, "pairwise": 0.839,
    "gold_answers": 1009, "gold_right": 0.907,
    "judged": {"judges": ["clip"], "unseen_labels": 23, "kept_labels": 41,
               "audit": {"images": 53, "confirmed": 47, "precision_low": 0.787}},
}  # fmt: skip
CHANGES = {
    "images": {"added": 29, "removed": 31, "withdrawn": 37, "other class": 43},
    "against": {"name": "primes", "version": "2.2.0"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of 41 images in tars: two buckets, three classes, two splits."""
    out = tmp_path_factory.mktemp("printed") / "r"
    rng, rows = np.random.default_rng(0), []
    for (bucket, name), n in IMAGES.items():
        start = int(datetime.fromisoformat(DAYS[bucket][0]).replace(tzinfo=UTC).timestamp())
        for id_, after in rng.integers(10**6, size=(n, 2)).tolist():
            rows.append({"id": str(id_), "bucket": bucket, "class": name, "uploaded": start + after})
    rng.shuffle(rows)  # type: ignore[arg-type]
    rows.sort(key=lambda row: row["bucket"])  # as shards are: bucket after bucket
    sides: dict[str, list[str]] = {name: ["train"] * len(rows) for name in SPLITS}
    for split, of_bucket in SPLITS.items():
        for bucket, n in of_bucket.items():
            for i in rng.permutation([i for i, row in enumerate(rows) if row["bucket"] == bucket])[:n]:
                sides[split][i] = "test"
    images = {}
    for i, row in enumerate(rows):
        row |= {
            "label": CLASSES.index(row["class"]), "user": f"u{i % 13}", "group": f"g{i % 13}",
            "licence": LICENCES[i % 5], "title": f"title {i}", "creator": f"creator {i}", "score": float(rng.random()),
            "people": 5 if i % 7 == 0 else 3, "judges": 1 if i < 23 else 0,
            "changes": "metadata removed" if i < 19 else None,
        }  # fmt: skip
        images[row["id"]] = (rng.bytes(101 + 2 * i), "jpg")
    packed = pack(rows, ImagesInMemory(images), out / "shards", out.parent / "records", 17, False)
    buckets = [
        {"index": b, "name": str(b), "start": f"{first}T00:00:00Z", "end": f"{last}T00:00:00Z"}
        for b, (first, last) in DAYS.items()
    ]
    provenance: dict[str, Any] = {
        "driftline": "0", "notice": "", "source": "yfcc", "seed": 47,
        "encoder": {"model": "m", "fingerprint": "f" * 64}, "counts": COUNTS,
        "prompts": {"ant": ["an ant"], "mole": ["a mole", "moles"], "zebra": ["a zebra"]},
        "validation": {"method": "crowd", "workers": 5, "agree": 3, "rule": "exact"}, "judgement": None,
        "agreement": AGREEMENT, "published": "2007-03-01",
    }  # fmt: skip
    vectors = {"clip": rng.normal(size=(len(rows), 2)).astype(np.float16)}
    rules = ReleaseSettings(name="primes", version="2.3.0", test_share=0.3)
    copies = np.arange(len(rows))
    copies[[1, 4]], copies[[8, 9]] = 0, 7  # five images in two groups: 0, 1, 4 and 7, 8, 9
    write_release(
        packed, vectors, buckets, CLASSES, sides, provenance, out, rules, copies=copies,
        changes=CHANGES, withdrawn=[("a", "1"), ("b", "1"), ("c", "2")],
        unlabelled=(1999, {"near_copy_of_tests": 53, "uploader_of_tests": 59}, Packed([], {})),
    )  # fmt: skip
    return out


def _table(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "metadata.parquet").to_pylist()  # type: ignore[no-any-return]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_croissant_names_every_file_with_its_bytes_and_checksum(folder: Path) -> None:
    document = json.loads((folder / "croissant.json").read_text())
    listed = {f["contentUrl"]: f for f in document["distribution"] if f["@type"] == "cr:FileObject"}
    tars = {p.relative_to(folder).as_posix() for p in folder.rglob("*.tar")}
    assert listed.keys() == tars | {"metadata.parquet"}
    for path, facts in listed.items():
        assert facts["contentSize"] == f"{(folder / path).stat().st_size} B"
        assert facts["sha256"] == _digest(folder / path)


def test_croissant_counts_images_classes_buckets_answers_and_what_was_dropped(folder: Path) -> None:
    document = json.loads((folder / "croissant.json").read_text())
    rows = _table(folder)
    buckets, classes = ({row[name] for row in rows} for name in ("bucket", "class"))
    assert re.findall(r"\d+", document["description"]) == [str(len(part)) for part in (rows, classes, buckets)]
    assert document["rai:dataCollectionTimeframe"] == ["2003-07-05T00:00:00Z", "2005-05-29T00:00:00Z"]
    assert document["rai:annotationsPerItem"] == "3 to 5"
    assert document["rai:dataAnnotationProtocol"].endswith(
        "Published images have 3 to 5 answers of people (3: 35 images, 5: 6 images) and 0 to 1 of models "
        "(0: 18 images, 1: 23 images)."
    )
    for what in ("metadata removed: 19 images", "none: 22 images"):
        assert what in document["rai:dataPreprocessingProtocol"][1]
    assert re.findall(r"(\w+) (\d+)", document["rai:dataCollectionMissingData"]) == [
        ("not_utf8", "4"), ("few_tags", "19"), ("no_date", "7"),
    ]  # fmt: skip
    assert document["datePublished"] == "2007-03-01"
    agents = [agent["prov:label"] for a in document["prov:wasGeneratedBy"] for agent in a["prov:wasAssociatedWith"]]
    assert agents[0].endswith("seed 47")
    assert document["version"] == "2.3.0"


def _lines(card: str, first: str) -> dict[str, list[str]]:
    """The rows of the table whose head begins so: first cell → others."""
    after = card[card.index(f"\n| {first} ") :].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in after]
    size = next((i for i, line in enumerate(after) if not line.startswith("|")), len(after))
    return {first: others for first, *others in cells[:size]}


def test_the_card_counts_each_bucket_class_split_and_licence(folder: Path) -> None:
    card, rows = (folder / "README.md").read_text(), _table(folder)
    cells = Counter((row["bucket"], row["class"]) for row in rows)
    assert dict(cells) == IMAGES
    for bucket, (first, last) in DAYS.items():
        counts = [str(cells[bucket, name]) for name in CLASSES]
        assert _lines(card, "bucket")[str(bucket)] == [f"{first}T00:00:00Z", f"{last}T00:00:00Z", *counts]
    tests = [sum(row[name] == "test" for row in rows) for name in SPLITS]
    assert f"Test images: {tests[0]}, {tests[1]}." in card
    assert tests == [7, 14]
    assert _lines(card, "licence") == {name: [str(n), "–"] for name, n in Counter(r["licence"] for r in rows).items()}
    assert f"{len(rows)} images of 3 classes in 2 time buckets" in card


def test_the_card_says_how_well_each_split_represents_the_images(folder: Path) -> None:
    shown, rows = _lines((folder / "README.md").read_text(), "split"), _table(folder)
    groups = Counter(row["group"] for row in rows)
    cells = Counter((row["bucket"], row["class"]) for row in rows)

    def too_large(group: str) -> bool:
        """More images of the whole, of a bucket or of a class than are tested there (30 %, rounded up), or all."""
        for value in (lambda r: 0), (lambda r: r["bucket"]), (lambda r: r["class"]):
            own, whole = Counter(value(r) for r in rows if r["group"] == group), Counter(map(value, rows))
            if any(n > min(max(1, -(-3 * whole[v] // 10)), whole[v] - 1) for v, n in own.items()):
                return True
        return False

    large = {group for group in groups if too_large(group)}
    for name in SPLITS:
        tests = [row for row in rows if row[name] == "test"]
        shares = [sum((r["bucket"], r["class"]) == cell for r in tests) / n for cell, n in cells.items()]
        share, span, _, untested, _, of_tests = shown[f"`{name}`"]
        assert share == f"{100 * len(tests) / len(rows):.1f} %"
        assert span == f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"
        assert untested == (", ".join(sorted(set(CLASSES) - {r["class"] for r in tests})) or "none")
        tested = {r["group"] for r in tests} - large
        assert of_tests == f"{np.mean([groups[g] for g in tested]):.2f}"


def test_the_card_prints_what_it_was_given_unchanged(folder: Path) -> None:
    card = " ".join((folder / "README.md").read_text().split())
    for stage, c in COUNTS.items():
        reasons = ", ".join(f"{reason} {n}" for reason, n in c["dropped"].items()).replace("_", r"\_")  # type: ignore[attr-defined]
        assert f"| {stage} | {c['read']} | {c['kept']} | {reasons} |" in card
    for sentence in (
        "| metadata removed | 19 |",
        "17 workers gave 2,311 answers; Fleiss' κ 0.613, Krippendorff's α 0.617, equal pairs 0.839.",
        "Of their 1,009 answers to gold questions, 90.7% were correct.",
        "No person saw 23 of the 41 accepted labels; of 53 images that models had accepted, drawn at random, people "
        "confirmed 47: a precision of 88.7%, at least 78.7%",
        "6 of 41 images are in 2 groups; in several buckets: 0;",
        "`WITHDRAWN.csv` lists 3 images that",
        "29 images added, 31 removed, 37 withdrawn, 43 with another class",
        "`unlabelled.parquet` lists 1,999 further images",
        "59 photos by such uploaders and 53 near-duplicates are not in the list",
    ):
        assert sentence in card, sentence


def test_scores_of_a_class_are_those_of_its_own_images(folder: Path) -> None:
    shown, rows = _lines((folder / "README.md").read_text(), "class"), _table(folder)
    for name in CLASSES:
        scores = np.sort([row["score"] for row in rows if row["class"] == name])
        expected = [scores[0], np.median(scores), scores[-1]]
        assert [float(cell) for cell in shown[name][1:]] == pytest.approx(expected, abs=6e-5)


def test_the_attribution_says_which_files_were_changed(folder: Path) -> None:
    listed = list(csv.DictReader((folder / "ATTRIBUTION.csv").open()))
    rows = {row["id"]: row for row in _table(folder)}
    assert sum(line["changes"] == "metadata removed" for line in listed) == 19
    assert [line["id"] for line in listed] == list(rows)
    for line in listed:
        assert all(rows[line["id"]][key] == line[key] for key in ("title", "creator", "licence", "sha256"))


def test_checksums_are_of_all_files(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS"}
    assert listed == {name: _digest(path) for name, path in files.items()}


def test_the_parquet_layout_counts_its_own_files(folder: Path, tmp_path: Path) -> None:
    export(Release.open(folder), tmp_path)
    document = json.loads((tmp_path / "croissant.json").read_text())
    files = {p.relative_to(tmp_path).as_posix(): p for p in (tmp_path / "data").iterdir()}
    listed = {f["contentUrl"]: f for f in document["distribution"] if f["@type"] == "cr:FileObject"}
    assert listed.keys() == files.keys()
    for name, path in files.items():
        assert (listed[name]["contentSize"], listed[name]["sha256"]) == (f"{path.stat().st_size} B", _digest(path))
    rows = Counter({name[12:14]: pq.read_metadata(path).num_rows for name, path in files.items()})
    assert rows == Counter(f"{row['bucket']:02d}" for row in _table(folder))
