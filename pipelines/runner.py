"""Runs stages: fingerprints, skip, resume, status.

A folder without `done.json` is unfinished. `begun.json` holds the fingerprint of the work in it: the same work
continues where it stopped, other work starts in an empty folder.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from curate.core.atomic_io import check_version, content_digest, fingerprint, quick_digest, read_json, sweep, write_json
from curate.core.errors import Busy, DriftlineError, Shortage, UnknownName, Waiting
from pipelines import VERSION
from pipelines.stage import Context, Stage
from pipelines.stages import STAGES


@dataclass(frozen=True)
class Plan:
    """What would happen to one stage."""

    stage: str
    """name of the stage"""
    action: Literal["skip", "run", "resume"]
    """what `run` would do"""
    because: str
    """the reason"""


def folder_of(root: Path, name: str) -> Path:
    """`DIR/stages/NN_name`."""
    number = list(STAGES).index(name) + 1
    return root / "stages" / f"{number:02d}_{name}"


def done_of(root: Path, name: str) -> dict[str, Any] | None:
    """`done.json` of a finished stage, or None. Raises BadInput if a newer driftline wrote it."""
    path = folder_of(root, name) / "done.json"
    if not path.is_file():
        return None
    done: dict[str, Any] = read_json(path)
    check_version(path, done["version"], VERSION)
    return done


def stage_fingerprint(stage: Stage) -> str | None:
    """Hash of settings, outside files and the inputs' `done.json`; None while an input is unfinished."""
    inputs = {}
    for need in stage.needs:
        done = done_of(stage.context.root, need)
        if done is None:
            return None
        inputs[need] = fingerprint({k: v for k, v in done.items() if k != "seconds"})
    outside = [(str(p.name), quick_digest(p)) for p in stage.outside()]
    return fingerprint([stage.name, stage.version, stage.settings(), outside, inputs])


def make(context: Context) -> list[Stage]:
    """All stages, in order."""
    return [STAGES[name](context) for name in STAGES]


def check_stage(name: str | None, flag: str) -> None:
    """Raise UnknownName for a stage that does not exist."""
    if name is not None and name not in STAGES:
        raise UnknownName(f"Unknown stage {name!r} for {flag}.", f"Stages, in order: {', '.join(STAGES)}.")


def plan(context: Context, start: str | None = None, until: str | None = None) -> list[Plan]:
    """What `run` would do; changes nothing."""
    check_stage(start, "--from")
    check_stage(until, "--until")
    plans: list[Plan] = []
    stale = forced = False
    for stage in make(context):
        forced = forced or stage.name == start
        done = done_of(context.root, stage.name)
        begun = folder_of(context.root, stage.name) / "begun.json"
        mark = None if stale else stage_fingerprint(stage)
        if forced:
            plans.append(Plan(stage.name, "run", "requested by --from"))
        elif done and mark == done["fingerprint"]:
            plans.append(Plan(stage.name, "skip", "finished with these settings and inputs"))
        elif begun.is_file() and mark is not None and read_json(begun)["fingerprint"] == mark:
            plans.append(Plan(stage.name, "resume", "started with these settings and inputs"))
        else:
            plans.append(Plan(stage.name, "run", "settings or inputs changed" if done else "not done yet"))
        stale = stale or plans[-1].action != "skip"
        if stage.name == until:
            break
    return plans


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Lock a run folder: one process at a time works on it. Raises Busy."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"Another driftline process is working on {root}.", "", "Wait until it ends.") from None
        yield


def run(context: Context, start: str | None = None, until: str | None = None) -> list[dict[str, Any]]:
    """Run all stages that are not done, in order; returns `status`.

    A run that needs answers stops without an error: its entry with the state `waiting` has the key `because`, which
    says what to do. After an error, everything that was done stays in place.
    """
    check_stage(start, "--from")
    check_stage(until, "--until")
    run_log = context.run_log
    because = ""
    with alone(context.root):
        forced = False
        for stage in make(context):
            forced = forced or stage.name == start
            try:
                _run_one(stage, forced)
            except Waiting as waiting:
                because = str(waiting)
                run_log.write("waiting", stage=stage.name, because=because)
                break
            except DriftlineError as error:
                run_log.write("failed", stage=stage.name, error=str(error))
                raise
            if stage.name == until:
                break
    entries = status(context)
    for entry in entries:
        if entry["state"] == "waiting" and (because or entry["stage"] == until):
            entry["because"] = because or f"Answer with driftline annotate {context.root}, or on a crowd platform."
    return entries


def _run_one(stage: Stage, forced: bool) -> None:
    context, run_log = stage.context, stage.context.run_log
    stage.prepare()
    out = folder_of(context.root, stage.name)
    mark = stage_fingerprint(stage)
    done = done_of(context.root, stage.name)
    if done and done["fingerprint"] == mark and not forced:
        run_log.write("skipped", stage=stage.name)
        return
    begun = out / "begun.json"
    if not (begun.is_file() and read_json(begun).get("fingerprint") == mark) or forced or done:
        shutil.rmtree(out, ignore_errors=True)
        write_json(begun, {"fingerprint": mark})
    else:
        sweep(out)
        run_log.say(f"{stage.name}: continuing where it stopped")
    run_log.write("started", stage=stage.name, fingerprint=mark)
    clock = time.monotonic()
    counts = stage.run({need: folder_of(context.root, need) for need in stage.needs}, out)
    seconds = round(time.monotonic() - clock, 3)
    plain = counts.plain()
    if counts.kept == 0:
        reasons = ", ".join(f"{k} {v:,}" for k, v in plain["dropped"].items())
        raise Shortage(
            f"The stage {stage.name} kept none of {counts.read:,} records ({reasons or 'it read none'}).",
            "",
            stage.hint,
        )
    sweep(out)
    write_json(
        out / "done.json",
        {
            "stage": stage.name,
            "fingerprint": mark,
            "inputs": list(stage.needs),
            "counts": plain,
            "content": content_digest(out),
            "seconds": seconds,
            "version": VERSION,
        },
    )
    begun.unlink()
    dropped = ", ".join(f"{k} {v:,}" for k, v in plain["dropped"].items())
    run_log.say(
        f"{stage.name}: kept {counts.kept:,} of {counts.read:,} in {seconds:.1f} s"
        + (f" ({dropped})" if dropped else "")
    )
    run_log.write("done", stage=stage.name, counts=plain, seconds=seconds)


def status(context: Context) -> list[dict[str, Any]]:
    """Each stage: state (done, stale, unfinished, waiting, pending), counts, seconds."""
    entries: list[dict[str, Any]] = []
    stale = False
    for stage in make(context):
        done = done_of(context.root, stage.name)
        entry: dict[str, Any] = {"stage": stage.name, "state": "pending", "counts": None, "seconds": None}
        if done:
            stale = stale or stage_fingerprint(stage) != done["fingerprint"]
            entry |= {
                "state": "stale" if stale else "done",
                "counts": done["counts"],
                "seconds": done["seconds"],
            }
        elif (folder_of(context.root, stage.name) / "begun.json").is_file():
            entry["state"] = "unfinished"
            stale = True
        else:
            stale = True
        entries.append(entry)
    ask, tally = (next(e for e in entries if e["stage"] == name) for name in ("ask", "tally"))
    crowd = context.config.validation.method == "crowd"
    if crowd and ask["state"] == "done" and tally["state"] != "done":
        ask["state"] = "waiting"
        if tally["state"] == "unfinished":
            tally["state"] = "pending"
    return entries


def table(entries: Sequence[dict[str, Any]]) -> str:
    """`status` as aligned lines for people."""
    lines = [f"{'stage':<10}{'state':<12}{'read':>10}{'kept':>10}{'seconds':>10}  dropped"]
    for e in entries:
        c = e["counts"] or {"read": "", "kept": "", "dropped": {}}
        dropped = ", ".join(f"{k} {v:,}" for k, v in c["dropped"].items())
        read, kept = (f"{c[k]:,}" if c[k] != "" else "" for k in ("read", "kept"))
        seconds = "" if e["seconds"] is None else f"{e['seconds']:.1f}"
        lines.append(f"{e['stage']:<10}{e['state']:<12}{read:>10}{kept:>10}{seconds:>10}  {dropped}".rstrip())
    return "\n".join(lines)
