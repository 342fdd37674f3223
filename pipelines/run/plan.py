"""What `run` would do to each stage, and what it asks before it repeats long work."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from driftline.curate.core.errors import Unconfirmed, UnknownName
from driftline.curate.core.run_log import last_event
from driftline.pipelines.run.identity import is_current, mark_of, outside_of
from driftline.pipelines.run.stage import Context, Stage
from driftline.pipelines.run.stage_folder import begun_of, beside, damage, done_of, folder_of, size_of
from driftline.pipelines.stages import STAGES

LONG = 600.0  # seconds of finished work that are repeated only with --yes
SHORT = 10.0  # seconds that are repeated without a word


@dataclass(frozen=True)
class Plan:
    """What would happen to one stage."""

    stage: str
    """name of the stage"""
    action: Literal["skip", "run", "resume", "repair"]
    """what `run` would do"""
    because: str
    """the reason"""
    seconds: float | None = None
    """time that work took which would be repeated; None: nothing is repeated"""


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
    forced = False
    for stage in make(context):
        forced = forced or stage.name == start
        before = [p.action for p in plans if p.action != "skip"]
        plans.append(_plan(stage, forced, before))
        if stage.name == until:
            break
    return plans


def _plan(stage: Stage, forced: bool, before: Sequence[str]) -> Plan:
    """before: what is done to earlier stages, but skipped."""
    folder = folder_of(stage.context.root, stage.name)
    done = done_of(stage.context.root, stage.name)
    seconds = done["seconds"] if done else None
    if forced:
        return Plan(stage.name, "run", "requested by --from")
    if stage.context.retry is not None and stage.name == "fetch":
        return Plan(stage.name, "resume", f"asks again for {', '.join(stage.context.retry.reasons)}")
    if done and "run" not in before and is_current(stage, done):
        if damaged := damage(folder, stage.context.verify):
            return Plan(stage.name, "repair", damage_text(damaged), None if stage.parts else seconds)
        if not before:
            return Plan(stage.name, "skip", "finished with these settings and inputs")
        return Plan(stage.name, "run", "an earlier stage is done again; it is kept if the result is the same")
    if not before:
        if unfinished_work(stage) is not None:
            return Plan(stage.name, "resume", "started with these settings and inputs")
        if not done and (folder / "done.json").exists():
            because = "its done.json is damaged"
            return Plan(stage.name, "repair", because, None if stage.parts else unfinished_seconds(folder))
    if done:
        return Plan(stage.name, "run", "settings or inputs changed", seconds if set(before) <= {"run"} else None)
    if (lost := unfinished_seconds(folder)) is not None and not before:
        return Plan(stage.name, "run", "unfinished work with other settings or inputs is discarded", lost)
    return Plan(stage.name, "run", "not done yet")


def damage_text(damaged: Sequence[str]) -> str:
    """Damaged files as one phrase."""
    return f"{', '.join(damaged[:3])}{f' and {len(damaged) - 3:,} more' if len(damaged) > 3 else ''} missing or changed"


def unfinished_work(stage: Stage) -> Path | None:
    """The folder with unfinished work of these settings and inputs."""
    folder = folder_of(stage.context.root, stage.name)
    works = [work for work in (folder, beside(folder, "next")) if "fingerprint" in begun_of(work)]
    works = [work for work in works if not (work / "done.json").exists()]
    if not works:
        return None
    mark = mark_of(stage, outside_of(stage))
    return next((work for work in works if begun_of(work)["fingerprint"] == mark), None)


def unfinished_seconds(folder: Path) -> float | None:
    """How long unfinished work has taken so far, by the times of its files."""
    begun = folder / "begun.json"
    if not begun.is_file():
        return None
    times = [path.stat().st_mtime for path in folder.rglob("*") if path.is_file()]
    return max(times, default=0.0) - begun.stat().st_mtime


def confirm(context: Context, plans: Sequence[Plan], yes: bool) -> None:
    """Say which finished work is done again. Raises Unconfirmed if it took longer than LONG or if the disk has less
    room than the old output takes, unless `yes`."""
    again = [p for p in plans if (p.seconds or 0.0) >= SHORT]
    if not again:
        return
    kept = [p.stage for p in plans if p.action == "skip"]
    seconds = sum(p.seconds or 0.0 for p in again)
    room = max(size_of(folder_of(context.root, p.stage)) for p in again)
    free = shutil.disk_usage(context.root).free
    text = (
        f"To do again: {', '.join(f'{p.stage} ({p.because}, {duration(p.seconds or 0.0)} last time)' for p in again)}."
        f" Kept as they are: {', '.join(kept) or 'no stages'}. Old output is kept until the new one is complete."
    )
    if not yes and (seconds > LONG or room > free):
        short = f"It needs about {room:,} bytes beside the old output; {free:,} are free." if room > free else ""
        raise Unconfirmed(text, short, "Add --yes to do it.")
    context.run_log.say(text)


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.2), duration(90), duration(11520)
    ('0.2 s', '2 min', '3 h 12 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def lost_mark(stage: Stage) -> str | None:
    """The fingerprint of finished output whose done.json is damaged, by the log of the run; None if it does not say."""
    root = stage.context.root
    started = last_event(root / "log.jsonl", "started", stage=stage.name)
    done = last_event(root / "log.jsonl", "done", stage=stage.name)
    if started is None or done is None or done["time"] < started["time"]:
        return None
    return str(started.get("fingerprint"))
