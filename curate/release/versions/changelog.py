"""Successive releases: how much changed, which version number this requires, and which images were withdrawn."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import csv_text
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.parsing import rows_of
from driftline.curate.metadata.withdrawals import PUBLISHED, listed, listed_withdrawals, public_digest
from driftline.curate.release.format import Release
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.release.versions.identity import Listed, unlabelled_of

LEVELS = ("major", "minor", "patch")
OTHER = {  # count → the columns in which its images differ from those of the version before
    "other bucket": ("bucket",),
    "other class": ("class",),
    "other content": ("sha256",),
    "other upload time": ("uploaded",),
    "other licence": ("licence", "licence_url"),
}
MAJOR = ("other bucket", "other class", "other content", "other upload time", "other side")  # they change scores
PARTS = ("classes", "splits", "features")


def changes_since(
    before: Release, rows: Sequence[Mapping[str, Any]], classes: Sequence[str], splits: Mapping[str, Sequence[str]],
    withdrawn: Iterable[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The differences between the release `before` and the new `rows` (dicts with the columns of OTHER) and `splits`.

    Counts of images that were added, removed, withdrawn (removed on request of their owners), or that have another
    value in a column of OTHER or another side of a split; splits and classes that came or went; and the level of the
    change. Scores on two releases are comparable only if just the last number of their versions differs. `with_parts`
    adds what is known later.
    """
    columns = list(dict.fromkeys(column for names in OTHER.values() for column in names))
    old = {id_: dict(zip(columns, values, strict=True)) for id_, *values in rows_of(before.table, "id", *columns)}
    new = {row["id"]: row for row in rows}
    both, gone, requested = set(old) & set(new), set(old) - set(new), set(withdrawn)
    common = [name for name in before.classes if name in classes]
    order = [] if common == [name for name in classes if name in common] else list(classes)
    changes: dict[str, Any] = {
        "against": {"name": before.name, "version": before.facts["version"]},
        "classes": _names(before.classes, classes) | {"in another order": order},
        "splits": _names(before.facts["splits"], splits),
        "images": {
            "added": len(set(new) - set(old)),
            "removed": len(gone - requested),
            "withdrawn": len(gone & requested),
            **{what: sum(_other(old[i], new[i], names) for i in both) for what, names in OTHER.items()},
            "other side": _moved(before, [row["id"] for row in rows], splits),
        },
    }
    return changes | {"level": _level(changes)}


def with_parts(
    changes: Mapping[str, Any], before: Release, ids: Sequence[str], vectors: Mapping[str, npt.NDArray[Any]],
    unlabelled: Iterable[Listed], withdrawn: Iterable[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The changes with those of features and of unlabelled images. ids: (N,) of the images. vectors: name → (N, D)."""
    features = _names(before.facts["features"], vectors)
    place = {id_: i for i, id_ in enumerate(before.table["id"].to_pylist())}
    pairs = [(i, place[id_]) for i, id_ in enumerate(ids) if id_ in place]
    now, then = np.array(pairs, np.int64).reshape(-1, 2).T
    features["changed"] = [
        name
        for name in before.facts["features"]
        if name in vectors and not _same(before.features(name)[then], np.asarray(vectors[name])[now])
    ]
    was, listed = ({id_: rest for id_, *rest in images} for images in (unlabelled_of(before.path), unlabelled))
    gone, requested = was.keys() - listed.keys(), set(withdrawn)
    counts = {
        "added": len(listed.keys() - was.keys()),
        "removed": len(gone - requested),
        "withdrawn": len(gone & requested),
        "changed": sum(was[id_] != listed[id_] for id_ in was.keys() & listed.keys()),
    }
    complete = {**changes, "features": features, "unlabelled": counts}
    return complete | {"level": _level(complete)}


def _level(changes: Mapping[str, Any]) -> str:
    """The first number of a version that must grow: scores on the same tests change, images differ, or neither."""
    features, unlabelled, images = changes.get("features", {}), changes.get("unlabelled", {}), changes["images"]
    gone = any(changes["classes"].values()) or changes["splits"]["removed"]
    if gone or any(images[n] for n in MAJOR) or features.get("removed") or features.get("changed"):
        return "major"
    more = [images["added"], images["removed"], changes["splits"]["added"], features.get("added")]
    return "minor" if any(more) or any(unlabelled.get(how) for how in ("added", "removed", "changed")) else "patch"


def _other(old: Mapping[str, Any], new: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any((old[name] or None) != (new.get(name) or None) for name in names)


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


def withdrawn_csv(rows: Sequence[tuple[str, str, str]]) -> str:
    """The text of WITHDRAWN.csv."""
    return csv_text(PUBLISHED, rows)
