"""What is below a folder, digests of it, and a memory of files that were read.

A stamp (`Below`) shows each change of a file. Digests are of inputs, kept in the memory by their stamps, and of what a
stage wrote.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, wraps
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from driftline.curate.core.atomic_io import TEMPORARY, fingerprint, sha256_file
from driftline.curate.core.errors import Busy

P = ParamSpec("P")
R = TypeVar("R")
_SEEN: ContextVar[dict[Any, Any] | None] = ContextVar("seen", default=None)
LARGE = (".tar", ".npy")
THREADS = 4  # hashing releases the interpreter's lock
TABLE = "CREATE TABLE IF NOT EXISTS seen (kind TEXT, path TEXT, stamp TEXT, value TEXT, PRIMARY KEY (kind, path))"
UNSETTLED = 2.0  # seconds: a file that was changed so recently may change again without a new time
AT_ONCE = 500  # paths in a query


class Below(NamedTuple):
    """What is below a folder, and no folder: names below it, with slashes, in the order of paths. `links` lead to files
    or nowhere. Plain texts, because Python's collector would go through a million small objects again and again."""

    stamps: dict[str, str | None]
    """inode, size, times of content and inode (ns), one of which each change of a file changes; "": the system does not
    say; None: it is no file"""
    links: set[str]


def stamp_of(facts: os.stat_result) -> str:
    """As in `Below.stamps`."""
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


def seen_once(look: Callable[P, R]) -> Callable[P, R]:
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


@seen_once
def walk(folder: Path) -> Below:
    """All of `places`."""
    stamps: dict[str, str | None] = {}
    links: set[str] = set()
    for name, place in places(os.fspath(folder)):
        try:
            stamps[name] = stamp_of(place.stat()) if place.is_file() else None
        except OSError:
            stamps[name] = ""
        if place.is_symlink():
            links.add(name)
    return Below(stamps, links)


def places(folder: str, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is below a folder, and no folder, in the order of paths. Links to folders are left out, and folders that may
    not be read."""
    try:
        with os.scandir(folder) as inside:
            ordered = sorted(inside, key=attrgetter("name"))
    except PermissionError:
        return
    for place in ordered:
        if place.is_dir(follow_symlinks=False):
            yield from places(place.path, f"{prefix}{place.name}/")
        elif not (place.is_symlink() and os.path.isdir(place.path)):
            yield prefix + place.name, place


def connect(path: Path, **options: Any) -> sqlite3.Connection:
    """Open a SQLite file, or make it. Functions in its schema do not run. options: of `sqlite3.connect`. Raises
    sqlite3.Error."""
    base = sqlite3.connect(path, **options)
    base.execute("PRAGMA trusted_schema = OFF")
    return base


def purge(base: sqlite3.Connection, path: Path) -> None:
    """Leave nothing of deleted rows: SQLite keeps them in free pages and in its log. Raises Busy, sqlite3.Error."""
    base.execute("VACUUM")
    if base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        raise Busy(f"Another process reads {path.absolute()}.", "", "Stop it, and run the same command again.")


def is_utf8(text: str) -> bool:
    """False for text that was read with surrogate escapes from bytes that are not UTF-8."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def joined(stamps: Collection[str], *parts: str) -> str:
    """One stamp of several files, and of texts: another one if any of them changes."""
    digest = hashlib.sha256(repr((list(stamps), parts)).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest} {max((int(time) for stamp in stamps for time in stamp.split()[-2:]), default=0)} 0"


def recall(memory: Path | None, kind: str, stamps: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Path → what is kept of this kind, for those of the (path, stamp) whose stamp is still the same."""
    of = dict(stamps)
    paths, values = [path for path in of if is_utf8(path)], dict[str, str]()
    if memory is None or not paths:
        return {}
    with suppress(sqlite3.Error), closing(connect(memory, timeout=1)) as base:  # what it holds can be computed
        base.execute(TABLE)
        for start in range(0, len(paths), AT_ONCE):
            part = paths[start : start + AT_ONCE]
            query = f"SELECT path, stamp, value FROM seen WHERE kind = ? AND path IN ({', '.join('?' * len(part))})"
            rows = base.execute(query, (kind, *part))
            values |= {path: value for path, stamp, value in rows if of[path] == stamp}
    return values


def keep(memory: Path | None, kind: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Keep (path, stamp, value), but not of files that were changed just now, and nothing where the memory cannot be
    written."""
    settled = time.time_ns() - int(UNSETTLED * 1e9)
    old = [(kind, *row) for row in rows if max(map(int, row[1].split()[-2:])) < settled and is_utf8(row[0])]
    if memory is not None and old:
        with suppress(sqlite3.Error), closing(connect(memory, timeout=1)) as base:  # read only, or full
            base.execute(TABLE)
            base.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", old)
            base.commit()


Content = dict[str, tuple[int, str]]
"""name of a file in a folder → its bytes and hexadecimal SHA-256, in order of name"""


def listing(folder: Path, without: Collection[str] = (), known: Mapping[tuple[int, int], str] | None = None) -> Content:
    """Every file of a finished folder; unfinished files are not in it. without: names that are left out. known:
    (device, inode) → SHA-256 of files that need not be read."""
    names = sorted(p.relative_to(folder).as_posix() for p in files_of(folder))
    names = [n for n in names if n not in without and not n.rpartition("/")[2].startswith(TEMPORARY)]

    def content(name: str) -> tuple[int, str]:
        facts = (folder / name).stat()
        return facts.st_size, (known or {}).get((facts.st_dev, facts.st_ino)) or sha256_file(folder / name)

    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(content, names), strict=True))


def content_digest(files: Content) -> str:
    """One digest of a folder's `listing`.

    Of tar and npy files only the size counts: the Parquet index in the same folder holds the checksum of
    each record.
    """
    order = sorted(files.items(), key=lambda entry: Path(entry[0]).parts)
    return fingerprint([(n, f"size:{size}" if Path(n).suffix in LARGE else sha256) for n, (size, sha256) in order])


def names_and_sizes(folder: Path) -> str:
    """A digest of them, of all files below a folder."""
    return fingerprint([(p.relative_to(folder).as_posix(), p.stat().st_size) for p in sorted(files_of(folder))])


def full_digests(paths: Sequence[Path], memory: Path) -> list[str]:
    """SHA-256 of each file; of a folder, the digest of the names and SHA-256 of its files.

    memory: a file that keeps what was read (`files.memory`).
    """
    folders = {path for path in paths if path.is_dir()}
    digests = _digests([(str(path.absolute()), stamp_of(path.stat())) for path in {*paths} - folders], memory)
    digests |= {str(path.absolute()): _folder_digest(path, memory) for path in folders}
    return [digests[str(path.absolute())] for path in paths]


@seen_once
def _folder_digest(folder: Path, memory: Path) -> str:
    place, stamps = str(folder.absolute()), {name: stamp for name, stamp in walk(folder).stamps.items() if stamp}
    mark = joined(stamps.values(), *stamps)
    if (whole := recall(memory, "digests", [(place, mark)]).get(place)) is not None:
        return whole
    digests = _digests([(f"{place}{os.sep}{name}", stamp) for name, stamp in stamps.items()], memory)
    digest = fingerprint([(name, digests[f"{place}{os.sep}{name}"]) for name in stamps])
    keep(memory, "digests", [(place, mark, digest)])
    return digest


def _digests(places: Sequence[tuple[str, str]], memory: Path) -> dict[str, str]:
    """places: absolute path and stamp of each file. Path → digest."""
    digests = recall(memory, "digests", places)
    unread = [(path, stamp) for path, stamp in places if path not in digests]
    with ThreadPoolExecutor(THREADS) as pool:
        fresh = pool.map(lambda one: sha256_file(Path(one[0])), unread)
        digests |= {path: digest for (path, _), digest in zip(unread, fresh, strict=True)}
    keep(memory, "digests", [(path, stamp, digests[path]) for path, stamp in unread])
    return digests


def files_of(folder: Path) -> Iterator[Path]:
    """Every file below a folder, in no order."""
    return (p for p in folder.rglob("*") if p.is_file())


@cache
def installed_version(distribution: str = "driftline") -> str:
    """ "0" where it is not installed, as driftline that is run from a folder."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "0"


@cache
def code_of(packages: Sequence[str] = ()) -> str:
    """The code that runs, for records: version, and twelve digits of the names and bytes of all Python and C files of
    these packages (default: of all)."""
    root = Path(__file__).parents[2]
    names = packages or [p.parent.name for p in root.glob("*/__init__.py") if p.parent.name != "driftline"]
    files = [p for name in names for p in (root / name).rglob("*") if p.suffix in (".py", ".c", ".h")]
    digest = fingerprint({p.relative_to(root).as_posix(): sha256_file(p) for p in files})
    return f"driftline {installed_version()} ({digest[:12]})"
