"""What a run would do to each stage, and does: skip, resume, repair, swap of old output for new; status.

Unfinished work continues where it stopped. Finished output is removed only when its successor is complete.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from driftline.curate.core.atomic_io import TEMPORARY, fingerprint
from driftline.curate.core.errors import BadConfig, DriftlineError, Unfinished, UnknownName, Waiting
from driftline.curate.core.files import look_again, one_walk
from driftline.curate.validation.settings import FORGOTTEN
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages import state as on_disk
from driftline.pipelines.stages.base import Context, Stage, reasons_text
from driftline.pipelines.stages.bucket import Bucket
from driftline.pipelines.stages.state import BORDERS, DONE, INTENT, RECORD, StageState, begun_of, done_of, folder_of

SHORT = 10.0  # seconds that are repeated without a word
FORCED = "requested by --from"


@dataclass(frozen=True)
class Verdict:
    """What a run would do to one stage, as plan, run and status say."""

    stage: str
    """name of the stage"""
    action: Literal["skip", "run", "resume", "repair"]
    """what `run` would do"""
    because: str
    """the reason"""
    seconds: float | None = None
    """time that work took which would be repeated; None: nothing is repeated"""
    damaged: Sequence[str] = ()
    """files of finished output that are missing or changed"""


def make(context: Context) -> list[Stage]:
    """All stages, in order."""
    return [STAGES[name](context) for name in STAGES]


def check_stages(start: str | None, until: str | None) -> None:
    """Raise UnknownName for a stage that does not exist, BadConfig for a first one behind the last one."""
    order = list(STAGES)
    for name, flag in ((start, "--from"), (until, "--until")):
        if name is not None and name not in order:
            raise UnknownName(f"Unknown stage {name!r} for {flag}.", f"Stages, in order: {', '.join(order)}.")
    if start is not None and until is not None and order.index(start) > order.index(until):
        raise BadConfig(f"--from {start} is after --until {until}: nothing would be done.", "Expected them in order.")


def plan(context: Context, start: str | None = None, until: str | None = None) -> list[Verdict]:
    """What `run` would do; changes nothing."""
    check_stages(start, until)
    plans: list[Verdict] = []
    forced = False
    for stage in make(context):
        forced = forced or stage.name == start
        before = [p.action for p in plans if p.action != "skip"]
        plans.append(verdict(StageState(stage), before, forced))
        if stage.name == until:
            break
    return plans


def verdict(state: StageState, before: Sequence[str] = (), forced: bool = False) -> Verdict:
    """What a run would do to a stage. before: what it would do to earlier stages, but skip. Raises MissingFile."""
    stage, context = state.stage, state.stage.context
    if forced:
        return Verdict(stage.name, "run", FORCED)
    if context.retry is not None and stage.name == "fetch":
        again = f"asks again for {', '.join(context.retry.reasons)}"
        if damaged := state.damage(context.verify) if state.current else []:
            return Verdict(stage.name, "repair", f"{damage_text(damaged)}; {again}", damaged=damaged)
        return Verdict(stage.name, "resume", again)
    seconds = state.done["seconds"] if state.done else None
    if "run" not in before and state.current:
        if damaged := state.damage(context.verify):
            return Verdict(stage.name, "repair", damage_text(damaged), None if stage.parts else seconds, damaged)
        if not before:
            return Verdict(stage.name, "skip", "finished with these settings and inputs")
        return Verdict(stage.name, "run", "an earlier stage is done again; it is kept if the result is the same")
    if not before:
        if state.unfinished_work() is not None:
            return Verdict(stage.name, "resume", "started with these settings and inputs")
        if state.unreadable:
            because = f"its {DONE} is damaged"
            return Verdict(stage.name, "repair", because, None if stage.parts else state.unfinished_seconds())
    if state.done:
        return Verdict(stage.name, "run", "settings or inputs changed", seconds if set(before) <= {"run"} else None)
    if (lost := state.unfinished_seconds()) is not None and not before:
        return Verdict(stage.name, "run", "unfinished work with other settings or inputs is discarded", lost)
    return Verdict(stage.name, "run", "not done yet")


def damage_text(damaged: Sequence[str]) -> str:
    """Damaged files as one phrase."""
    return f"{', '.join(damaged[:3])}{f' and {len(damaged) - 3:,} more' if len(damaged) > 3 else ''} missing or changed"


def announce(context: Context, plans: Sequence[Verdict]) -> None:
    """Say which finished work is done again."""
    again = [p for p in plans if (p.seconds or 0.0) >= SHORT]
    if not again:
        return
    skipped = [p.stage for p in plans if p.action == "skip"]
    context.run_log.say(
        f"To do again: {', '.join(f'{p.stage} ({p.because}, {duration(p.seconds or 0.0)} last time)' for p in again)}."
        f" Kept as they are: {', '.join(skipped) or 'no stages'}. Old output is kept until the new one is complete."
    )


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.2), duration(90), duration(11520)
    ('0.2 s', '2 min', '3 h 12 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


OWN_FILES = (RECORD, INTENT, FORGOTTEN, BORDERS)  # in the run folder, written under its lock only


def run(
    context: Context,
    start: str | None = None,
    until: str | None = None,
    before: Callable[[], None] | None = None,
    planned: Callable[[Sequence[Verdict]], None] | None = None,
) -> list[dict[str, Any]]:
    """Run all stages that are not done, in order; returns `status`.

    All settings are checked before any work. before: called while the folder is locked, before anything is planned;
    without it, an unfinished attempt to grow ends with this run. planned: gets the plans. A run that needs answers
    stops: its entry `waiting` has the key `because`, which says what to do. An error leaves what was done in place.
    """
    check_stages(start, until)
    run_log = context.run_log
    because = ""
    with on_disk.alone(context.root), one_walk():
        for name in OWN_FILES:
            for left in context.root.glob(f"{TEMPORARY}*-{name}"):  # of a process that was killed
                left.unlink(missing_ok=True)
        for stage in make(context):
            on_disk.settle(folder_of(context.root, stage.name))
        if (context.root / INTENT).is_file():
            from driftline.pipelines.run.leaving import resume

            resume(context)
        if before is not None:
            before()
        plans = plan(context, start, until)
        if planned is not None:
            planned(plans)
        todo = {p.stage: p for p in plans if p.action != "skip"}
        stages = [stage for stage in make(context) if stage.name in {p.stage for p in plans}]
        for stage in stages:
            if stage.name in todo:
                stage.check()
        announce(context, plans)
        on_disk.write_changes(context.root, context.changes)
        for stage in stages:
            try:
                _run_one(stage, todo.get(stage.name))
                look_again()  # hours later, and what was seen of many photos is large
            except Waiting as waiting:
                because = str(waiting)
                run_log.write("waiting", stage=stage.name, because=because)
                break
            except DriftlineError as error:
                run_log.write("failed", stage=stage.name, error=str(error))
                raise
            except KeyboardInterrupt:
                finished = ", ".join(name for name in STAGES if done_of(context.root, name)) or "no whole stage"
                kept = f"{finished}, and what {stage.name} has completed"
                command = shlex.join(["driftline", "run", str(context.root)])
                raise KeyboardInterrupt(f"Stopped in {stage.name}. Kept: {kept}. Go on: {command}") from None
        if before is None:
            on_disk.end_growth(context.root, fingerprint(Bucket(context).settings()))
    entries = status(context)
    for entry in entries:
        if entry["state"] == "waiting" and (because or entry["stage"] == until):
            entry["because"] = because or f"Answer with driftline annotate {context.root}, or on a crowd platform."
    return entries


def _run_one(stage: Stage, planned: Verdict | None) -> None:
    """planned: what was announced; None: to be skipped."""
    context, run_log = stage.context, stage.context.run_log
    forced = planned is not None and planned.because == FORCED
    if forced:
        stage = replace(stage, context=replace(context, fresh=True))
    stage.prepare()
    state = StageState(stage)
    now = verdict(state, forced=forced)  # which earlier stages may have changed
    if now.action == "skip":
        run_log.write("skipped", stage=stage.name)
        return
    assert state.mark is not None  # the stages before are done
    if state.done and now.action == "run" and not forced and planned is not None and planned.seconds is None:
        announce(context, [now])
    state.reopen(now.damaged)
    retry = context.retry if stage.name == "fetch" else None
    work, spent = state.begin(forced, None if retry is None else list(retry.reasons))
    if retry is not None:
        retry = replace(retry, output=state.folder if work != state.folder else None)
        stage = replace(stage, context=replace(stage.context, retry=retry))
    run_log.write("started", stage=stage.name, fingerprint=state.mark)
    clock = time.monotonic()
    try:
        counts = stage.run({need: folder_of(context.root, need) for need in stage.needs}, work)
    except Unfinished as error:
        state.stop(work, str(error))
        raise
    plain = counts.plain()
    stage.check_kept(counts)
    dropped = reasons_text(plain["dropped"])
    seconds = round(spent + time.monotonic() - clock, 3)
    state.finish(work, plain, seconds, repaired=bool(now.damaged))
    run_log.say(
        f"{stage.name}: kept {counts.kept:,} of {counts.read:,} in {seconds:.1f} s"
        + (f" ({dropped})" if dropped else "")
    )
    run_log.write("done", stage=stage.name, counts=plain, seconds=seconds)


def status(context: Context, verify: bool = False) -> list[dict[str, Any]]:
    """Each stage: state (done, stale, damaged, unfinished, waiting, pending), counts, seconds; `note` where there is
    more to say. verify: read all output."""
    entries: list[dict[str, Any]] = []
    stale = False
    with one_walk():
        for stage in make(replace(context, verify=verify)):
            entry = _entry(StageState(stage), stale)
            stale = stale or entry["state"] not in ("done", "damaged")
            entries.append(entry)
    ask, tally = (next(e for e in entries if e["stage"] == name) for name in ("ask", "tally"))
    crowd = context.config.validation.method == "crowd"
    if crowd and ask["state"] == "done" and tally["state"] != "done":
        ask["state"] = "waiting"
        if tally["state"] == "unfinished":
            tally["state"] = "pending"
    return entries


def _entry(state: StageState, stale: bool) -> dict[str, Any]:
    """stale: whether an earlier stage is to be done again."""
    name, verify = state.stage.name, state.stage.context.verify
    entry: dict[str, Any] = {"stage": name, "state": "pending", "counts": None, "seconds": None}
    notes: list[str] = []
    damaged: Sequence[str] = ()
    if state.done:
        counts = state.done["counts"]
        if (folder_of(state.root, "tally") / "asked.parquet").is_file():  # later rounds may have changed them
            from driftline.pipelines.stages.photos import counts_of

            counts = counts_of(state.root, name)
        entry |= {"counts": counts, "seconds": state.done["seconds"]}
        notes += on_disk.placeholders(state.root) if name == "fetch" else []
        try:
            now = verdict(state, ["run"] if stale else [])
            entry["state"], damaged = {"skip": "done", "repair": "damaged"}.get(now.action, "stale"), now.damaged
        except (DriftlineError, OSError) as error:
            entry["state"], damaged = "done" if state.was_current else "stale", state.damage(verify)
            notes.append(f"It cannot be compared with its source: {error}")
        if damaged:
            entry["state"] = "damaged"
            repair = "heal" if verify and not state.damage() else "run"
            notes.append(f"{damage_text(damaged)}. Repair: driftline {repair} {state.root}")
    elif state.unreadable:
        entry["state"] = "damaged"
        notes.append(f"{state.folder / DONE} is not readable. Repair: driftline run {state.root}")
    elif state.unfinished:
        entry["state"] = "unfinished"
    for work in (state.folder, state.next):
        if "because" in (begun := begun_of(work)):
            notes.append(begun["because"])
        elif work == state.next and work.is_dir():
            notes.append(f"New output is unfinished in {work}; the old one is kept.")
    return entry | ({"note": " ".join(notes)} if notes else {})


def table(entries: Sequence[dict[str, Any]]) -> str:
    """`status` as aligned lines for people."""
    lines = [f"{'stage':<10}{'state':<12}{'read':>10}{'kept':>10}{'seconds':>10}  dropped"]
    for e in entries:
        c = e["counts"] or {"read": "", "kept": "", "dropped": {}}
        read, kept = (f"{c[k]:,}" if c[k] != "" else "" for k in ("read", "kept"))
        seconds = "" if e["seconds"] is None else f"{e['seconds']:.1f}"
        dropped = reasons_text(c["dropped"])
        lines.append(f"{e['stage']:<10}{e['state']:<12}{read:>10}{kept:>10}{seconds:>10}  {dropped}".rstrip())
    return "\n".join([*lines, *(f"{e['stage']}: {e['note']}" for e in entries if "note" in e)])
