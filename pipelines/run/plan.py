"""What `run` would do to each stage, and what it asks before it repeats long work."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from driftline.curate.core.errors import BadConfig, Unconfirmed, UnknownName
from driftline.pipelines.run.stage import Context, Stage
from driftline.pipelines.run.state import DONE, StageState, folder_of
from driftline.pipelines.stages import STAGES

LONG = 600.0  # seconds of finished work that are repeated only with --yes
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


def confirm(context: Context, plans: Sequence[Verdict], yes: bool) -> None:
    """Say which finished work is done again. Raises Unconfirmed if it took longer than LONG or if the disk has less
    room than the old output takes, unless `yes`."""
    again = [p for p in plans if (p.seconds or 0.0) >= SHORT]
    if not again:
        return
    skipped = [p.stage for p in plans if p.action == "skip"]
    seconds = sum(p.seconds or 0.0 for p in again)
    files = [[*folder_of(context.root, p.stage).rglob("*")] for p in again]
    room = max(sum(path.stat().st_size for path in paths if path.is_file()) for paths in files)
    free = shutil.disk_usage(context.root).free
    text = (
        f"To do again: {', '.join(f'{p.stage} ({p.because}, {duration(p.seconds or 0.0)} last time)' for p in again)}."
        f" Kept as they are: {', '.join(skipped) or 'no stages'}. Old output is kept until the new one is complete."
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
