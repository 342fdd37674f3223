"""What a run was before it began to grow, until it has grown.

`DIR/growing` holds it, `before.json` last. The borders and rows that an attempt keeps are there, too: they become
`DIR/borders.json` and `DIR/earlier.parquet` when the attempt has finished. After a failed one the next begins from the
same state, so that nothing of the failed one is frozen.
"""

from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import read_json, remove_tree, write_json

FOLDER, BEFORE, BORDERS, EARLIER = "growing", "before.json", "borders.json", "earlier.parquet"


def read(root: Path) -> dict[str, Any] | None:
    """The content of before.json of an unfinished attempt; None without one."""
    path = root / FOLDER / BEFORE
    before: dict[str, Any] | None = read_json(path) if path.is_file() else None
    return before


def begin(root: Path) -> Path:
    """An empty folder for what the run is now; `write` ends it."""
    folder = root / FOLDER
    remove_tree(folder)
    folder.mkdir(parents=True)
    return folder


def write(root: Path, before: dict[str, Any]) -> None:
    """Write before.json."""
    write_json(root / FOLDER / BEFORE, before)


def finish(root: Path, settings: str) -> None:
    """What an attempt kept becomes the run's own. settings: as of `borders_of`."""
    if read(root) is not None:
        for path in (borders_of(root, settings), earlier_of(root)):
            if path.parent != root:
                path.replace(root / path.name)
        (root / FOLDER / BEFORE).unlink()
    remove_tree(root / FOLDER)


def borders_of(root: Path, settings: str) -> Path:
    """Where the borders are that a run keeps: of an unfinished attempt, else its own. settings: fingerprint of those of
    the stage bucket; with other ones, those of the attempt do not count."""
    before = read(root)
    return _of(root, BORDERS, before is not None and before.get("settings") == settings)


def earlier_of(root: Path) -> Path:
    """Where the rows are that a run had before: likewise."""
    return _of(root, EARLIER, read(root) is not None)


def _of(root: Path, name: str, counts: bool) -> Path:
    path = root / FOLDER / name
    return path if counts and path.is_file() else root / name
