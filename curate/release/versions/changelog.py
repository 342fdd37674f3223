"""Successive releases: what changed, which version number this requires, and which images were withdrawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from curate.core.atomic_io import csv_text
from curate.core.errors import BadConfig
from curate.core.outside.tables import csv_rows
from curate.core.parsing import rows_of
from curate.release.format import Release

LEVELS = ("major", "minor", "patch")
EXAMPLES = 20  # ids in a list
BECAUSE = {"removed": "reasons", "other_class": "relabelled"}  # list → its counts by reason


def changes_since(
    before: Release, rows: Sequence[Mapping[str, Any]], classes: Sequence[str], splits: Mapping[str, Sequence[str]],
    withdrawn: Iterable[str] = (), why: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """The differences between the release `before` and the new `rows` (dicts with id, bucket, class, sha256) and
    `splits`.

    Counts and first ids of images that were added, removed, withdrawn (removed on request of their owners), or that
    have another class, bucket, content or side of a split; and the level of the change. why: id → reason of images that
    are no longer part of it. Scores on two releases are
    comparable only if just the last number of their versions differs.
    """
    columns = ("id", "bucket", "class", "sha256")
    old = {id_: values for id_, *values in rows_of(before.table, *columns)}
    new = {row["id"]: [row[c] for c in columns[1:]] for row in rows}
    both = sorted(set(old) & set(new))
    gone, requested = set(old) - set(new), set(withdrawn)
    lists: dict[str, list[str]] = {
        "added": sorted(set(new) - set(old)),
        "removed": sorted(gone - requested),
        "withdrawn": sorted(gone & requested),
        "other_bucket": [i for i in both if old[i][0] != new[i][0]],
        "other_class": [i for i in both if old[i][1] != new[i][1]],
        "other_bytes": [i for i in both if old[i][2] != new[i][2]],
        "other_side": _moved(before, [row["id"] for row in rows], splits),
    }
    same_classes = list(classes) == before.classes
    counts = {name: len(ids) for name, ids in lists.items()}
    level = "patch"
    if counts["added"] or counts["removed"]:
        level = "minor"
    if not same_classes or any(counts[n] for n in ("other_bucket", "other_class", "other_side")):
        level = "major"
    relabelled = Counter(f"{old[i][1]} → {new[i][1]}" for i in lists["other_class"])
    reasons = Counter(why.get(i, "not in this run") for i in lists["removed"])
    return {
        "against": {"name": before.name, "version": before.facts["version"]},
        "level": level,
        "classes": {
            "added": sorted(set(classes) - set(before.classes)),
            "removed": sorted(set(before.classes) - set(classes)),
        },
        "relabelled": dict(sorted(relabelled.items())),
        "reasons": dict(sorted(reasons.items())),
        **{name: {"images": len(ids), "ids": ids[:EXAMPLES]} for name, ids in lists.items()},
    }


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
            "major: other classes, labels, buckets or splits; minor: images added or removed; patch: images withdrawn.",
        )


def changes_markdown(changes: Mapping[str, Any], version: str) -> str:
    """The text of CHANGES.md."""
    phrases = {
        "added": "images added", "removed": "images removed", "withdrawn": "images withdrawn by their owners",
        "other_bucket": "images in another bucket", "other_class": "images with another class",
        "other_bytes": "images with other content", "other_side": "images on another side of a split",
    }  # fmt: skip
    lines = [f"# {version}, after {changes['against']['name']} {changes['against']['version']}", ""]
    for side, names in changes["classes"].items():
        if names:
            lines.append(f"- classes {side}: {', '.join(names)}")
    for name, phrase in phrases.items():
        if n := changes[name]["images"]:
            ids = ", ".join(changes[name]["ids"]) + (", …" if n > EXAMPLES else "")
            because = ", ".join(f"{text} ({n})" for text, n in changes.get(BECAUSE.get(name, ""), {}).items())
            lines.append(f"- {n} {phrase}: {ids}{because and f'. Why: {because}'}")
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


def all_withdrawn(before: Release | None, withdrawn: Mapping[str, str], known: Iterable[str]) -> list[tuple[str, str]]:
    """(id, since version) of all withdrawn images, which owners of a copy must delete.

    These are the ones that earlier releases list, and those of `withdrawn` (id → version) that are in the release
    `before` or in `known`, the accepted images of this run.
    """
    since: dict[str, str] = {}
    if before is not None:
        path = before.path / "WITHDRAWN.csv"
        if path.is_file():
            rows = csv_rows(path, ["id", "since"], "Expected the list of the earlier release.")
            since |= {row["id"]: row["since"] for _, row in rows}
    contained = set(known) | (set(before.table["id"].to_pylist()) if before is not None else set())
    for id_, version in withdrawn.items():
        if id_ in contained:
            since.setdefault(id_, version)
    return sorted(since.items())


def withdrawn_csv(rows: Sequence[tuple[str, str]]) -> str:
    """The text of WITHDRAWN.csv from (id, since version)."""
    return csv_text(("id", "since"), rows)
