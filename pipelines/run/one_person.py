"""One person who annotated is forgotten: nothing that names the person stays. Each answer stays as a vote of nobody, so
that every verdict, count and agreement is what it was.

A vote has a random name of its own for each photo, no assignment, no time and no comment.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import read_json, read_object, remove_tree, write_json, write_parquet, write_text
from driftline.curate.core.errors import BadConfig, UnknownName, did_you_mean
from driftline.curate.store.database import open_store
from driftline.curate.store.upkeep import anonymise, answers_of
from driftline.curate.validation.answers.answers import (
    LABEL_STUDIO,
    NOBODY,
    hashed,
    read_answers,
    read_lines,
    table_of,
    worker_key,
)
from driftline.curate.validation.answers.standing import deletions, keep_record
from driftline.curate.validation.asking.batches import marketplace_csv
from driftline.pipelines.annotation.answer_store import COLUMNS, AnswerStore
from driftline.pipelines.annotation.batches import local_files
from driftline.pipelines.run.person_files import REJECTIONS, files_with, replace, stores, worker_of
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import INTENT, StageState, beside, folder_of
from driftline.pipelines.stages.ask import answers_of as stored_answers
from driftline.pipelines.stages.ask import results_files
from driftline.pipelines.stages.tally import Tally

PRIVATE = ("called", "hashes", "submissions", "names", "votes")  # of what is to be done: nothing of it stays


def intent_of(context: Context, person: str, entry: dict[str, Any]) -> dict[str, Any]:
    """What is to be done, as INTENT keeps it while it is done. entry: see `deletions`. Raises UnknownName for somebody
    who did not annotate, BadConfig where answers are weighted by who gave them."""
    root, aggregate = context.root, context.config.validation.aggregate
    if aggregate != "votes":
        problem = f"validation.aggregate is {aggregate}: each answer is weighted by all answers of its person."
        raise BadConfig(problem, "Expected votes, to forget one person.", "Forget all, without --person.")
    key, called = worker_key(root, make=False), [person, LABEL_STUDIO + person]
    hashes = [hashed(name, key) for name in called]
    lines = read_lines(results_files(context))
    own = [row for row in pq.read_table(_answers(root)).to_pylist() if row["worker"] in hashes]
    votes: dict[str, list[list[Any]]] = {}
    for batch, some in lines.items():
        if (path := root / "batches" / f"{batch}.json").is_file():
            facts = read_object(path, {"facts": dict}, "Restore it from a copy.")["facts"]
            rows = [row for row in read_answers(some, facts, key).to_pylist() if row["worker"] in hashes]
            votes[batch] = [[r["item"], r["id"], r["labels"], r["sensitive"]] for r in rows if r["fault"] is None]
    ids = {row["id"] for row in own} | {vote[1] for some in votes.values() for vote in some}
    digests = stored_answers(context, folder_of(root, "bucket"), make=False).digests(ids)
    names = {digest: _nobody() for digest in digests.values()}
    counted = [row["id"] for row in own if row["fault"] is None]
    everybody = [(worker_of(line), line) for some in lines.values() for _, line in some]
    intent = {
        **entry, "person": True, "answers": len(counted), "people": 1, "images": len(set(counted)), "agreement": {},
        "cells": [], "batches": [], "guarantee": None, "called": called, "hashes": hashes, "votes": votes,
        "names": names | {id_: names[digest] if (digest := digests.get(id_)) else _nobody() for id_ in sorted(ids)},
        "submissions": sorted({line.get("AssignmentId") or "" for name, line in everybody if name in called} - {""}),
    }  # fmt: skip
    if not places(context, intent):
        near = did_you_mean(person, sorted({name for name, _ in everybody}))
        expected = "Expected a name as on the page, or an id of the platform."
        raise UnknownName(f"{root} holds nothing of {person!r}.", near or expected)
    return intent


def places(context: Context, intent: dict[str, Any]) -> list[dict[str, str]]:
    """Files that hold something of the person, and what."""
    tallied, hashes = folder_of(context.root, "tally"), intent["hashes"]
    holding = [(path, holds) for path, holds, _ in files_with(context, intent["called"], intent["submissions"])]
    for path, _ in local_files(context):
        with closing(AnswerStore(path)) as store:
            if not all(store.is_empty(name) for name in intent["called"]):
                holding.append((path, "names, answers, comments"))
    for folder in stores(context):
        with open_store(folder) as base:
            if n := answers_of(base, hashes):
                holding.append((folder / "index.sqlite", f"{n:,} answers, a keyed hash of the id, assignments"))
    if {*pq.read_table(_answers(context.root), columns=["worker"])["worker"].to_pylist()} & {*hashes}:
        holding.append((_answers(context.root), "answers, a keyed hash of the id, assignments"))
        holding.append((tallied / "agreement.json", "facts of the worker, with the hash"))
        others = [tallied / REJECTIONS, *(beside(tallied, word) for word in ("next", "old"))]
        holding += [(path, "assignments, answers") for path in others if path.exists()]
    return [{"file": str(path), "holds": holds} for path, holds in holding]


def finish(context: Context, intent: dict[str, Any]) -> None:
    """Do what `intent_of` said, also after a kill: each step may be done twice. The folder is locked."""
    root, names = context.root, intent["names"]
    for batch, some in intent["votes"].items():
        rows = [
            (item, "", names[id_], "Submitted", "", "", batch, item, "|".join(labels), "yes" if flag else "no", "")
            for item, id_, labels, flag in sorted(some)
        ]
        path = root / context.config.validation.answers / f"votes-{batch}-{intent['time']}.csv"
        if rows:
            write_text(path, marketplace_csv(COLUMNS, rows))
            path.chmod(0o600)
    for path, _ in local_files(context):
        with closing(AnswerStore(path)) as store:
            for name in intent["called"]:
                store.delete_all(name)
    for path, _, rest in list(files_with(context, intent["called"], intent["submissions"])):
        replace(path, rest)
    for folder in stores(context):
        with open_store(folder) as base:
            anonymise(base, intent["hashes"], names, _nobody)
    if intent["time"] not in [one["time"] for one in deletions(root)]:
        keep_record(root, {key: value for key, value in intent.items() if key not in PRIVATE})
    _clean_tally(context, intent)
    (root / INTENT).unlink()


def _clean_tally(context: Context, intent: dict[str, Any]) -> None:
    """Put votes in the place of answers in the output of the stage, which the next run counts again."""
    tallied, names, hashes = folder_of(context.root, "tally"), intent["names"], intent["hashes"]
    for word in ("next", "old"):
        remove_tree(beside(tallied, word))
    rows = pq.read_table(_answers(context.root)).to_pylist()
    rows = [row for row in rows if row["worker"] not in hashes or row["fault"] is None]
    for row in rows:
        if row["worker"] in hashes:
            row |= {"worker": names[row["id"]], "assignment": None, "seconds": None, "time": None}
    write_parquet(_answers(context.root), table_of(sorted(rows, key=lambda row: (row["item"], row["worker"]))))
    report = read_json(tallied / "agreement.json")
    workers = [row for row in report.get("workers", []) if row["worker"] not in hashes]
    write_json(tallied / "agreement.json", {**report, "workers": workers, "deleted": deletions(context.root)})
    (tallied / REJECTIONS).unlink(missing_ok=True)
    StageState(Tally(context)).amend()


def _answers(root: Path) -> Path:
    return folder_of(root, "tally") / "answers.parquet"


def _nobody() -> str:
    return NOBODY + secrets.token_hex(8)
