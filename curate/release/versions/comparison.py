"""Two releases: which scores on one may be compared with scores on the other, bucket for bucket, and why not the
others.

A score is an answer to the same question only if the test images, their labels, classes and features are the same. A
learner's score also depends on all it was trained on: it may be compared only if every bucket up to the last one that
it learned is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from curate.core.parsing import rows_of
from curate.release.format import Release
from curate.release.versions.changelog import unlabelled_of
from curate.release.versions.identity import RECORD, SIDES

Verdict = Literal["all", "tests", "none"]
WORDS: dict[Verdict, str] = {
    "all": "all scores",
    "tests": "only scores of one model that is tested on it",
    "none": "no score",
}
Manifest = Mapping[str, Any]
Records = Mapping[tuple[int, str, str], set[tuple[Any, ...]]]  # bucket, split, side → RECORD of its images


def compare_releases(a: Release, b: Release) -> dict[str, Any]:
    """What `driftline compare A B --json` prints: for each bucket a verdict with reasons, and `learned_up_to`, the
    names of the buckets up to which training is the same.

    Raises IntegrityError if BUCKETS.json of a release does not describe its images.
    """
    one, two = a.identity(), b.identity()
    splits = [name for name in a.facts["splits"] if name in b.facts["splits"]]
    features = [name for name in a.facts["features"] if name in b.facts["features"]]
    everywhere = []
    if one["classes"] != two["classes"]:
        everywhere.append(_classes(one["classes"], two["classes"]))
    if not splits:
        everywhere.append("the releases have no split in common")
    records = [_records(release, splits) for release in (a, b)]
    buckets, same = [], not everywhere
    learned = []
    for key, x, y in _pairs(one, two):
        entry = _bucket(x, y, splits, features, records, everywhere)
        buckets.append({"bucket": key, **entry})
        same = same and entry["compare"] == "all"
        learned += [key] if same else []
    return {
        "a": {"name": a.name, "version": a.facts["version"], "path": str(a.path)},
        "b": {"name": b.name, "version": b.facts["version"], "path": str(b.path)},
        "splits": splits,
        "draws": _draws(a, b, splits),
        "features": features,
        "unlabelled": _unlabelled(a, b),
        "buckets": buckets,
        "learned_up_to": learned,
        "comparable": [entry["bucket"] for entry in buckets if entry["compare"] != "none"],
    }


def _unlabelled(a: Release, b: Release) -> dict[str, dict[str, int]]:
    """Name of a bucket → unlabelled images that only one of the releases lists, where there are such."""
    listed = [set(unlabelled_of(release.path)) for release in (a, b)]
    names = {record["index"]: str(record["name"]) for record in [*b.buckets, *a.buckets]}
    only = [Counter(bucket for _, bucket in mine - other) for mine, other in (listed, listed[::-1])]
    return {
        names.get(bucket, str(bucket)): {"only_a": only[0][bucket], "only_b": only[1][bucket]}
        for bucket in sorted(only[0].keys() | only[1].keys())
    }


def _draws(a: Release, b: Release, splits: list[str]) -> dict[str, dict[str, int]]:
    """Split → images that both releases have, and how many of them are on the same side."""
    sides = [{row[0]: row[1:] for row in rows_of(release.table, "id", *splits)} if splits else {} for release in (a, b)]
    both = [(sides[0][id_], sides[1][id_]) for id_ in sides[0].keys() & sides[1].keys()]
    return {
        name: {"in_both": len(both), "same_side": sum(x[k] == y[k] for x, y in both)} for k, name in enumerate(splits)
    }


def comparison_text(found: Mapping[str, Any]) -> str:
    """The same as plain text."""
    other = {name: d for name, d in found["draws"].items() if d["same_side"] < d["in_both"]}
    draws = [
        f"{name} is another draw: of {d['in_both']:,} images in both, {d['same_side']:,} are on the same side."
        for name, d in other.items()
    ]
    head = [f"{side.upper()}: {found[side]['name']} {found[side]['version']} ({found[side]['path']})" for side in "ab"]
    width = max((len(entry["bucket"]) for entry in found["buckets"]), default=0)
    lines = [f"  {e['bucket']:<{width}}  {WORDS[e['compare']]}{_because(e)}" for e in found["buckets"]]
    learned = found["learned_up_to"]
    said = (
        f"Learners may be compared that were trained up to {learned[-1]} or earlier."
        if learned
        else "No learner of A may be compared with one of B: the first bucket is not the same."
    )
    apart = ", ".join(found["unlabelled"])
    note = [f"Unlabelled images differ in {apart}: no learner that uses them may be compared."] if apart else []
    return "\n".join([*head, *draws, "May be compared, by bucket:", *lines, said, *note])


def _because(entry: Mapping[str, Any]) -> str:
    return f": {'; '.join(entry['because'])}" if entry["because"] else ""


def _classes(a: list[str], b: list[str]) -> str:
    only = [f"only {side}: {', '.join(names)}" for side, names in
            (("A", [n for n in a if n not in b]), ("B", [n for n in b if n not in a])) if names]  # fmt: skip
    return f"the classes differ ({'; '.join(only) or 'their order'})"


def _pairs(a: Manifest, b: Manifest) -> list[tuple[str, Any, Any]]:
    """(name, the bucket of A, that of B) in time order; None where a release lacks it. Buckets are the same if they
    begin at the same time; those without a start, if they have the same name."""
    found: dict[Any, list[Any]] = {}
    for side, manifest in enumerate((a, b)):
        for entry in manifest["buckets"]:
            found.setdefault(entry["start"] or f"name {entry['name']}", [None, None])[side] = entry
    named = [(x or y, x, y) for x, y in found.values()]
    named.sort(key=lambda entry: (entry[0]["start"] or "", entry[0]["index"]))
    return [(str(entry["name"]), x, y) for entry, x, y in named]


def _bucket(
    x: Manifest | None, y: Manifest | None, splits: list[str], features: list[str], records: list[Records],
    everywhere: list[str],
) -> dict[str, Any]:  # fmt: skip
    """The verdict on one bucket: `compare`, `because`, and `features`: name → whether scores on them may be
    compared."""
    if x is None or y is None:
        side = "A" if y is None else "B"
        return {"compare": "none", "because": [f"only {side} has this bucket"], "features": {}}
    because = list(everywhere)
    if x["end"] != y["end"]:
        because.append(f"it ends at {x['end']} in A and at {y['end']} in B")
    differ = {side: [s for s in splits if x["splits"][s][side] != y["splits"][s][side]] for side in SIDES}
    because += [_differing(differ[s][0], s, x["index"], y["index"], records) for s in ("test", "train") if differ[s]]
    sides = ["test"] if differ["train"] else ["test", "train"]
    known = {name: _features(x, y, name, splits, sides) for name in features}
    tests_differ = bool(everywhere) or x["end"] != y["end"] or bool(differ["test"])
    because += [f"the features {name} differ" for name, same in known.items() if not same and not tests_differ]
    usable = not features or any(known.values())
    verdict: Verdict = "none" if tests_differ or not usable else "tests" if differ["train"] else "all"
    known = {name: same and verdict != "none" for name, same in known.items()}
    return {"compare": verdict, "because": because, "features": known}


def _features(x: Manifest, y: Manifest, name: str, splits: list[str], sides: list[str]) -> bool:
    """Whether the images of some sides have the same vectors in both."""
    found = [entry["features"].get(name) for entry in (x, y)]
    return None not in found and all(found[0][split][s] == found[1][split][s] for split in splits for s in sides)


def _records(release: Release, splits: list[str]) -> Records:
    found: dict[tuple[int, str, str], set[tuple[Any, ...]]] = {}
    for bucket, *rest in rows_of(release.table, "bucket", *RECORD, *splits):
        record, sides = tuple(rest[: len(RECORD)]), rest[len(RECORD) :]
        for split, side in zip(splits, sides, strict=True):
            found.setdefault((bucket, split, side), set()).add(record)
    return found


def _differing(split: str, side: str, of_a: int, of_b: int, records: list[Records]) -> str:
    """How many images of a side differ, in the first split where some do."""
    a, b = records[0].get((of_a, split, side), set()), records[1].get((of_b, split, side), set())
    what = "test" if side == "test" else "training"
    return f"{len(a - b)} {what} images are only in A and {len(b - a)} only in B ({split})"
