"""Photos that their owners withdrew leave a run, and the ids and answers of people who annotated.

Lists beside a run and beside its store name the photos. Of people, verdicts and counts stay: a mark is written first,
then the verdicts that stay; each later step may be done twice, so that a kill loses nothing.

What a run keeps when photos leave or come: the images that were asked about, and the sides of its release. `DIR/kept`
has a table of each, named by the digest of the settings that decide it: with others it does not count. The place of a
photo that was withdrawn stays empty: no other photo is asked about or published instead.
"""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.bucketing import assign
from driftline.curate.core.atomic_io import read_json, remove_tree, sweep, write_json, write_parquet, write_secret
from driftline.curate.core.errors import BadInput, Busy, MissingFile
from driftline.curate.core.files import connect
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.system import sync_folder
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.metadata.withdrawals import NAME, Withdrawal, address_digest, today, withdraw, withdrawals
from driftline.curate.release.format import Release
from driftline.curate.store.database import answers_to, delete_answers, open_store
from driftline.curate.validation.answers.answers import ANSWERS, KEY, people_of
from driftline.curate.validation.answers.stored import deletions, freeze
from driftline.curate.validation.asking.batches import read_batch
from driftline.curate.validation.asking.crowd import REJECTIONS
from driftline.curate.validation.settings import FORGOTTEN
from driftline.pipelines.config.loader import load
from driftline.pipelines.stages.ask import answers_of, export_all, items_of, local_files, results_files
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.bucket import Bucket
from driftline.pipelines.stages.photos import history
from driftline.pipelines.stages.publish import Publish, agreement_of
from driftline.pipelines.stages.retrieve import Retrieve
from driftline.pipelines.stages.state import (
    INTENT,
    StageState,
    alone,
    beside,
    done_of,
    folder_of,
    is_finished,
    kept_changes,
)
from driftline.pipelines.stages.tally import Tally


def forget(context: Context, yes: bool = False) -> dict[str, Any]:
    """Delete the names and answers of the people who annotated a run with a release. Without `yes`, only list them.

    Returns {"files": what holds them, "deleted": whether it was done, "answers", "people", "images"}. Raises
    MissingFile for a run without a release or without people, BadInput where answers came after its last run, Busy
    while another process works on the folder or reads a file of it.
    """
    root = context.root
    with alone(root):
        if (root / INTENT).is_file():
            entry = read_json(root / INTENT)
        else:
            export_all(context)
            entry = _entry(context)
        places = _places(context)
        if yes:
            _close_pages(context)
            if places:
                write_secret(root / INTENT, entry)
            resume(context)
    return {"files": places, "deleted": yes, **{key: entry[key] for key in ("answers", "people", "images")}}


def resume(context: Context) -> None:
    """Finish what `forget` began, also after a kill; nothing if it did not begin. The folder is locked."""
    root = context.root
    if not (root / INTENT).is_file():
        return
    entry = read_json(root / INTENT)
    if entry["answers"] and entry["time"] not in [one["time"] for one in deletions(root)]:
        _freeze(context, entry)
    for path in results_files(context):
        path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        sync_folder(context.answers_folder)
    sweep(context.answers_folder)
    remove_tree(root / "annotate")
    for folder in _stores(context):
        with open_store(folder) as base:
            delete_answers(base, _batches(root))
    _empty_tally(context)
    (root / KEY).unlink(missing_ok=True)
    sync_folder(root)
    (root / INTENT).unlink()


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
    agreement = agreement_of(tallied) or {}
    agreement.pop("deleted", None)
    return {
        "time": int(time.time()), "date": today(), "release": Release.open(release).facts["version"],
        "answers": sum(counts.values()), "people": agreement.get("workers", 0), "images": len(counts),
        "agreement": agreement,
    }  # fmt: skip


def _freeze(context: Context, entry: dict[str, Any]) -> None:
    """Write what stays."""
    root, tallied = context.root, folder_of(context.root, "tally")
    verdicts, answers = (pq.read_table(tallied / f"{name}.parquet") for name in ("labels", "answers"))
    record = root / "batches" / f"{read_batch(folder_of(root, 'ask'))['batch']}.json"
    options = read_json(record)["options"]
    stored = answers_of(context, folder_of(root, "bucket"), make=False)
    freeze(root, entry, verdicts, people_of(answers), stored.digests(set(verdicts["id"].to_pylist())), options)


def _empty_tally(context: Context) -> None:
    """Leave verdicts and counts in the output of the stage, which stays finished."""
    tallied = folder_of(context.root, "tally")
    for word in ("next", "old"):
        remove_tree(beside(tallied, word))
    write_secret(tallied / "answers.parquet", ANSWERS.empty_table())
    report = read_json(tallied / "agreement.json")
    judged = {"judged": report["judged"]} if "judged" in report else {}
    write_secret(tallied / "agreement.json", {"answers": 0, "deleted": deletions(context.root)} | judged)
    (tallied / REJECTIONS).unlink(missing_ok=True)
    StageState(Tally(context)).amend()


def _close_pages(context: Context) -> None:
    """Raise Busy while `driftline annotate` has a file of answers open: it would write into a deleted one."""
    for path, _ in local_files(context):
        with closing(connect(path)) as base:
            try:
                base.execute("PRAGMA journal_mode = DELETE")  # which only the one process may that has it open
            except sqlite3.OperationalError:
                raise Busy(f"A page of driftline annotate uses {path}.", "", "Stop it, and run this again.") from None


def _places(context: Context) -> list[str]:
    """Files that hold names or answers of people, hashes of names, and their key."""
    root, tallied = context.root, folder_of(context.root, "tally")
    paths = [*results_files(context), *sorted((root / "annotate").glob("*"))]
    for folder in _stores(context):
        with open_store(folder) as base:
            paths += [folder / "index.sqlite"] if answers_to(base, _batches(root)) else []
    path = tallied / "answers.parquet"
    if path.is_file() and pq.read_metadata(path).num_rows:
        paths += [path, tallied / "agreement.json"]
    others = (tallied / REJECTIONS, *(beside(tallied, word) for word in ("next", "old")))
    paths += [path for path in others if path.exists()]
    return list(map(str, [*paths, root / KEY] if paths and (root / KEY).is_file() else paths))


def _stores(context: Context) -> list[Path]:
    """Folders of stores that may hold answers to the run: its own one, and that of a run without one."""
    folders = (context.config.store.folder(context.root), context.root / "batches")
    return [folder for folder in folders if (folder / "index.sqlite").is_file()]


def _batches(root: Path) -> list[str]:
    """Names of all batches that the run asked."""
    return sorted(path.stem for path in (root / "batches").glob("*.json"))


def withdraw_photos(root: Path, photos: Sequence[str], reason: str = "") -> dict[str, Any]:
    """Withdraw photos of a run. photos: ids, paths, file names or URLs. Raises UnknownName before anything is written.

    Returns {"out": the run's list, "withdrawn": ids, "already": ids, "release": the version that holds one, or None}.
    """
    release = folder_of(root, "publish") / "release"
    opened = Release.open(release) if (release / "release.json").is_file() else None
    released = set() if opened is None else set(opened.table["id"].to_pylist())
    rows, names = [], released_ids(root)
    for photo in photos:
        whole = history(root, photo)
        url = next((event["url"] for event in whole["events"] if event.get("url")), None)
        in_release = opened is not None and {whole["id"], names.get(whole["id"])} & released
        version = opened.facts["version"] if opened is not None and in_release else ""
        digest = "" if url is None else address_digest(url)
        rows.append(Withdrawal(whole["id"], today(), " ".join(reason.split()), version, digest))
    changes = kept_changes(root)
    config = load(root / "driftline.yaml", changes)
    if {one.id for one in rows} - {one.id for one in withdrawals(root / NAME)}:  # else the run may have gone on
        keep_what_stays(Context(root, config, RunLog(None, quiet=True), changes=tuple(changes)))
    new = {one.id for one in withdraw(root / NAME, rows)}
    settings = config.store
    if settings.use and (with_address := [one._replace(id="", release="", reason="") for one in rows if one.address]):
        withdraw(settings.folder(root) / NAME, with_address)
    ids = [one.id for one in rows]
    return {
        "out": str(root / NAME),
        "withdrawn": [id_ for id_ in ids if id_ in new],
        "already": [id_ for id_ in ids if id_ not in new],
        "release": next((one.release for one in rows if one.release), None),
    }


def keep_asked(context: Context) -> None:
    """Keep the candidates that these settings chose, those of later rounds included: people were asked about them."""
    retrieve, tally = Retrieve(context), Tally(context)
    if StageState(retrieve).was_current:
        table = items_of(folder_of(context.root, "retrieve"))
        if StageState(tally).was_current:
            later = pq.read_table(folder_of(context.root, "tally") / "asked.parquet", filters=pc.field("round") > 1)
            table = pa.concat_tables([table, later.select(table.column_names)])
        _keep(retrieve.asked(), table, ["id", "bucket", "concept"])


def keep_what_stays(context: Context) -> None:
    """Before photos are withdrawn: keep what was asked, groups and sides of the published images, if the splits are
    those of the settings, and the borders of buckets that are cut by the number of photos."""
    keep_asked(context)
    config, place = context.config, folder_of(context.root, "publish") / "release"
    facts = read_json(place / "release.json") if is_finished(context.root, "publish") else None
    if facts and (facts["provenance"]["seed"], len(facts["splits"])) == (config.seed, config.release.splits):
        _keep(Publish(context).sides(), pq.read_table(place / "metadata.parquet"), ["id"])
    if config.buckets.kind == "equal" and (frozen := frozen_borders(context)) is not None:
        write_json(Bucket(context).borders(), frozen)


def frozen_borders(context: Context) -> dict[str, Any] | None:
    """The borders of the finished buckets; None if there are none yet, or the settings have them."""
    if done_of(context.root, "bucket") is None or context.config.buckets.kind not in assign.GROWING:
        return None
    bucketed = folder_of(context.root, "bucket")
    members = pq.read_table(bucketed / "members.parquet", columns=["id", "uploaded", "until", "bucket"])
    return assign.freeze(read_json(bucketed / "buckets.json"), members.combine_chunks(), context.config.buckets)


def _keep(path: Path, table: pa.Table, keys: list[str]) -> None:
    """Write the table, and the rows of the file before that it lacks: of photos that have left."""
    if path.is_file():
        before = pq.read_table(path)
        left = before.join(table.select(keys), keys, join_type="left anti").select(table.column_names)
        table = pa.concat_tables([table, left])
    sweep(path.parent)
    write_parquet(path, table.combine_chunks())
