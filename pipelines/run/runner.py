"""Runs stages: skip, resume, repair, swap of old output for new; status.

A folder without `done.json` is unfinished. `begun.json` holds the fingerprint of the work in it: the same work
continues where it stopped. Finished output is removed only when its successor is complete.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import TEMPORARY, sweep, write_json
from driftline.curate.core.errors import BadInput, Busy, DriftlineError, Shortage, Unfinished, Waiting
from driftline.curate.core.system.calls import lock
from driftline.pipelines.run import plan as planning
from driftline.pipelines.run.identity import is_current, mark_of, outside_of, update_record
from driftline.pipelines.run.plan import Plan, check_stage, confirm, make, plan
from driftline.pipelines.run.stage import Context, Counts, Stage
from driftline.pipelines.run.stage_folder import (
    begun_of,
    beside,
    check_is_folder,
    damage,
    done_of,
    finish,
    folder_of,
    left_over,
    reopen,
    settle,
)
from driftline.pipelines.stages import STAGES

OWN_FILES = ("record.json", "borders.json", "earlier.parquet")  # in the run folder, written under its lock only


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Lock a run folder: one process at a time works on it. Raises Busy, naming that process, and BadInput for a folder
    that cannot be written."""
    check_is_folder(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = (root / ".lock").open("a+")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise BadInput(
            f"{root.absolute()} cannot be written.",
            "Here driftline status, trace, dropped, plan and report work.",
            "To run it, copy the folder or change its rights.",
        ) from None
    with file:
        if not lock(file, wait=False):
            file.seek(0)
            worker = " ".join(file.read(200).split())
            process = f"Another driftline process ({worker})" if worker else "Another driftline process"
            raise Busy(f"{process} is working on {root}.", "", "Wait until it ends.")
        file.truncate(0)
        who = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M')}"
        with suppress(OSError):  # on a full disk the lock holds without its name
            os.write(file.fileno(), who.encode())
        try:
            yield
        finally:
            file.truncate(0)


def run(
    context: Context,
    start: str | None = None,
    until: str | None = None,
    yes: bool = False,
    before: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """Run all stages that are not done, in order; returns `status`.

    All settings are checked before any work. yes: repeat long work without asking. before: called while the folder is
    locked, before anything is planned. A run that needs answers stops
    without an error: its entry with the state `waiting` has the key `because`, which says what to do. After an error,
    everything that was done stays in place.
    """
    check_stage(start, "--from")
    check_stage(until, "--until")
    run_log = context.run_log
    because = ""
    with alone(context.root):
        for name in OWN_FILES:
            for left in context.root.glob(f"{TEMPORARY}*-{name}"):  # of a process that was killed
                left.unlink(missing_ok=True)
        for stage in make(context):
            settle(folder_of(context.root, stage.name))
        if others := left_over(context.root):
            run_log.say(others)
        if before is not None:
            before()
        plans = plan(context, start, until)
        todo = {p.stage: p for p in plans if p.action != "skip"}
        stages = [stage for stage in make(context) if stage.name in {p.stage for p in plans}]
        for stage in stages:
            if stage.name in todo:
                stage.check()
        confirm(context, plans, yes)
        update_record(context.root, changes=list(context.changes))
        for stage in stages:
            try:
                _run_one(stage, todo.get(stage.name), yes)
            except Waiting as waiting:
                because = str(waiting)
                run_log.write("waiting", stage=stage.name, because=because)
                break
            except DriftlineError as error:
                run_log.write("failed", stage=stage.name, error=str(error))
                raise
            except KeyboardInterrupt:
                raise KeyboardInterrupt(_stopped(stage)) from None
    entries = status(context)
    for entry in entries:
        if entry["state"] == "waiting" and (because or entry["stage"] == until):
            entry["because"] = because or f"Answer with driftline annotate {context.root}, or on a crowd platform."
    return entries


def _stopped(stage: Stage) -> str:
    """What Ctrl-C leaves, and how to go on."""
    context = stage.context
    kept = [name for name in STAGES if done_of(context.root, name)]
    command = shlex.join(["driftline", "run", str(context.root), *(f"--set={change}" for change in context.changes)])
    return (
        f"Stopped in {stage.name}. Kept: {', '.join(kept) or 'no whole stage'}, and what {stage.name} has completed. "
        f"Go on: {command}"
    )


def _run_one(stage: Stage, planned: Plan | None, yes: bool) -> None:
    """planned: what was announced; None: to be skipped."""
    context, run_log = stage.context, stage.context.run_log
    stage.prepare()
    folder = folder_of(context.root, stage.name)
    done = done_of(context.root, stage.name)
    forced = planned is not None and planned.because == "requested by --from"
    retry = None if context.retry is None or stage.name != "fetch" else list(context.retry.reasons)
    damaged = damage(folder, context.verify) if done else []
    current = done is not None and not forced and is_current(stage, done)
    if done and current and not damaged and retry is None:
        run_log.write("skipped", stage=stage.name)
        return
    if forced:
        stage = replace(stage, context=replace(context, fresh=True))
    outside = outside_of(stage)
    mark = mark_of(stage, outside)
    assert mark is not None  # the stages before are done
    if done and not current and planned is not None and planned.seconds is None and not forced:
        confirm(context, [replace(planned, seconds=done["seconds"])], yes)
    _mend(stage, mark, done if current else None, damaged)
    work = beside(folder, "next") if (folder / "done.json").exists() else folder
    begun: dict[str, Any] = {"fingerprint": mark}
    if retry is not None:
        if work != folder:
            begun["retry"] = retry
        stage = _retrying(stage, folder if work != folder else None)
    there = begun_of(work)
    spent = 0.0
    if not (forced and work == folder) and all(there.get(key) == begun.get(key) for key in ("fingerprint", "retry")):
        spent = there.get("spent", 0.0) + (planning.unfinished_seconds(work) or 0.0)
        begun["spent"] = spent
        sweep(work)
        run_log.say(f"{stage.name}: continuing where it stopped")
    else:
        shutil.rmtree(work, ignore_errors=True)
    write_json(work / "begun.json", begun)
    run_log.write("started", stage=stage.name, fingerprint=mark)
    clock = time.monotonic()
    try:
        counts = stage.run({need: folder_of(context.root, need) for need in stage.needs}, work)
        _check_some_kept(stage, counts)
    except Unfinished as error:
        write_json(work / "begun.json", {**begun_of(work), "because": str(error)})
        raise
    seconds = round(spent + time.monotonic() - clock, 3)
    plain = counts.plain()
    facts = {"stage": stage.name, "fingerprint": mark, "inputs": list(stage.needs), "counts": plain}
    finish(folder, work, {**facts, "outside": outside, "seconds": seconds}, done if current and damaged else None)
    dropped = _dropped(plain)
    run_log.say(
        f"{stage.name}: kept {counts.kept:,} of {counts.read:,} in {seconds:.1f} s"
        + (f" ({dropped})" if dropped else "")
    )
    run_log.write("done", stage=stage.name, counts=plain, seconds=seconds)


def _retrying(stage: Stage, output: Path | None) -> Stage:
    """The stage with the finished output whose images it keeps."""
    context = stage.context
    assert context.retry is not None
    return replace(stage, context=replace(context, retry=replace(context.retry, output=output)))


def _mend(stage: Stage, mark: str, done: dict[str, Any] | None, damaged: list[str]) -> None:
    """Make damaged output of these settings unfinished work, if it is made in parts: then good parts are kept."""
    folder = folder_of(stage.context.root, stage.name)
    if not stage.parts:
        return
    lost = done is None and (folder / "done.json").exists() and done_of(stage.context.root, stage.name) is None
    if damaged and done is not None:
        reopen(folder, damaged, re.compile(stage.parts), mark)
    elif lost and planning.lost_mark(stage) == mark:
        reopen(folder, damage_of_unmarked(folder), re.compile(stage.parts), mark)


def damage_of_unmarked(folder: Path) -> list[str]:
    """Damaged files of a folder whose done.json is not readable."""
    return damage(folder) if (folder / "files.json").is_file() else []


def _check_some_kept(stage: Stage, counts: Counts) -> None:
    if counts.kept == 0:
        reasons = _dropped(counts.plain()) or "it read none"
        raise Shortage(f"The stage {stage.name} kept none of {counts.read:,} records ({reasons}).", "", stage.hint)


def _dropped(plain: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v:,}" for k, v in plain["dropped"].items())


def status(context: Context, verify: bool = False) -> list[dict[str, Any]]:
    """Each stage: state (done, stale, damaged, unfinished, waiting, pending), counts, seconds; `note` where there is
    more to say. verify: read all output."""
    entries: list[dict[str, Any]] = []
    stale = False
    for stage in make(context):
        entry = _entry(stage, stale, verify)
        stale = stale or entry["state"] not in ("done", "damaged")
        entries.append(entry)
    ask, tally = (next(e for e in entries if e["stage"] == name) for name in ("ask", "tally"))
    crowd = context.config.validation.method == "crowd"
    if crowd and ask["state"] == "done" and tally["state"] != "done":
        ask["state"] = "waiting"
        if tally["state"] == "unfinished":
            tally["state"] = "pending"
    return entries


def _entry(stage: Stage, stale: bool, verify: bool) -> dict[str, Any]:
    folder = folder_of(stage.context.root, stage.name)
    done = done_of(stage.context.root, stage.name)
    entry: dict[str, Any] = {"stage": stage.name, "state": "pending", "counts": None, "seconds": None}
    notes = []
    if done:
        entry |= {"state": "done", "counts": _counts(stage, done), "seconds": done["seconds"]}
        if stale:
            entry["state"] = "stale"
        else:
            try:
                current = is_current(stage, done)
            except (DriftlineError, OSError) as error:
                current = _was_current(stage, done)
                notes.append(f"It cannot be compared with its source: {error}")
            entry["state"] = "done" if current else "stale"
        if damaged := damage(folder, verify):
            entry["state"] = "damaged"
            hidden = " --verify" if verify and not damage(folder) else ""
            notes.append(f"{planning.damage_text(damaged)}. Repair: driftline run {stage.context.root}{hidden}")
    elif (folder / "done.json").exists():
        entry["state"] = "damaged"
        notes.append(f"{folder / 'done.json'} is not readable. Repair: driftline run {stage.context.root}")
    elif (folder / "begun.json").is_file():
        entry["state"] = "unfinished"
    for work in (folder, beside(folder, "next")):
        if "because" in (begun := begun_of(work)):
            notes.append(begun["because"])
        elif work != folder and work.is_dir():
            notes.append(f"New output is unfinished in {work}; the old one is kept.")
    return entry | ({"note": " ".join(notes)} if notes else {})


def _counts(stage: Stage, done: dict[str, Any]) -> Any:
    """Counts of a finished stage; pyarrow is imported only where later rounds may have changed them."""
    if not (folder_of(stage.context.root, "tally") / "asked.parquet").is_file():
        return done["counts"]
    from driftline.pipelines.reporting.dropped import counts_of

    return counts_of(stage.context.root, stage.name)


def _was_current(stage: Stage, done: dict[str, Any]) -> bool:
    """Whether the settings are those of finished output, by what was recorded of its source."""
    try:
        return mark_of(stage, done["outside"]) == done["fingerprint"]
    except (DriftlineError, OSError):
        return True


def table(entries: Sequence[dict[str, Any]]) -> str:
    """`status` as aligned lines for people."""
    lines = [f"{'stage':<10}{'state':<12}{'read':>10}{'kept':>10}{'seconds':>10}  dropped"]
    for e in entries:
        c = e["counts"] or {"read": "", "kept": "", "dropped": {}}
        dropped = ", ".join(f"{k} {v:,}" for k, v in c["dropped"].items())
        read, kept = (f"{c[k]:,}" if c[k] != "" else "" for k in ("read", "kept"))
        seconds = "" if e["seconds"] is None else f"{e['seconds']:.1f}"
        lines.append(f"{e['stage']:<10}{e['state']:<12}{read:>10}{kept:>10}{seconds:>10}  {dropped}".rstrip())
    return "\n".join([*lines, *(f"{e['stage']}: {e['note']}" for e in entries if "note" in e)])
