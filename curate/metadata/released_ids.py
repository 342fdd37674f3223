"""Ids of photos in a release: those made from paths or addresses are replaced, because folders are named after people.

The id is the beginning of the photo's SHA-256, which the release lists anyhow. So it tells nothing new, the same photo
has it in every folder, and the same inputs give the same bytes: a random secret would have to be copied for that, and a
dictionary of names breaks a digest without one. A list beside the run keeps which of several equal files got which id.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path

from driftline.curate.core.atomic_io import csv_text, sweep_file, writing
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.late import pc, pq
from driftline.curate.metadata.columns import id_of_address, safe_id

FILE = "released_ids.csv"
COLUMNS = ("id", "released")
DIGITS = 20  # hexadecimal: two of 10⁹ photos have the same ones with a probability of 10⁻⁶
CHANGED = r"-[0-9a-f]{8}$"  # how `safe_id` marks a text that it changed; what it did not change names no folder


def released_ids(root: Path) -> dict[str, str]:
    """id → its id in releases, of a run folder whose ids were replaced; empty for others."""
    if not (root / FILE).is_file():
        return {}
    from driftline.curate.foreign.delimited import csv_rows  # it loads Arrow

    rows = csv_rows(root / FILE, COLUMNS, "Expected ids and those in releases.", f"Restore {FILE} from a copy.")
    return {row["id"]: row["released"] for _, row in rows}


def assign_ids(root: Path, members: Path, table: Sequence[Path], own: bool) -> dict[str, str]:
    """`released_ids`, also of all photos that are new; the list beside the run is brought up to date.

    members: Parquet table of all images of a run. table: parts with path and url of each. own: whether ids are the
    source's own, so that only those of rows without one are replaced.
    """
    sweep_file(root / FILE)
    before = released_ids(root)
    images = pq.read_table(members, columns=["id", "sha256", "source_sha256"])
    replaced = None if own else images["id"]
    if replaced is None:
        replaced = {id_ for part in table for id_ in _of_places(part)}
        images = images.filter([id_ in replaced for id_ in images["id"].to_pylist()])
    taken = set(before.values())
    ids = dict(before)
    digests = pc.coalesce(images["source_sha256"], images["sha256"]).to_pylist()
    for digest, id_ in sorted(zip(digests, images["id"].to_pylist(), strict=True)):
        if id_ not in ids:
            name = f"p{digest[:DIGITS]}"
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            ids[id_] = next(free for free in names if free not in taken)
            taken.add(ids[id_])
    if ids != before:
        with writing(root / FILE, "w") as file:
            os.chmod(file.fileno(), 0o600)
            file.write(csv_text(COLUMNS, sorted(ids.items())))
    return ids


def _of_places(part: Path) -> Iterable[str]:
    """Ids of a part of the table that were made from the row's path or address."""
    from driftline.curate.core.parsing import rows_of

    table = pq.read_table(part, columns=["id", "path", "url"])
    table = table.filter(pc.match_substring_regex(table["id"], CHANGED))
    for id_, path, url in rows_of(table, "id", "path", "url"):
        steps = (path or "").split("/")
        if (url and id_ == id_of_address(url)) or any(
            safe_id("/".join(steps[i:])) == id_ for i in range(len(steps)) if path
        ):
            yield id_


def check_ids(release: Path, ids: Iterable[str], names: Mapping[str, str]) -> None:
    """Raise BadConfig if an earlier release has ids that this one would replace. names: id → id in the release."""
    if old := next((id_ for id_ in ids if id_ in names), None):
        raise BadConfig(
            f"The release {release} has ids that are made from paths, such as {old!r}.",
            "Expected the ids of release.ids: opaque.",
            "Set release.ids: path to go on with them, or publish without release.previous.",
        )


def title_of(title: str | None, path: str | None) -> str | None:
    """A title that is no name of the photo's file."""
    return None if path and title == Path(path).stem else title


def mapped(ids: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Ids as they are in a release."""
    return [names.get(id_, id_) for id_ in ids]
