"""Successive releases: what changed, which version number this requires, and which images were withdrawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
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
EXAMPLES = 20  # ids in a list
OTHER = {  # list → the columns in which its images differ from those of the version before
    "other_bucket": ("bucket",),
    "other_class": ("class",),
    "other_bytes": ("sha256",),
    "other_time": ("uploaded",),
    "other_licence": ("licence", "licence_url"),
}
MAJOR = ("other_bucket", "other_class", "other_bytes", "other_time", "other_side")  # they change scores
BECAUSE = {"removed": "reasons", "other_class": "relabelled"}  # list → its counts by reason


def changes_since(
    before: Release, rows: Sequence[Mapping[str, Any]], classes: Sequence[str], splits: Mapping[str, Sequence[str]],
    withdrawn: Iterable[str] = (), why: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """The differences between the release `before` and the new `rows` (dicts with the columns of OTHER) and `splits`.

    Counts and first ids of images that were added, removed, withdrawn (removed on request of their owners), or that
    have another value in a column of OTHER or another side of a split; splits and classes that came or went; and the
    level of the change. why: id → reason of images that are no longer part of it. Scores on two releases are
    comparable only if just the last number of their versions differs. `with_parts` adds what is known later.
    """
    columns = list(dict.fromkeys(column for names in OTHER.values() for column in names))
    old = {id_: dict(zip(columns, values, strict=True)) for id_, *values in rows_of(before.table, "id", *columns)}
    new = {row["id"]: row for row in rows}
    both = sorted(set(old) & set(new))
    gone, requested = set(old) - set(new), set(withdrawn)
    lists: dict[str, list[str]] = {
        "added": sorted(set(new) - set(old)),
        "removed": sorted(gone - requested),
        "withdrawn": sorted(gone & requested),
        **{what: [i for i in both if _other(old[i], new[i], names)] for what, names in OTHER.items()},
        "other_side": _moved(before, [row["id"] for row in rows], splits),
    }
    relabelled = Counter(f"{old[i]['class']} → {new[i]['class']}" for i in lists["other_class"])
    reasons = Counter(why.get(i, "not in this run") for i in lists["removed"])
    common = [name for name in before.classes if name in classes]
    order = [] if common == [name for name in classes if name in common] else list(classes)
    changes: dict[str, Any] = {
        "against": {"name": before.name, "version": before.facts["version"]},
        "classes": _names(before.classes, classes) | {"in another order": order},
        "splits": _names(before.facts["splits"], splits),
        "relabelled": dict(sorted(relabelled.items())),
        "reasons": dict(sorted(reasons.items())),
        "requested": sorted(requested),
        **{n: {"images": len(ids), "ids": [] if n == "withdrawn" else ids[:EXAMPLES]} for n, ids in lists.items()},
    }
    return changes | {"level": _level(changes)}


def with_parts(
    changes: Mapping[str, Any], before: Release, ids: Sequence[str], vectors: Mapping[str, npt.NDArray[Any]],
    unlabelled: Iterable[Listed],
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
    gone, requested = was.keys() - listed.keys(), set(changes["requested"])
    counts = {
        "added": len(listed.keys() - was.keys()),
        "removed": len(gone - requested),
        "withdrawn": len(gone & requested),
        "changed": sum(was[id_] != listed[id_] for id_ in was.keys() & listed.keys()),
    }
    complete = {**changes, "features": features, "unlabelled": counts}
    del complete["requested"]  # what owners withdrew is named to nobody
    return complete | {"level": _level(complete)}


def _level(changes: Mapping[str, Any]) -> str:
    """The first number of a version that must grow: scores on the same tests change, images differ, or neither."""
    features, unlabelled = changes.get("features", {}), changes.get("unlabelled", {})
    images = {name: changes[name]["images"] for name in ("added", "removed", *MAJOR)}
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


def _moved(before: Release, ids: Sequence[str], splits: Mapping[str, Sequence[str]]) -> list[str]:
    """Ids of images that are on another side of some split than in `before`."""
    moved: set[str] = set()
    for name in set(splits) & set(before.facts["splits"]):
        old = dict(rows_of(before.table, "id", name))
        moved |= {i for i, side in zip(ids, splits[name], strict=True) if old.get(i, side) != side}
    return sorted(moved)


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
    """The text of CHANGES.md."""
    phrases = {
        "added": "images added", "removed": "images removed", "withdrawn": "images withdrawn by their owners",
        "other_bucket": "images in another bucket", "other_class": "images with another class",
        "other_bytes": "images with other content", "other_time": "images with another upload time",
        "other_licence": "images under another licence", "other_side": "images on another side of a split",
    }  # fmt: skip
    lines = [f"# {version}, after {changes['against']['name']} {changes['against']['version']}", ""]
    for part in ("classes", "splits", "features"):
        lines += [f"- {part} {how}: {', '.join(names)}" for how, names in changes.get(part, {}).items() if names]
    lines += [f"- {n} unlabelled images {how}" for how, n in changes.get("unlabelled", {}).items() if n]
    for name, phrase in phrases.items():
        if n := changes[name]["images"]:
            ids = ", ".join(changes[name]["ids"]) + (", …" if n > EXAMPLES else "")
            because = ", ".join(f"{text} ({n})" for text, n in changes.get(BECAUSE.get(name, ""), {}).items())
            lines.append(f"- {n} {phrase}{ids and f': {ids}'}{because and f'. Why: {because}'}")
    lines += _tars(changes.get("tars"))
    return "\n".join([*lines, *(["- only the card changed"] if len(lines) == 2 else [])]) + "\n"


def _tars(tars: Mapping[str, Any] | None) -> list[str]:
    """Lines about the tars of an appended release; none for another."""
    if tars is None:
        return []
    lines = [f"- {tars['kept']} tars are those of the version before, byte for byte"]
    if tars["new"]:
        lines.append(f"- new tars: {', '.join(tars['new'])}")
    for entry in tars["rewritten"]:
        what = "removed, because nothing was left in it" if entry["after"] is None else "written again"
        lines.append(f"- {entry['tar']} was {what}, without {entry['withdrawn']} withdrawn images")
    return lines


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
