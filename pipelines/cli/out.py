"""The one guard of `--out`: where a command may write is decided before any work."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from driftline.curate.core.atomic_io import read_json, sweep_file
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.system import is_planted

Kind = Literal["stream", "draws", "rows", "run", "release", "report", "audit", "model", "encoder", "age",
               "reproduction"]  # fmt: skip

MARKS: dict[Kind, tuple[str, tuple[str, ...]]] = {  # kind → what it is called, the files that only its command writes
    "stream": ("a stream", ("stream.json",)),
    "draws": ("draws of a stream", ("seed-*/stream.json",)),
    "rows": ("rows of driftline eval", ("*/*/run.json", "*/run.json", "run.json", "*/skipped/*.json")),
    "run": ("a run", ("driftline.yaml",)),
    "release": ("a release", ("release.json",)),
    "report": ("a report", ("report.js",)),
    "audit": ("an audit", ("audit.html", "audit.json")),
    "model": ("a model", ("open_clip_config.json",)),
    "age": ("a page of driftline age", ("age.json",)),
    "reproduction": ("a page of driftline reproduce", ("table.json",)),
    "encoder": ("a trained encoder", ("pretrain.json", "images.u8")),
}
SEALED: tuple[Kind, ...] = ("stream", "release")  # their content is hashed: nothing else is written into them


def guarded_out(out: Path, writes: Kind | None = None, suffixes: Sequence[str] = (), option: str = "--out") -> Path:
    """`out`, where a command may write there.

    writes: what the command writes into a folder; its own earlier output may be there. None: files without a mark.
    suffixes: of the files that it can write, as in (".zip",): then `out` is a file. ("", ".svg"): a folder without one
    of these suffixes, else a file. option: its name in messages.

    Raises BadConfig for a link, a file in the place of a folder and the reverse, another suffix, a folder that holds
    what another command wrote, and a place inside a stream, a release or rows.
    """
    elsewhere = f"Set another {option}."
    if out.is_symlink():
        raise BadConfig(f"{option} is {out}, a link.", "Expected the folder or the file itself.", elsewhere)
    if is_planted(out):
        raise BadConfig(f"{option} is {out}, which somebody else made.", "Expected your own.", elsewhere)
    is_file = out.suffix.lower() in suffixes if out.suffix else False
    if not is_file and suffixes and "" not in suffixes:
        raise BadConfig(f"{option} is {out}.", f"Expected a file that ends with {' or '.join(suffixes)}.")
    if out.exists() and out.is_dir() == is_file:
        what, expected = ("folder", "file") if is_file else ("file", "folder")
        raise BadConfig(f"{option} is {out}, a {what}.", f"Expected a {expected}.", elsewhere)
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir():
        raise BadConfig(f"{option} is {out}, but {above} is a file.", "Expected a folder.", elsewhere)
    for kind, (called, marks) in MARKS.items():
        places = [] if is_file or kind == writes else [out]
        places += list(out.absolute().parents)[:2] if kind in SEALED else []
        for place in places:
            if any(True for mark in marks for _ in place.glob(mark)):
                may = f"Expected a new folder, or one with {MARKS[writes][0]}." if writes else "Expected another place."
                raise BadConfig(f"{option} is {out}, but {place} holds {called}.", may, elsewhere)
    for folder in () if writes == "rows" else list(out.absolute().parents)[:2]:
        run = next(folder.glob("*/*/run.json"), None)  # of rows a folder that is named by their protocol
        about = {} if run is None else read_json(run)
        if run is not None and isinstance(about, dict) and about.get("protocol") == run.parent.parent.name:
            called = MARKS["rows"][0]
            raise BadConfig(f"{option} is {out}, but {folder} holds {called}.", "Expected another place.", elsewhere)
    sweep_file(out)
    return out
