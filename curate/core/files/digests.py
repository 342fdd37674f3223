"""Digests of files and folders: of inputs (cached), and of what a stage wrote."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from driftline.curate.core.atomic_io import TEMPORARY, fingerprint, sha256_file
from driftline.curate.core.files.memory import joined, keep, recall
from driftline.curate.core.files.walk import once, stamp_of, walk

MARKS = ("done.json", "begun.json", "files.json")  # of a stage's folder: not its output
LARGE = (".tar", ".npy")
PACKAGES = ("curate", "stream_builder", "eval", "pipelines")
THREADS = 4  # hashing releases the interpreter's lock


@dataclass(frozen=True)
class Content:
    """What is in one file."""

    size: int
    """bytes"""
    sha256: str
    """hexadecimal SHA-256"""


def listing(folder: Path, digest_of: Mapping[tuple[int, int], str] | None = None) -> dict[str, Content]:
    """Name → content of every file of a finished folder, in order of name; marks and unfinished files are not in it.
    digest_of: (device, inode) → SHA-256 of files that need not be read."""
    digest_of = digest_of or {}
    names = sorted(p.relative_to(folder).as_posix() for p in files_of(folder))
    names = [n for n in names if n not in MARKS and not n.rpartition("/")[2].startswith(TEMPORARY)]

    def content(name: str) -> Content:
        facts = (folder / name).stat()
        return Content(facts.st_size, digest_of.get((facts.st_dev, facts.st_ino)) or sha256_file(folder / name))

    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(content, names), strict=True))


def content_digest(files: Mapping[str, Content]) -> str:
    """One digest of a folder's `listing`.

    Of tar and npy files only the size counts: the Parquet index in the same folder holds the checksum of
    each record.
    """
    order = sorted(files, key=lambda name: Path(name).parts)
    return fingerprint([(n, f"size:{files[n].size}" if Path(n).suffix in LARGE else files[n].sha256) for n in order])


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


@once
def _folder_digest(folder: Path, memory: Path) -> str:
    place, stamps = str(folder.absolute()), {name: entry.stamp for name, entry in walk(folder).items() if entry.stamp}
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


def full_digest(path: Path, memory: Path) -> str:
    """The same of one file or folder."""
    return full_digests([path], memory)[0]


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
def code_of(packages: Sequence[str] = PACKAGES) -> str:
    """The code that runs, for records: version, and twelve digits of the names and bytes of all Python and C files of
    these packages."""
    root = Path(__file__).parents[3]
    files = [p for name in packages for p in (root / name).rglob("*") if p.suffix in (".py", ".c", ".h")]
    digest = fingerprint({p.relative_to(root).as_posix(): sha256_file(p) for p in files})
    return f"driftline {installed_version()} ({digest[:12]})"
