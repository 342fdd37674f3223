"""Every file below a folder, once: photos by their first bytes, companions of photos by kind, and what is no photo."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driftline.curate.core.files import Entry, code_of, keep, recall, seen_once, walk
from driftline.curate.foreign.images import HEAD, kind_of, missing_extra
from driftline.curate.foreign.names import one_form
from driftline.curate.images import camera_raw

SUFFIXES = {
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".avif", ".heic", ".heif",
    ".hif", ".heics", ".jxl", ".jp2", ".j2k", ".jpf", ".jpx",
}  # fmt: skip
"""of photos: a file that ends so and begins otherwise is a damaged photo"""
SIDECARS = {".json", ".xmp", ".txt", ".aae", ".pp3", ".dop", ".xml", ".on1", ".cos"}
THUMBNAILS = {"@eadir", ".@__thumb", ".thumbnails", ".thumbs"}
"""folders of Synology, QNAP, GNOME and Android"""
OF_SYSTEMS = {".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini", ".picasa.ini", ".nomedia"}
APPLE_DOUBLE = b"\0\x05\x16\x07"
SHOWN = 6  # suffixes in a sentence


@dataclass(frozen=True)
class Files:
    """The files below a folder, by their names below it, each in one place, in path order."""

    photos: dict[str, str | None]
    """photo → Pillow's name of its format; None: RAW, or damaged"""
    others: dict[str, tuple[str, str]]
    """file → (reason why it is left out, its suffix)"""
    entries: dict[str, Entry]
    """photo or other file → what the system says of it"""

    def counts(self) -> dict[str, dict[str, int]]:
        """reason → suffix → files that are left out."""
        reasons = dict.fromkeys(sorted(reason for reason, _ in self.others.values()))
        return {
            reason: dict(Counter(suffix for why, suffix in self.others.values() if why == reason).most_common())
            for reason in reasons
        }

    def formats(self) -> dict[str, int]:
        """Format → photos; of those that need an extra that is not installed, its reason."""
        names = (missing_extra(kind) or (kind or "RAW or damaged",) for kind in self.photos.values())
        return dict(Counter(name for name, *_ in names).most_common())


@seen_once
def files_below(folder: Path, links: bool = False, memory: Path | None = None) -> Files:
    """Every file below a folder, also hidden ones and links that lead nowhere. links: also photos that links lead to
    outside of it, which are else left out. memory: a file that keeps what was read (`files.memory`)."""
    root, entries = folder.resolve(), walk(folder)
    photos: dict[str, str | None] = {}
    others: dict[str, tuple[str, str]] = {}
    names: set[str] = set()
    for name, (kind, reason) in _heads(folder, entries, memory).items():
        if reason is None and not links and entries[name].link:
            reason = None if (folder / name).resolve().is_relative_to(root) else "link_outside"
        if reason is None and (form := one_form(name)) in names:
            reason = "name_in_two_forms"
        if reason is None:
            names.add(form)
            photos[name] = kind
        else:
            others[name] = (reason, suffix_of(name).lower() or "no suffix")
    raw = {name for name, kind in photos.items() if is_raw(name, kind)}
    developed = {name.removesuffix(suffix_of(name)) for name in photos.keys() - raw} if raw else set()
    for name in sorted(raw, key=lambda name: name.split("/")):
        if name.removesuffix(suffix_of(name)) in developed:
            del photos[name]
            others[name] = ("raw_beside_photo", suffix_of(name).lower())
    return Files(photos, others, entries)


def suffix_of(name: str) -> str:
    """As `Path(name).suffix`, in a tenth of the time.

    >>> suffix_of("a/b.c.JPG"), suffix_of("a.b/.c"), suffix_of("a.")
    ('.JPG', '', '')
    """
    file = name[name.rfind("/") + 1 :]
    dot = file.rfind(".")
    return file[dot:] if 0 < dot < len(file) - 1 else ""


def counts_text(counts: dict[str, dict[str, int]]) -> str:
    """`Files.counts` in words.

    >>> counts_text({"not_a_photo": {".mp4": 10, ".pdf": 2}, "sidecar": {".xmp": 3}})
    'not_a_photo 12 (.mp4 10, .pdf 2), sidecar 3 (.xmp 3)'
    """
    return ", ".join(
        f"{reason} {sum(of.values()):,} ({', '.join(f'{suffix} {n:,}' for suffix, n in list(of.items())[:SHOWN])}"
        f"{', …' if len(of) > SHOWN else ''})"
        for reason, of in counts.items()
    )


def is_raw(name: str, kind: str | None) -> bool:
    """Whether a photo is a RAW file of a camera. kind: of its first bytes."""
    return kind in (None, "TIFF") and suffix_of(name).lower() in camera_raw.SUFFIXES


def _heads(folder: Path, entries: Mapping[str, Entry], memory: Path | None) -> dict[str, tuple[str | None, str | None]]:
    """Name → as `_judged`; a head is read once."""
    root, edition = os.fspath(folder.resolve()), code_of(("curate",))
    stamps = {name: f"{edition} {entry.stamp}" for name, entry in entries.items() if entry.stamp}
    stored = recall(memory, "heads", ((f"{root}/{name}", stamp) for name, stamp in stamps.items()))
    heads: dict[str, tuple[str | None, str | None]] = {}
    fresh = []
    for name, entry in entries.items():
        if (head := stored.get(f"{root}/{name}")) is not None:
            form, _, why = head.partition(" ")
            heads[name] = form or None, why or None
            continue
        kind, reason = heads[name] = _judged(folder / name, name, entry)
        if name in stamps and reason != "file_unreadable":
            fresh.append((f"{root}/{name}", stamps[name], f"{kind or ''} {reason or ''}"))
    keep(memory, "heads", fresh)
    return heads


def _judged(path: Path, inside: str, entry: Entry) -> tuple[str | None, str | None]:
    """(format, why the file is left out); None, None: RAW, or a damaged photo."""
    *folders, name = inside.lower().split("/")
    suffix = suffix_of(name)
    if suffix == ".thm" or not THUMBNAILS.isdisjoint(folders):
        return None, "thumbnail"
    if name in OF_SYSTEMS:
        return None, "of_the_system"
    if entry.stamp is None:  # a pipe would let us wait for ever
        return None, "file_unreadable" if entry.link else "not_a_photo"
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return None, "file_unreadable"
    if head.startswith(APPLE_DOUBLE) and name.startswith("._"):
        return None, "apple_double"
    kind = kind_of(head)
    if kind is not None or suffix in SUFFIXES | camera_raw.SUFFIXES:
        return kind, None
    if head.startswith((*camera_raw.LIKE_TIFF, *camera_raw.OTHERS)):
        return None, None
    return None, "sidecar" if suffix in SIDECARS else "not_a_photo"
