"""Folders that commands write: what driftline did not write there is never replaced, and nothing outdated stays."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from driftline.curate.core.atomic_io import TEMPORARY, read_json, remove_tree, write_json
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.files import files_of, names_and_sizes
from driftline.curate.core.system import sync_folder

T = TypeVar("T")
ELSEWHERE = "Set another --out, or move these files."


def refill_all(fills: Mapping[Path, Callable[[Path], T]]) -> dict[Path, T]:
    """Let functions write new folders, then put all of them in the places of the old ones: no file of an older export
    stays, for example an image that was withdrawn since, and after an error all are as they were.

    A hidden file beside each remembers names and sizes of what was written. Raises BadConfig, before anything is
    written, if a folder holds other files than that.
    """
    places = {out: _prepared(out) for out in fills}
    try:
        results = {out: fill(places[out][1]) for out, fill in fills.items()}
        for place in places.values():
            _swap(*place)
    finally:
        for _, fresh, _ in places.values():
            remove_tree(fresh)
    return results


def _prepared(named: Path) -> tuple[Path, Path, Path]:
    """Where an output is, where it is written, and where the old one goes."""
    out = Path(os.path.realpath(named))
    memory = _memory(out)
    digests = read_json(memory) if memory.is_file() else None
    fresh, old = (out.with_name(f"{TEMPORARY}{word}-{out.name}") for word in ("new", "old"))
    if old.exists() and not out.exists():  # a kill between the two renames
        old.rename(out)
    if (
        out.exists()
        and (not out.is_dir() or any(files_of(out)))
        and not (isinstance(digests, list) and names_and_sizes(out) in digests)
    ):
        raise BadConfig(
            f"{named} holds files that no export wrote, or that were changed since.",
            "Expected no such folder, or an export as it was written.",
            ELSEWHERE,
        )
    for left in (fresh, old):  # by a kill
        remove_tree(left)
    return out, fresh, old


def _swap(out: Path, fresh: Path, old: Path) -> None:
    fresh.mkdir(parents=True, exist_ok=True)
    # The old digest stays: a kill before the swap leaves the old folder.
    write_json(_memory(out), [names_and_sizes(fresh), *([names_and_sizes(out)] if out.exists() else [])])
    if out.exists():
        out.rename(old)
    fresh.rename(out)
    sync_folder(out.parent)
    remove_tree(old)


def _memory(out: Path) -> Path:
    return out.with_name(f".{out.name}.json")


def check_own(out: Path, names: Sequence[str], mark: str) -> None:
    """Raise BadConfig if `out` has a file of one of the names, but not `mark`, which this version writes before them:
    the file may be somebody else's, and would be replaced."""
    if not (out / mark).exists() and (foreign := [name for name in names if (out / name).exists()]):
        raise BadConfig(f"{out} has a file {foreign[0]}, but no {mark}: this command did not make it.", "", ELSEWHERE)
