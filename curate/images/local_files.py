"""Images on this machine: files, cells of Parquet and Arrow files (`FILE#COLUMN#ROW`), and every file below a folder:
photos by their first bytes, companions of photos by kind, and what is no photo."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadInput, reason
from driftline.curate.core.files import Below, code_of, keep, recall, seen_once, walk
from driftline.curate.core.late import pa
from driftline.curate.foreign.images import HEAD, kind_of, missing_extra
from driftline.curate.foreign.names import one_form
from driftline.curate.images import camera_raw

Keep = Callable[[int, bytes | None, str | None, str | None], None]  # row, bytes, reason if there are none, detail
CELL = re.compile(r"(.+\.(?:parquet|arrow))#([^#]+)#([0-9]+)")


def cell_path(file: Path, column: str, row: int) -> str:
    """The `path` of an image inside a Parquet file.

    >>> cell_path(Path("/photos/0.parquet"), "image", 7)
    '/photos/0.parquet#image#7'
    """
    return f"{file}#{column}#{row}"


def read_local(part: "pa.Table", most: int, keep: Keep) -> None:
    """Call `keep(row, bytes, reason, detail)` for every row of `part` that has a path.

    Of a file with more than `most` bytes, `most` + 1 are read.
    """
    cells: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row, path in zip(part["row"].to_pylist(), part["path"].to_pylist(), strict=True):
        if path is None:
            continue
        if match := CELL.fullmatch(path):
            cells[match[1], match[2]].append((int(match[3]), row))
            continue
        try:
            if not Path(path).is_file():  # a pipe would let us wait for ever
                raise OSError(f"{path} is not a file")
            with Path(path).open("rb") as photo:
                keep(row, photo.read(most + 1), None, None)
        except (OSError, ValueError) as error:
            keep(row, None, "file_unreadable", str(error)[:200])
    for (file, column), wanted in cells.items():
        _read_cells(Path(file), column, sorted(wanted), keep)


def _read_cells(file: Path, column: str, wanted: list[tuple[int, int]], keep: Keep) -> None:
    """wanted: (row in the file, row of the table), sorted. One row group or batch is in memory at a time."""
    remaining = list(wanted)
    start = 0
    try:
        for values in _column(file, column, [i for i, _ in wanted]):
            inside = [(i, row) for i, row in remaining if start <= i < start + len(values)]
            for i, row in inside:
                keep(row, *_cell(values[i - start].as_py()))
            remaining = remaining[len(inside) :]
            start += len(values)
    except (OSError, pa.ArrowException, LookupError, ValueError, BadInput) as error:
        for _, row in remaining:
            keep(row, None, "file_unreadable", reason(error))
        return
    for _, row in remaining:
        keep(row, None, "file_unreadable", f"{file.name} has no such row")


def _column(file: Path, column: str, wanted: list[int]) -> Iterator[Any]:
    """The column in row groups or batches; a row group without wanted rows is not read, only its length is known."""
    from driftline.curate.foreign.tables import BoundedParquet, check_offsets

    if file.suffix == ".parquet":
        parquet = BoundedParquet(file)
        start = 0
        for group in range(parquet.groups):
            size = parquet.file.metadata.row_group(group).num_rows
            is_wanted = any(start <= i < start + size for i in wanted)
            yield parquet.read([column], group)[column] if is_wanted else range(size)
            start += size
        return
    with pa.memory_map(str(file)) as source:
        for batch in pa.ipc.open_stream(source):
            check_offsets([batch[column]])
            yield batch[column]


def _cell(value: Any) -> tuple[bytes | None, str | None, str | None]:
    """(bytes, reason, detail) of a cell: bytes, or a struct with `bytes` and `path` as in Hugging Face datasets."""
    if isinstance(value, dict):
        value = value.get("bytes")
    if isinstance(value, bytes) and value:
        return value, None, None
    return None, "no_image", "the cell holds no image bytes"


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
    below: Below
    """what the system says of them"""

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
    root, below = folder.resolve(), walk(folder)
    photos: dict[str, str | None] = {}
    others: dict[str, tuple[str, str]] = {}
    names: set[str] = set()
    for name, (kind, why) in _heads(folder, below, memory).items():
        if why is None and not links and name in below.links:
            why = None if (folder / name).resolve().is_relative_to(root) else "link_outside"
        if why is None and (form := one_form(name)) in names:
            why = "name_in_two_forms"
        if why is None:
            names.add(form)
            photos[name] = kind
        else:
            others[name] = (why, suffix_of(name).lower() or "no suffix")
    raw = {name for name, kind in photos.items() if is_raw(name, kind)}
    developed = {name.removesuffix(suffix_of(name)) for name in photos.keys() - raw} if raw else set()
    for name in sorted(raw, key=lambda name: name.split("/")):
        if name.removesuffix(suffix_of(name)) in developed:
            del photos[name]
            others[name] = ("raw_beside_photo", suffix_of(name).lower())
    return Files(photos, others, below)


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


def _heads(folder: Path, below: Below, memory: Path | None) -> dict[str, tuple[str | None, str | None]]:
    """Name → as `_judged`; a head is read once."""
    root, edition = os.fspath(folder.resolve()), code_of(("curate",))
    stamps = {name: f"{edition} {stamp}" for name, stamp in below.stamps.items() if stamp}
    stored = recall(memory, "heads", ((f"{root}/{name}", stamp) for name, stamp in stamps.items()))
    heads: dict[str, tuple[str | None, str | None]] = {}
    fresh = []
    for name in below.stamps:
        if (head := stored.get(f"{root}/{name}")) is not None:
            form, _, why = head.partition(" ")
            heads[name] = form or None, why or None
            continue
        kind, reason = heads[name] = _judged(folder / name, name, below)
        if name in stamps and reason != "file_unreadable":
            fresh.append((f"{root}/{name}", stamps[name], f"{kind or ''} {reason or ''}"))
    keep(memory, "heads", fresh)
    return heads


def _judged(path: Path, inside: str, below: Below) -> tuple[str | None, str | None]:
    """(format, why the file is left out); None, None: RAW, or a damaged photo."""
    *folders, name = inside.lower().split("/")
    suffix = suffix_of(name)
    if suffix == ".thm" or not THUMBNAILS.isdisjoint(folders):
        return None, "thumbnail"
    if name in OF_SYSTEMS:
        return None, "of_the_system"
    if below.stamps[inside] is None:  # a pipe would let us wait for ever
        return None, "file_unreadable" if inside in below.links else "not_a_photo"
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
