"""Digests of files and folders: of inputs (cached), and of what a stage wrote."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from driftline.curate.core.atomic_io import TEMPORARY, fingerprint, sha256_file
from driftline.curate.core.errors import BadInput
from driftline.curate.core.outside.databases import check_schema, connect, typed
from driftline.curate.core.outside.limits import SIDECAR

MARKS = ("done.json", "begun.json", "files.json")  # of a stage's folder: not its output
LARGE = (".tar", ".npy")
PACKAGES = ("curate", "stream_builder", "eval", "pipelines")
SCHEMA = "CREATE TABLE digests (path TEXT PRIMARY KEY, stamp TEXT, digest TEXT)"
UNSETTLED = 2.0  # seconds: a file that was changed so recently may change again without a new time
THREADS = 4  # hashing releases the interpreter's lock


@dataclass(frozen=True)
class Content:
    """What is in one file."""

    size: int
    """bytes"""
    sha256: str
    """hexadecimal SHA-256"""


def listing(folder: Path) -> dict[str, Content]:
    """Name → content of every file of a finished folder, in order of name; marks and unfinished files are not in it."""
    names = sorted(p.relative_to(folder).as_posix() for p in files_of(folder))
    names = [n for n in names if n not in MARKS and not n.rpartition("/")[2].startswith(TEMPORARY)]
    with ThreadPoolExecutor(THREADS) as pool:
        digests = pool.map(lambda name: sha256_file(folder / name), names)
        return {n: Content((folder / n).stat().st_size, digest) for n, digest in zip(names, digests, strict=True)}


def content_digest(files: Mapping[str, Content]) -> str:
    """One digest of a folder's `listing`.

    Of tar and npy files only the size counts: the Parquet index in the same folder holds the checksum of
    each record.
    """
    order = sorted(files, key=lambda name: Path(name).parts)
    return fingerprint([(n, f"size:{files[n].size}" if Path(n).suffix in LARGE else files[n].sha256) for n in order])


def quick_digest(path: Path, edge: int = 1 << 20) -> str:
    """Of a file's size, its first and its last MiB; of the names and sizes of a folder's files."""
    if path.is_dir():
        return fingerprint([(p.relative_to(path).as_posix(), p.stat().st_size) for p in sorted(files_of(path))])
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(edge))
        if size > 2 * edge:
            file.seek(size - edge)
        digest.update(file.read(edge))
    return digest.hexdigest()


def full_digest(path: Path, cache: Path) -> str:
    """SHA-256 of a file; of a folder, the digest of the names and SHA-256 of its files. Of an XMP sidecar that is read
    in part, its `quick_digest`.

    cache: a file that keeps what was read. A file is read again if its inode, size, or time of change differs. Nothing
    is kept where the cache cannot be written.
    """
    stamped = [(p, _stamp(p)) for p in (sorted(files_of(path)) if path.is_dir() else [path])]
    with _cache(cache) as base:
        stored = _stored(base)
        unread = [(p, stamp) for p, stamp in stamped if stored.get(str(p.absolute()), ("", ""))[0] != stamp]
        settled = time.time_ns() - int(UNSETTLED * 1e9)
        with ThreadPoolExecutor(THREADS) as pool:
            for (p, stamp), digest in zip(unread, pool.map(lambda one: _digest_of(one[0]), unread), strict=True):
                stored[str(p.absolute())] = (stamp, digest)
                if base is None or max(map(int, stamp.split()[2:])) >= settled:
                    continue
                with suppress(sqlite3.Error, UnicodeEncodeError):  # read only; a name that is not UTF-8: read each time
                    base.execute("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", (str(p.absolute()), stamp, digest))
    if path.is_dir():
        return fingerprint([(p.relative_to(path).as_posix(), stored[str(p.absolute())][1]) for p, _ in stamped])
    return stored[str(path.absolute())][1]


def _digest_of(path: Path) -> str:
    """Of a file. Of a sidecar beyond `SIDECAR` only the beginning is read for its date."""
    whole = path.suffix.lower() != ".xmp" or path.stat().st_size <= SIDECAR
    return sha256_file(path) if whole else quick_digest(path, SIDECAR)


def files_of(folder: Path) -> Iterator[Path]:
    """Every file below a folder, in no order."""
    return (p for p in folder.rglob("*") if p.is_file())


def _stamp(path: Path) -> str:
    """Inode, size, times of content and inode (ns): a change of a file changes one of them."""
    s = path.stat()
    return f"{s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}"


def installed_version(distribution: str = "driftline") -> str:
    """ "0" where it is not installed, as driftline that is run from a folder."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "0"


@cache
def code_of(packages: Sequence[str] = PACKAGES) -> str:
    """The code that runs, for records: version, and twelve digits of the names and bytes of all Python and C files of
    these packages."""
    root = Path(__file__).parents[2]
    files = [p for name in packages for p in (root / name).rglob("*") if p.suffix in (".py", ".c", ".h")]
    digest = fingerprint({p.relative_to(root).as_posix(): sha256_file(p) for p in files})
    return f"driftline {installed_version()} ({digest[:12]})"


@contextmanager
def _cache(path: Path) -> Iterator[sqlite3.Connection | None]:
    """The table of digests, committed at the end; None if it cannot be opened or created."""
    try:
        base = connect(path, timeout=1)
        base.execute(SCHEMA.replace("TABLE", "TABLE IF NOT EXISTS"))
        check_schema(base, SCHEMA, path)
        base.row_factory = typed(SCHEMA, {}, path)
    except (sqlite3.Error, BadInput):  # a read-only folder, or a damaged file: what it holds can be computed
        yield None
        return
    with closing(base):
        try:
            yield base
        finally:
            with suppress(sqlite3.Error):  # a full disk: these files are read again
                base.commit()


def _stored(base: sqlite3.Connection | None) -> dict[str, tuple[str, str]]:
    stored: dict[str, tuple[str, str]] = {}
    with suppress(sqlite3.Error, BadInput):  # a damaged page, or somebody else's file
        for path, stamp, digest in () if base is None else base.execute("SELECT path, stamp, digest FROM digests"):
            stored[path] = (stamp, digest)
    return stored
