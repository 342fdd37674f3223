"""The steps by which names and answers leave a run folder; each may be done twice, so that a kill loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import (
    json_value,
    read_json,
    read_object,
    remove_tree,
    write_json,
    write_parquet,
    write_text,
)
from driftline.curate.core.system.calls import sync_folder
from driftline.curate.store.database import open_store
from driftline.curate.store.upkeep import delete_answers
from driftline.curate.validation.answers.answers import ANSWERS, KEY
from driftline.curate.validation.answers.standing import deletions, keep_verdicts
from driftline.curate.validation.asking.batches import read_batch
from driftline.pipelines.annotation.answer_store import AnswerStore
from driftline.pipelines.annotation.batches import local_files
from driftline.pipelines.run.one_person import finish
from driftline.pipelines.run.person_files import REJECTIONS, stores
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import INTENT, StageState, beside, folder_of
from driftline.pipelines.stages.ask import answers_of, results_files
from driftline.pipelines.stages.tally import Tally

JUDGED = ("judges", "kept_labels", "unseen_labels", "least_precision")  # of a report about models
WAY_OUT = "Delete it, and run the command again: what is deleted already stays deleted."


def resume(context: Context) -> None:
    """Finish what `forget` began, also after a kill; nothing if it did not begin. The folder is locked."""
    root = context.root
    if not (root / INTENT).is_file():
        return
    entry = begun(root)
    if "called" in entry:
        finish(context, entry)
        return
    if entry["answers"] and entry["time"] not in [one["time"] for one in deletions(root)]:
        _keep(context, entry)
    for path, _ in local_files(context):
        with closing(AnswerStore(path)) as store:
            store.delete_all()
    for path in (*results_files(context), *beside_answers(root), root / KEY):
        path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            sync_folder(path.parent)
    for path, lines in journals(root):
        write_text(path, "".join(line + "\n" for line in lines))
    for folder in stores(context):
        with open_store(folder) as base:
            delete_answers(base, batches(root))
    _empty_tally(context)
    (root / INTENT).unlink()


def begun(root: Path) -> dict[str, Any]:
    return read_object(root / INTENT, {"time": int, "answers": int, "people": int, "images": int}, WAY_OUT)


def _keep(context: Context, entry: dict[str, Any]) -> None:
    """Write what stays."""
    root, tallied = context.root, folder_of(context.root, "tally")
    verdicts, answers = (pq.read_table(tallied / f"{name}.parquet") for name in ("verdicts", "answers"))
    record = root / "batches" / f"{read_batch(folder_of(root, 'ask'))['batch']}.json"
    options = read_object(record, {"options": dict}, "Restore it from a copy.")["options"]
    stored = answers_of(context, folder_of(root, "bucket"), make=False)
    digests = stored.digests({*verdicts["id"].to_pylist(), *answers["id"].to_pylist()})
    keep_verdicts(root, entry, verdicts, answers, digests, options, context.config.validation)


def _empty_tally(context: Context) -> None:
    """Leave verdicts and counts in the output of the stage, which stays finished."""
    tallied = folder_of(context.root, "tally")
    for word in ("next", "old"):
        remove_tree(beside(tallied, word))
    write_parquet(tallied / "answers.parquet", ANSWERS.empty_table())
    report = read_json(tallied / "agreement.json")
    of_models = {key: value for key, value in report.items() if key in JUDGED}
    write_json(tallied / "agreement.json", {"answers": 0, "deleted": deletions(context.root), **of_models})
    (tallied / REJECTIONS).unlink(missing_ok=True)
    StageState(Tally(context)).amend()


def beside_answers(root: Path) -> list[Path]:
    """Comments, alarms and links of the local page."""
    return sorted(
        path for end in ("*.comments.json", "*.alarms.json", "links-*.csv") for path in (root / "annotate").glob(end)
    )


def journals(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Journals of Prolific's studies with lines about single submissions, and the other lines: no study is published
    twice."""
    for path in sorted((root / "prolific").glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        left = [line for line in lines if not str(json_value(line).get("step", "")).startswith("bonus")]
        if len(left) < len(lines):
            yield path, left


def batches(root: Path) -> list[str]:
    """Names of all batches that the run asked."""
    return sorted(path.stem for path in (root / "batches").glob("*.json"))
