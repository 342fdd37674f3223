"""Two releases: which scores on one may be compared with scores on the other, bucket for bucket, and why not the
others.

A score is an answer to the same question only if the test images, their labels, classes and features are the same. A
learner's score also depends on all it was trained on: it may be compared only if every bucket up to the last one that
it learned is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from driftline.curate.core.parsing import rows_of
from driftline.curate.release.format import Release
from driftline.curate.release.versions.identity import RECORD, SIDES, Listed, unlabelled_of

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
    names of the buckets up to which training is the same; `learned_up_to_with_unlabelled`, up to which the unlabelled
    images are the same, too.

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
    buckets, same, pairs = [], not everywhere, _pairs(one, two)
    learned = []
    for key, x, y in pairs:
        entry = _bucket(x, y, splits, features, records, everywhere)
        buckets.append({"bucket": key, **entry})
        same = same and entry["compare"] == "all"
        learned += [key] if same else []
    apart = _unlabelled(a, b, pairs)
    before = apart.keys() - {key for key, *_ in pairs}  # of no labelled bucket: learned first of all
    with_unlabelled = [] if before else learned[: next((i for i, key in enumerate(learned) if key in apart), None)]
    return {
        "a": {"name": a.name, "version": a.facts["version"], "path": str(a.path)},
        "b": {"name": b.name, "version": b.facts["version"], "path": str(b.path)},
        "splits": splits,
        "draws": _draws(a, b, splits),
        "features": features,
        "unlabelled": apart,
        "buckets": buckets,
        "learned_up_to": learned,
        "learned_up_to_with_unlabelled": with_unlabelled,
        "comparable": [entry["bucket"] for entry in buckets if entry["compare"] != "none"],
    }


def _unlabelled(a: Release, b: Release, pairs: list[tuple[str, Any, Any]]) -> dict[str, dict[str, int]]:
    """Name of a bucket → unlabelled images that only one of the releases lists with these bytes, where there are
    such; a bucket without labels has its number as name."""
    pools: list[dict[int, set[Listed]]] = [{}, {}]
    for pool, release in zip(pools, (a, b), strict=True):
        for image in unlabelled_of(release.path):
            pool.setdefault(image[1], set()).add((image[0], 0, image[2]))
    named = {key: [entry and pool.pop(entry["index"], set()) for pool, entry in zip(pools, of, strict=True)]
             for key, *of in pairs}  # fmt: skip
    named |= {str(n): [pool.get(n, set()) for pool in pools] for n in sorted(pools[0].keys() | pools[1].keys())}
    only = {key: [len((x or set()) - (y or set())), len((y or set()) - (x or set()))] for key, (x, y) in named.items()}
    return {key: {"only_a": counts[0], "only_b": counts[1]} for key, counts in only.items() if any(counts)}


def _draws(a: Release, b: Release, splits: list[str]) -> dict[str, dict[str, int]]:
    """Split → images that both releases have, and how many of them are on the same side."""
    sides = [{row[0]: row[1:] for row in rows_of(release.table, "id", *splits)} if splits else {} for release in (a, b)]
    both = [(sides[0][id_], sides[1][id_]) for id_ in sides[0].keys() & sides[1].keys()]
    return {
        name: {"in_both": len(both), "same_side": sum(x[k] == y[k] for x, y in both)} for k, name in enumerate(splits)
    }


def comparison_text(about: Mapping[str, Any]) -> str:
    """The same as plain text."""
    other = {name: d for name, d in about["draws"].items() if d["same_side"] < d["in_both"]}
    draws = [
        f"{name} is another draw: of {d['in_both']:,} images in both, {d['same_side']:,} are on the same side."
        for name, d in other.items()
    ]
    head = [f"{side.upper()}: {about[side]['name']} {about[side]['version']} ({about[side]['path']})" for side in "ab"]
    width = max((len(entry["bucket"]) for entry in about["buckets"]), default=0)
    lines = [f"  {e['bucket']:<{width}}  {WORDS[e['compare']]}{_because(e)}" for e in about["buckets"]]
    learned = about["learned_up_to"]
    learners = (
        f"Learners may be compared that were trained up to {learned[-1]} or earlier."
        if learned
        else "No learner of A may be compared with one of B: the first bucket is not the same."
    )
    apart, up_to = ", ".join(about["unlabelled"]), about["learned_up_to_with_unlabelled"]
    which = f"learners that use them, up to {up_to[-1]} only" if up_to else "no learner that uses them"
    note = [f"Unlabelled images differ in {apart}: {which} may be compared."] if apart else []
    return "\n".join([*head, *draws, "May be compared, by bucket:", *lines, learners, *note])


def _because(entry: Mapping[str, Any]) -> str:
    return f": {'; '.join(entry['because'])}" if entry["because"] else ""


def _classes(a: list[str], b: list[str]) -> str:
    only = [f"only {side}: {', '.join(names)}" for side, names in
            (("A", [n for n in a if n not in b]), ("B", [n for n in b if n not in a])) if names]  # fmt: skip
    return f"the classes differ ({'; '.join(only) or 'their order'})"


def _pairs(a: Manifest, b: Manifest) -> list[tuple[str, Any, Any]]:
    """(name, the bucket of A, that of B) in time order; None where a release lacks it. Buckets are the same if they
    begin at the same time; those without a start, if they have the same name."""
    pairs: dict[Any, list[Any]] = {}
    for side, manifest in enumerate((a, b)):
        for entry in manifest["buckets"]:
            pairs.setdefault(entry["start"] or f"name {entry['name']}", [None, None])[side] = entry
    named = [(x or y, x, y) for x, y in pairs.values()]
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
    comparable = {name: _features(x, y, name, splits, sides) for name in features}
    tests_differ = bool(everywhere) or x["end"] != y["end"] or bool(differ["test"])
    because += [f"the features {name} differ" for name, same in comparable.items() if not same and not tests_differ]
    usable = not features or any(comparable.values())
    verdict: Verdict = "none" if tests_differ or not usable else "tests" if differ["train"] else "all"
    comparable = {name: same and verdict != "none" for name, same in comparable.items()}
    return {"compare": verdict, "because": because, "features": comparable}


def _features(x: Manifest, y: Manifest, name: str, splits: list[str], sides: list[str]) -> bool:
    """Whether the images of some sides have the same vectors in both."""
    hashes = [entry["features"].get(name) for entry in (x, y)]
    return None not in hashes and all(hashes[0][split][s] == hashes[1][split][s] for split in splits for s in sides)


def _records(release: Release, splits: list[str]) -> Records:
    records: dict[tuple[int, str, str], set[tuple[Any, ...]]] = {}
    for bucket, *rest in rows_of(release.table, "bucket", *RECORD, *splits):
        record, sides = tuple(rest[: len(RECORD)]), rest[len(RECORD) :]
        for split, side in zip(splits, sides, strict=True):
            records.setdefault((bucket, split, side), set()).add(record)
    return records


def _differing(split: str, side: str, of_a: int, of_b: int, records: list[Records]) -> str:
    """How many images of a side differ, in the first split where some do."""
    a, b = records[0].get((of_a, split, side), set()), records[1].get((of_b, split, side), set())
    what = "test" if side == "test" else "training"
    return f"{len(a - b)} {what} images are only in A and {len(b - a)} only in B ({split})"
