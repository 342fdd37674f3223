"""Successive releases: how much changed, which version number this requires, which images were withdrawn; and which
scores on one release may be compared with scores on another, bucket for bucket.

A score is an answer to the same question only if the test images, their labels, classes and features are the same. A
learner's score also depends on all it was trained on: it may be compared only if every bucket up to the last one that
it learned is the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.parsing import rows_of
from driftline.curate.metadata.withdrawals import listed, listed_withdrawals, public_digest
from driftline.curate.release.format import Release
from driftline.curate.release.identity import Listed, unlabelled_of
from driftline.curate.release.settings import ReleaseSettings

LEVELS = ("major", "minor", "patch")
OTHER = {  # count → the columns in which its images differ from those of the version before
    "other bucket": ("bucket",),
    "other class": ("class",),
    "other content": ("sha256",),
    "other upload time": ("uploaded",),
    "other licence": ("licence", "licence_url"),
}
MAJOR = ("other bucket", "other class", "other content", "other upload time", "other split")  # they change scores
PARTS = ("classes", "splits", "features")


def changes_since(
    before: Release, rows: Sequence[Mapping[str, Any]], classes: Sequence[str], splits: Mapping[str, Sequence[str]],
    withdrawn: Iterable[str] = (), vectors: Mapping[str, npt.NDArray[Any]] | None = None,
    unlabelled: Iterable[Listed] = (),
) -> dict[str, Any]:  # fmt: skip
    """The differences between the release `before` and the new N `rows` (dicts with the columns of OTHER) and `splits`.

    Counts of images that were added, removed, withdrawn (removed on request of their owners), or that have another
    value in a column of OTHER or another side of a split; splits and classes that came or went; and the level of the
    change. Scores on two releases are comparable only if just the last number of their versions differs. vectors: name
    → (N, D); None: these and the unlabelled images are not known yet, and are not compared.
    """
    columns = list(dict.fromkeys(column for names in OTHER.values() for column in names))
    old = {id_: dict(zip(columns, values, strict=True)) for id_, *values in rows_of(before.table, "id", *columns)}
    new = {row["id"]: row for row in rows}
    ids, both, requested = [row["id"] for row in rows], set(old) & set(new), set(withdrawn)
    common = [name for name in before.classes if name in classes]
    order = [] if common == [name for name in classes if name in common] else list(classes)
    changes: dict[str, Any] = {
        "against": {"name": before.name, "version": before.facts["version"]},
        "classes": _names(before.classes, classes) | {"in another order": order},
        "splits": _names(before.facts["splits"], splits),
        "images": {
            **_came_and_went(set(old), set(new), requested),
            **{
                what: sum(any((old[i][n] or None) != (new[i].get(n) or None) for n in names) for i in both)
                for what, names in OTHER.items()
            },
            "other split": _moved(before, ids, splits),
        },
    }
    if vectors is not None:
        was, listed = ({id_: rest for id_, *rest in images} for images in (unlabelled_of(before.path), unlabelled))
        changes["features"] = _features(before, ids, vectors)
        changes["unlabelled"] = _came_and_went(set(was), set(listed), requested) | {
            "changed": sum(was[id_] != listed[id_] for id_ in was.keys() & listed.keys())
        }
    return changes | {"level": _level(changes)}


def _came_and_went(old: set[str], new: set[str], requested: set[str]) -> dict[str, int]:
    gone = old - new
    return {"added": len(new - old), "removed": len(gone - requested), "withdrawn": len(gone & requested)}


def _features(before: Release, ids: Sequence[str], vectors: Mapping[str, npt.NDArray[Any]]) -> dict[str, list[str]]:
    """Features that came, went, or have other vectors of the same images. ids: (N,) of the images."""
    place = {id_: i for i, id_ in enumerate(before.table["id"].to_pylist())}
    pairs = [(i, place[id_]) for i, id_ in enumerate(ids) if id_ in place]
    now, then = np.array(pairs, np.int64).reshape(-1, 2).T
    common = [name for name in before.facts["features"] if name in vectors]
    changed = [n for n in common if not _same(before.features(n)[then], np.asarray(vectors[n])[now])]
    return _names(before.facts["features"], vectors) | {"changed": changed}


def _level(changes: Mapping[str, Any]) -> str:
    """The first number of a version that must grow: scores on the same tests change, images differ, or neither."""
    features, unlabelled, images = changes.get("features", {}), changes.get("unlabelled", {}), changes["images"]
    gone = any(changes["classes"].values()) or changes["splits"]["removed"]
    if gone or any(images[n] for n in MAJOR) or features.get("removed") or features.get("changed"):
        return "major"
    more = [images["added"], images["removed"], changes["splits"]["added"], features.get("added")]
    return "minor" if any(more) or any(unlabelled.get(how) for how in ("added", "removed", "changed")) else "patch"


def _same(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    return a.shape == b.shape and a.tobytes() == b.astype(a.dtype).tobytes()


def _names(before: Iterable[str], now: Iterable[str]) -> dict[str, list[str]]:
    return {"added": sorted(set(now) - set(before)), "removed": sorted(set(before) - set(now))}


def _moved(before: Release, ids: Sequence[str], splits: Mapping[str, Sequence[str]]) -> int:
    """How many images are on another side of some split than in `before`."""
    moved: set[str] = set()
    for name in set(splits) & set(before.facts["splits"]):
        old = dict(rows_of(before.table, "id", name))
        moved |= {i for i, side in zip(ids, splits[name], strict=True) if old.get(i, side) != side}
    return len(moved)


def check_version(version: str, changes: Mapping[str, Any]) -> None:
    """Raise BadConfig unless `version` is at least one step of the changes' level above the previous version.

    >>> check_version("1.1.0", {"against": {"version": "1.0.3"}, "level": "minor"})
    """
    before = changes["against"]["version"]
    old, new = (tuple(int(n) for n in v.split(".")) for v in (before, version))
    place = LEVELS.index(changes["level"])
    least = (*old[:place], old[place] + 1, *(0,) * (2 - place))
    if new < least:
        raise BadConfig(
            f"release.version is {version}; the previous release is {before}, and the change is {changes['level']}.",
            f"Expected at least {'.'.join(map(str, least))}.",
            "major: other classes, labels, buckets, times, bytes or vectors, splits that were removed or drawn again; "
            "minor: images, splits or features added, images removed; patch: images withdrawn, licences, the card.",
        )


def changes_markdown(changes: Mapping[str, Any], version: str) -> str:
    """The text of CHANGES.md: a table of counts."""
    counts = [(f"images, {what}", n) for what, n in changes["images"].items()]
    counts += [(f"unlabelled images, {how}", n) for how, n in changes.get("unlabelled", {}).items()]
    counts += [(f"{part}, {how}", len(names)) for part in PARTS for how, names in changes.get(part, {}).items()]
    head = f"# {version}, after {changes['against']['name']} {changes['against']['version']}"
    return "\n".join(
        [head, "", "| what | number |", "|---|---|", *(f"| {what} | {n} |" for what, n in counts if n), ""]
    )


def all_withdrawn(
    before: Release | None, withdrawn: Mapping[str, bool], ids: Iterable[str], settings: ReleaseSettings
) -> list[tuple[str, str, str]]:
    """(salt, digest, since version) of all withdrawn images, which owners of a copy must delete.

    These are the ones that earlier releases list, and those of `withdrawn` (id → whether an earlier release of the run
    held it) that were held, are in the release `before`, or in `ids`, the accepted images of this run.
    """
    rows = [] if before is None else listed_withdrawals(before.path)
    contained = set(ids) | (set(before.table["id"].to_pylist()) if before is not None else set())
    candidates = [id_ for id_, held in withdrawn.items() if held or id_ in contained]
    there = set(listed(candidates, ((salt_, digest) for salt_, digest, _ in rows)))
    salt, version = settings.name, settings.version
    new = [(salt, public_digest(id_, salt), version) for id_ in candidates if id_ not in there]
    return sorted([*rows, *new])


WORDS = {"all": "all scores", "tests": "only scores of one model that is tested on it", "none": "no score"}
Manifest = Mapping[str, Any]


def compare_releases(a: Release, b: Release) -> dict[str, Any]:
    """What `driftline compare A B --json` prints: for each bucket a verdict with reasons, and `learned_up_to`, the
    names of the buckets up to which training is the same."""
    one, two = a.identity(), b.identity()
    splits = [name for name in a.facts["splits"] if name in b.facts["splits"]]
    features = [name for name in one["buckets"][0]["features"] if name in two["buckets"][0]["features"]]
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
    tests += [] if same(of_splits, "test") else ["other test images"]
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
