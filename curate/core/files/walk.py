"""What is below a folder, and the stamp of each file, by which a change of it is seen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """What is below a folder, and no folder."""

    stamp: str | None
    """inode, size, times of content and inode (ns), one of which each change of a file changes; "": the system does not
    say; None: it is no file"""
    link: bool


def stamp_of(facts: os.stat_result) -> str:
    """As `Entry.stamp`."""
    return f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def walk(folder: Path) -> dict[str, Entry]:
    """Name below the folder, with slashes → all that is no folder, in the order of paths. Links to folders are left
    out, and folders that may not be read."""
    entries: dict[str, Entry] = {}

    def look(place: str, prefix: str) -> None:
        try:
            with os.scandir(place) as there:
                inside = sorted(there, key=lambda one: one.name)
        except PermissionError:
            return
        for one in inside:
            name, link = prefix + one.name, one.is_symlink()
            try:
                if one.is_dir():
                    if not link:
                        look(one.path, f"{name}/")
                    continue
                stamp = stamp_of(one.stat()) if one.is_file() else None
            except OSError:
                stamp = ""
            entries[name] = Entry(stamp, link)

    look(os.fspath(folder), "")
    return entries
