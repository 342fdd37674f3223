"""Two releases: which scores on one may be compared with scores on the other, bucket for bucket.

A score is an answer to the same question only if the test images, their labels, classes and features are the same. A
learner's score also depends on all it was trained on: it may be compared only if every bucket up to the last one that
it learned is the same.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from driftline.curate.release.format import Release
from driftline.curate.release.versions.identity import Listed, unlabelled_of

WORDS = {"all": "all scores", "tests": "only scores of one model that is tested on it", "none": "no score"}
Manifest = Mapping[str, Any]


def compare_releases(a: Release, b: Release) -> dict[str, Any]:
    """What `driftline compare A B --json` prints: for each bucket a verdict with reasons, and `learned_up_to`, the
    names of the buckets up to which training is the same.

    Raises IntegrityError if BUCKETS.json of a release does not describe its images.
    """
    one, two = a.identity(), b.identity()
    splits = [name for name in a.facts["splits"] if name in b.facts["splits"]]
    features = [name for name in a.facts["features"] if name in b.facts["features"]]
    everywhere = [] if one["classes"] == two["classes"] else ["other classes"]
    everywhere += [] if splits else ["no split in common"]
    pairs: dict[Any, list[Any]] = {}  # buckets are the same if they begin at the same time, or have the same name
    for side, manifest in enumerate((one, two)):
        for entry in manifest["buckets"]:
            pairs.setdefault(entry["start"] or f"name {entry['name']}", [None, None])[side] = entry
    pools = [_unlabelled(release, manifest) for release, manifest in ((a, one), (b, two))]
    buckets = []
    for x, y in sorted(pairs.values(), key=_place):
        verdict = _verdict(x, y, splits, features, everywhere)
        if x and y and pools[0].get(x["index"]) != pools[1].get(y["index"]):
            verdict["because"].append("other unlabelled images, which some learners use")
        buckets.append({"bucket": str((x or y)["name"]), **verdict})
    return {
        "a": {"name": a.name, "version": a.facts["version"], "path": str(a.path)},
        "b": {"name": b.name, "version": b.facts["version"], "path": str(b.path)},
        "buckets": buckets,
        "learned_up_to": [e["bucket"] for e in takewhile(lambda entry: entry["compare"] == "all", buckets)],
        "comparable": [entry["bucket"] for entry in buckets if entry["compare"] != "none"],
    }


def _place(pair: list[Any]) -> tuple[str, int]:
    entry = pair[0] or pair[1]
    return entry["start"] or "", entry["index"]


def _unlabelled(release: Release, manifest: Manifest) -> dict[int, set[Listed]]:
    """Labelled bucket → its unlabelled images; those before the first one belong to it."""
    pools: dict[int, set[Listed]] = {}
    first = min((entry["index"] for entry in manifest["buckets"]), default=0)
    for id_, bucket, digest in unlabelled_of(release.path):
        pools.setdefault(max(first, bucket), set()).add((id_, 0, digest))
    return pools


def _verdict(
    x: Manifest | None, y: Manifest | None, splits: list[str], features: list[str], everywhere: list[str]
) -> dict[str, Any]:
    """The verdict on one bucket: `compare` (all, tests, none), `because`, and `features`: name → whether scores on them
    may be compared."""
    if x is None or y is None:
        return {"compare": "none", "because": [f"only {'A' if y is None else 'B'} has this bucket"], "features": {}}
    of_splits = x["splits"], y["splits"]
    of_features = {name: (x["features"][name], y["features"][name]) for name in features}

    def same(hashes: Any, side: str) -> bool:
        return all(hashes[0][split][side] == hashes[1][split][side] for split in splits)

    tests = list(everywhere)
    tests += [] if x["end"] == y["end"] else ["another end"]
    tests += [] if same(of_splits, "test") else ["other tests"]
    train = [] if same(of_splits, "train") else ["other training images"]
    usable = {n: same(of, "test") and (bool(train) or same(of, "train")) for n, of in of_features.items()}
    other = [f"other features {name}" for name, good in usable.items() if not good and not tests]
    compare = "none" if tests or (features and not any(usable.values())) else "tests" if train else "all"
    usable = {name: good and compare != "none" for name, good in usable.items()}
    return {"compare": compare, "because": [*tests, *train, *other], "features": usable}


def comparison_text(about: Mapping[str, Any]) -> str:
    """`compare_releases` for people."""
    lines = [f"{side.upper()}  {about[side]['name']} {about[side]['version']}  {about[side]['path']}" for side in "ab"]
    for entry in about["buckets"]:
        because = f": {', '.join(entry['because'])}" if entry["because"] else ""
        lines.append(f"  {entry['bucket']}  {WORDS[entry['compare']]}{because}")
    learned = about["learned_up_to"]
    return "\n".join([*lines, f"Learners may be compared if trained up to: {learned[-1] if learned else 'none'}"])
