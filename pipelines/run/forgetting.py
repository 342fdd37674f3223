"""People who answered are forgotten: their ids and answers leave a run, and the verdicts and counts stay."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.metadata.withdrawals import today
from driftline.curate.release.format import Release
from driftline.curate.store.database import open_store
from driftline.curate.store.upkeep import answers_to
from driftline.curate.validation.answers import FORGOTTEN
from driftline.curate.validation.answers.answers import KEY, read_lines
from driftline.curate.validation.answers.standing import briefly, cells_of, people_of
from driftline.pipelines.annotation.answer_store import AnswerStore
from driftline.pipelines.annotation.batches import export_all, local_files
from driftline.pipelines.run.deleting import batches, begun, beside_answers, journals, resume
from driftline.pipelines.run.one_person import intent_of, places
from driftline.pipelines.run.person_files import REJECTIONS, stores
from driftline.pipelines.run.runner import alone
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import INTENT, StageState, beside, folder_of
from driftline.pipelines.stages.ask import results_files
from driftline.pipelines.stages.publish import agreement_of
from driftline.pipelines.stages.tally import Tally


def forget(context: Context, yes: bool = False, person: str | None = None) -> dict[str, Any]:
    """Delete the names and answers of the people who annotated a run with a release. Without `yes`, only list them.
    person: of this one alone, see `one_person`.

    Returns {"files": what holds them, "answers", "people", "images", "deleted": whether it was done, "before": earlier
    deletions, "other_runs": runs with the same store}.
    Raises MissingFile for a run without a release or without people, UnknownName for somebody who did not annotate,
    BadInput where answers came after its last run, Busy while another process works on the folder or reads a file of
    it.
    """
    root = context.root
    with alone(root):
        if not (root / INTENT).is_file():
            export_all(context)
            entry = _entry(context) if person is None else intent_of(context, person, _entry(context))
        else:
            entry = begun(root)
        files = places(context, entry) if "called" in entry else _places(context)
        if files and yes and not (root / INTENT).is_file():
            write_json(root / INTENT, entry)
            (root / INTENT).chmod(0o600)
        others = [] if "called" in entry else _other_runs(context)
        if yes:
            resume(context)
    return {
        "files": files,
        **{key: entry[key] for key in ("answers", "people", "images")},
        "deleted": yes,
        "before": briefly(root)[0],
        "other_runs": others,
    }


def _entry(context: Context) -> dict[str, Any]:
    """What there is to delete, see `deletions`."""
    root, tallied = context.root, folder_of(context.root, "tally")
    state = StageState(Tally(context))
    release = folder_of(root, "publish") / "release"
    if state.done is None or not (release / "release.json").is_file():
        raise MissingFile(f"{root} has no release yet.", "Answers decide its labels.", f"Run: driftline run {root}.")
    if not (tallied / "answers.parquet").is_file():
        raise MissingFile(f"{root} has no answers of people.", "", "Nothing is to be deleted.")
    counts = people_of(pq.read_table(tallied / "answers.parquet"))
    if late := [
        name for name, digest in state.outside if name != FORGOTTEN and [name, digest] not in state.done["outside"]
    ]:
        raise BadInput(
            f"{late[0]} holds answers that came after the last run.",
            "Expected a release that counts all answers: they would be lost.",
            f"Run: driftline run {root}.",
        )
    agreement, guarantee = agreement_of(tallied) or {}, tallied / "guarantee.json"
    agreement.pop("deleted", None)
    return {
        "time": int(time.time()), "date": today(), "release": Release.open(release).facts["version"],
        "answers": sum(counts.values()), "people": agreement.get("workers", 0), "images": len(counts),
        "agreement": agreement, "cells": list(cells_of(pq.read_table(tallied / "verdicts.parquet"))),
        "batches": sorted(read_lines(results_files(context)).keys() & set(batches(root))),
        "guarantee": read_json(guarantee) if guarantee.is_file() else None,
    }  # fmt: skip


def _places(context: Context) -> list[dict[str, str]]:
    """Files that hold names or answers of people, and what they hold."""
    root, tallied = context.root, folder_of(context.root, "tally")
    places: list[tuple[Path, str]] = [(path, "names, answers") for path in results_files(context)]
    for path, _ in local_files(context):
        with closing(AnswerStore(path)) as store:
            places += [] if store.is_empty() else [(path, "names, answers, comments")]
    places += [(path, "names") for path in beside_answers(root)]
    places += [(path, "submissions that got a bonus") for path, _ in journals(root)]
    for folder in stores(context):
        with open_store(folder) as base:
            n = answers_to(base, batches(root))
        places += [(folder / "index.sqlite", f"{n:,} answers, keyed hashes of ids, assignments")] if n else []
    path = tallied / "answers.parquet"
    if path.is_file() and pq.read_metadata(path).num_rows:
        places.append((path, "answers, keyed hashes of ids, assignments"))
        places.append((tallied / "agreement.json", "facts of each worker, with hashes of ids"))
    others = [tallied / REJECTIONS, *(beside(tallied, word) for word in ("next", "old"))]
    places += [(path, "assignments, answers") for path in others if path.exists()]
    places += [(root / KEY, "the key of the hashes")] if places and (root / KEY).is_file() else []
    return [{"file": str(path), "holds": holds} for path, holds in places]


def _other_runs(context: Context) -> list[str]:
    """Runs that use a store with answers to this run."""
    runs: set[str] = set()
    for folder in stores(context):
        with open_store(folder) as base:
            if answers_to(base, batches(context.root)):
                runs |= {path for (path,) in base.base.execute("SELECT path FROM runs")}
    return sorted(path for path in runs if Path(path) != context.root.absolute())
