"""Where a run holds something of people who annotated: its stores, and its text files with what is left of each without
one person."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import json_value, write_text
from driftline.curate.core.outside.documents import fitted
from driftline.curate.core.system.calls import sync_folder
from driftline.curate.validation.asking.platforms import label_studio
from driftline.pipelines.run.stage import Context
from driftline.pipelines.stages.ask import results_files

REJECTIONS = "suggested_rejections.csv"  # in the output of the stage tally
OF_TASKS = ("drafts", "updated_by", "comment_authors")  # of an export of Label Studio: who else touched a task


def stores(context: Context) -> list[Path]:
    """Folders of stores that may hold answers to the run: its own one, and that of a run without one."""
    folders = (context.config.store.folder(context.root), context.root / "batches")
    return [folder for folder in folders if (folder / "index.sqlite").is_file()]


def worker_of(line: Mapping[str, str]) -> str:
    """Who gave a line of a results file."""
    return line.get("WorkerId") or line.get("Turkle.Username") or ""


def files_with(
    context: Context, people: Collection[str], submissions: Collection[str]
) -> Iterator[tuple[Path, str, str]]:
    """(path, what it holds of them, the text without that) of each file. people: all names of the person. submissions:
    ids of what the person handed in."""
    annotate, prolific = context.root / "annotate", context.root / "prolific"
    paths = [(path, "names, answers") for path in results_files(context)]
    paths += [(path, "comments") for path in sorted(annotate.glob("*.comments.json"))]
    paths += [(path, "names") for end in ("*.alarms.json", "links-*.csv") for path in sorted(annotate.glob(end))]
    paths += [(path, "submissions that got a bonus") for path in sorted(prolific.glob("*.jsonl"))]
    for path, holds in paths:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
        if path.suffix == ".csv":
            rest = _table(text, people)
        elif path.suffix == ".jsonl":
            rest = _journal(text, submissions)
        else:
            rest = _document(text, people)
        if rest != text:
            yield path, holds, rest


def replace(path: Path, text: str) -> None:
    """Write what is left of a file, with the rights that it had; of a file of which nothing is left, delete it."""
    if text:
        mode = path.stat().st_mode & 0o777
        write_text(path, text)
        path.chmod(mode)
        return
    path.unlink()
    with suppress(FileNotFoundError):
        sync_folder(path.parent)


def _table(text: str, people: Collection[str]) -> str:
    """Without the rows of these people; the bytes of other rows stay."""
    lines = io.StringIO(text, newline="").readlines()
    reader = csv.reader(lines)
    header, end = next(reader, []), reader.line_num
    left = []
    for row in reader:
        cells = dict(zip(header, fitted(row, header), strict=False))
        if worker_of(cells) not in people and cells.get("participant") not in people:
            left += lines[end : reader.line_num]
        end = reader.line_num
    return "".join([*lines[: _first(lines)], *left]) if left else ""


def _first(lines: list[str]) -> int:
    """How many lines the header has."""
    reader = csv.reader(lines)
    next(reader, None)
    return reader.line_num


def _journal(text: str, submissions: Collection[str]) -> str:
    """A journal of Prolific without bonuses of these submissions."""

    def is_of(line: str) -> bool:
        word, _, what = str(json_value(line).get("step", "")).partition(" ")
        return word == "bonus" and what.partition(",")[0] in submissions

    return "".join(line for line in text.splitlines(keepends=True) if not line.strip() or not is_of(line))


def _document(text: str, people: Collection[str]) -> str:
    """Comments, groups of an alarm, or tasks of Label Studio, without these people."""
    values = json_value(text)
    left: list[Any] = []
    for one in values:
        if isinstance(one, list):
            names = [name for name in one if name not in people]
            left += [names] if len(names) > 1 else []
        elif "annotations" in one:
            own = [a for a in one["annotations"] if label_studio.author_of(a) in people]
            rest = {key: value for key, value in one.items() if key not in OF_TASKS} if own else one
            left.append(rest | {"annotations": [a for a in one["annotations"] if a not in own]})
        elif one.get("annotator") not in people:
            left.append(one)
    if left == values:
        return text
    return json.dumps(left, indent=2, sort_keys=True, ensure_ascii=False) + "\n" if left else ""
