"""What is below a folder, and the stamp of each file, by which a change of it is seen."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_SEEN: ContextVar[dict[Any, Any] | None] = ContextVar("seen", default=None)


class Entry(NamedTuple):
    """What is below a folder, and no folder."""

    stamp: str | None
    """inode, size, times of content and inode (ns), one of which each change of a file changes; "": the system does not
    say; None: it is no file"""
    link: bool


def stamp_of(facts: os.stat_result) -> str:
    """As `Entry.stamp`."""
    return f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


@contextmanager
def one_walk() -> Iterator[None]:
    """Inside, a folder counts as it was when it was first looked at, until `look_again`: what is decided about it is of
    one moment, and 100,000 photos are walked once."""
    if _SEEN.get() is not None:
        yield
        return
    token = _SEEN.set({})
    try:
        yield
    finally:
        _SEEN.reset(token)


def look_again() -> None:
    """Inside of `one_walk`: folders may have other files now."""
    (_SEEN.get() or {}).clear()


def once(look: Callable[P, R]) -> Callable[P, R]:
    """A function of folders that looks once inside of `one_walk`; its result must not be changed."""

    @wraps(look)
    def looked(*args: P.args, **kwargs: P.kwargs) -> R:
        if (seen := _SEEN.get()) is None:
            return look(*args, **kwargs)
        key = (look.__qualname__, args, *sorted(kwargs.items()))
        if key not in seen:
            seen[key] = look(*args, **kwargs)
        result: R = seen[key]
        return result

    return looked


@once
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
