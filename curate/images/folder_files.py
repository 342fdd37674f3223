"""Every file below a folder, once: photos by their first bytes, companions of photos by kind, and what is no photo."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from driftline.curate.core.outside.image_kinds import HEAD, kind_of, missing_extra
from driftline.curate.core.outside.names import one_form
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
    """The files below a folder, each in one place, in path order."""

    photos: dict[Path, str | None]
    """photo → Pillow's name of its format; None: RAW, or damaged"""
    others: dict[Path, tuple[str, str]]
    """file → (reason why it is left out, its suffix)"""

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


def files_below(folder: Path, links: bool = False) -> Files:
    """Every file below a folder, also hidden ones and links that lead nowhere. links: also photos that links lead to
    outside of it, which are else left out."""
    root = folder.resolve()
    photos: dict[Path, str | None] = {}
    others: dict[Path, tuple[str, str]] = {}
    names: set[str] = set()
    for path in sorted(p for p in folder.rglob("*") if not p.is_dir()):
        kind, reason = _judged(path, path.relative_to(folder))
        if reason is None and not links and path.is_symlink() and not path.resolve().is_relative_to(root):
            kind, reason = None, "link_outside"
        name = one_form(path.as_posix())
        if reason is None and name in names:
            reason = "name_in_two_forms"
        if reason is None:
            names.add(name)
            photos[path] = kind
        else:
            others[path] = (reason, path.suffix.lower() or "no suffix")
    raw = {path for path, kind in photos.items() if is_raw(path, kind)}
    developed = {path.with_suffix("") for path in photos.keys() - raw}
    for path in sorted(path for path in raw if path.with_suffix("") in developed):
        del photos[path]
        others[path] = ("raw_beside_photo", path.suffix.lower())
    return Files(photos, others)


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


def is_raw(path: Path, kind: str | None) -> bool:
    """Whether a photo is a RAW file of a camera. kind: of its first bytes."""
    return kind in (None, "TIFF") and path.suffix.lower() in camera_raw.SUFFIXES


def _judged(path: Path, inside: Path) -> tuple[str | None, str | None]:
    """(format, why the file is left out); None, None: RAW, or a damaged photo."""
    name, suffix = path.name.lower(), path.suffix.lower()
    if any(part.lower() in THUMBNAILS for part in inside.parts[:-1]) or suffix == ".thm":
        return None, "thumbnail"
    if name in OF_SYSTEMS:
        return None, "of_the_system"
    try:
        if not path.is_file():  # a pipe would let us wait for ever
            return None, "file_unreadable" if path.is_symlink() else "not_a_photo"
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
