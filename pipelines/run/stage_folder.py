"""The folder of a stage: marks, unfinished work, the swap of old output for new, damage.

`DIR/stages/NN_name` holds finished output with `done.json`, or the first work with `begun.json`. Later work is done
beside it, in `NN_name.next`; when that is complete, it replaces the old output, which is `NN_name.old` for a moment.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import check_version, read_json, sha256_file, sweep, write_json
from driftline.curate.core.digests import Content, content_digest, files_of, listing
from driftline.curate.core.errors import BadInput, DriftlineError
from driftline.pipelines import VERSION
from driftline.pipelines.stages import STAGES

NUMBER = (int, float)
# needed in done.json
DONE = {"stage": str, "fingerprint": str, "counts": dict, "seconds": NUMBER, "outside": list, "content": str}
COUNTS = {"read": int, "kept": int, "dropped": dict}
BEGUN = {"fingerprint": str, "because": str, "retry": list, "spent": NUMBER}  # what begun.json may have


def folder_of(root: Path, name: str) -> Path:
    """`DIR/stages/NN_name`."""
    number = list(STAGES).index(name) + 1
    return root / "stages" / f"{number:02d}_{name}"


def left_over(root: Path) -> str:
    """A sentence that names the folders in `DIR/stages` of no stage in the list; "" without one.

    A stage that is removed, renamed or inserted before others leaves them: folders are numbered by the list.
    """
    ours = {folder_of(root, name).name for name in STAGES}
    names = [path.name for path in sorted((root / "stages").glob("*")) if path.is_dir()]
    others = [name for name in names if name.removesuffix(".next").removesuffix(".old") not in ours]
    if not others:
        return ""
    way_out = "another list of stages made this; nothing reads it, and it can be deleted"
    return f"{root / 'stages'} has {', '.join(others)}, which is of no stage: {way_out}."


def beside(folder: Path, word: str) -> Path:
    """Where new work is done while old output is kept (`next`), and where old output goes at last (`old`)."""
    return folder.with_name(f"{folder.name}.{word}")


def done_of(root: Path, name: str) -> dict[str, Any] | None:
    """`done.json` of a finished stage; None without one, and for one that is not readable.

    Raises BadInput if another release of driftline wrote it.
    """
    path = folder_of(root, name) / "done.json"
    try:
        done = read_json(path)
    except (DriftlineError, OSError):
        return None
    try:
        check_version(path, done["version"], VERSION, "Build it again in a new folder: driftline init.")
    except (ValueError, AttributeError, TypeError, KeyError):
        return None
    if not _is_mark(done, DONE) or not _is_mark(done["counts"], COUNTS):
        return None
    return done if all(isinstance(n, int) for n in done["counts"]["dropped"].values()) else None


def begun_of(folder: Path) -> dict[str, Any]:
    """`begun.json` of unfinished work: its fingerprint, and why it stopped; {} without one."""
    with suppress(DriftlineError, OSError):
        begun = read_json(folder / "begun.json")
        return (
            begun if isinstance(begun, dict) and _is_mark(begun, {k: v for k, v in BEGUN.items() if k in begun}) else {}
        )
    return {}


def _is_mark(value: Any, kinds: Mapping[str, Any]) -> bool:
    """Whether it is an object with values of these kinds."""
    return isinstance(value, dict) and all(isinstance(value.get(key), kind) for key, kind in kinds.items())


def settle(folder: Path) -> None:
    """Finish what a kill interrupted between two steps of `finish`."""
    new, old = beside(folder, "next"), beside(folder, "old")
    if (new / "done.json").is_file():
        _swap(folder)
    elif old.is_dir() and not folder.is_dir():
        old.rename(folder)
    elif old.is_dir():
        shutil.rmtree(old)
    if (folder / "done.json").is_file():
        (folder / "begun.json").unlink(missing_ok=True)


def finish(folder: Path, work: Path, done: Mapping[str, Any], repaired: Mapping[str, Any] | None = None) -> None:
    """Write `files.json` and `done.json` for the complete work, and put it in its place.

    repaired: done.json of damaged output. If the new output is what that was, it stays: later stages are current.
    """
    sweep(work)
    files = listing(work)
    write_json(work / "files.json", {name: [c.size, c.sha256] for name, c in files.items()})
    mark = {**done, "content": content_digest(files), "version": VERSION}
    if repaired is not None and all(repaired.get(key) == mark[key] for key in ("counts", "content")):
        mark = dict(repaired)
    write_json(work / "done.json", mark)
    if work == folder:
        (work / "begun.json").unlink()
    else:
        _swap(folder)
        settle(folder)


def _swap(folder: Path) -> None:
    """Complete new output takes the place of the old: a kill before any step leaves what `settle` can finish."""
    new, old = beside(folder, "next"), beside(folder, "old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.is_dir():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def damage(folder: Path, read_all: bool = False) -> list[str]:
    """Files of a finished stage that are missing or have another size (read_all: other bytes), by name."""
    known = _files(folder)
    if known is None:
        return ["files.json"]
    found = []
    for name, content in known.items():
        try:
            path = folder / name
            same = path.stat().st_size == content.size and (not read_all or sha256_file(path) == content.sha256)
        except (OSError, ValueError):  # ValueError: a list of files with a name that no file can have
            same = False
        if not same:
            found.append(name)
    return found


def _files(folder: Path) -> dict[str, Content] | None:
    try:
        known = read_json(folder / "files.json")
        "".join(known).encode()  # half of a surrogate pair names no file
        return {str(name): Content(int(size), str(digest)) for name, (size, digest) in known.items()}
    except (DriftlineError, OSError, ValueError, TypeError, AttributeError, OverflowError):
        return None


def reopen(folder: Path, damaged: list[str], parts: Any, fingerprint: str) -> None:
    """Make a finished stage unfinished without its damaged files and what belongs to them; other parts are kept.

    parts: pattern of the names of files in parts; its first group names the part. Files in no part are made again.
    """
    numbers = {match[1] for name in damaged if (match := parts.fullmatch(name))}
    write_json(folder / "begun.json", {"fingerprint": fingerprint})
    for path in list(files_of(folder)):
        match = parts.fullmatch(path.relative_to(folder).as_posix())
        if path.name not in ("begun.json", "done.json") and (match is None or match[1] in numbers):
            path.unlink()
    (folder / "done.json").unlink(missing_ok=True)


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in files_of(folder))


def check_is_folder(path: Path) -> None:
    """Raise BadInput if a file is where a folder must be."""
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path.absolute()} is a file.", "Expected a folder.", "Move the file, or name another folder.")
