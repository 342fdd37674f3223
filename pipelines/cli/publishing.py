"""`driftline export --to`: an exported release → the Hub or S3."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig


def check_target(to: str | None, formats: list[str]) -> None:
    """Raise BadConfig, before any work, unless --to names a target and one format is exported."""
    from driftline.curate.publishing import PUBLISHERS

    if to is None:
        return
    kind, colon, _ = to.partition(":")
    if not colon:
        raise BadConfig(f"--to is {to!r}.", f"Expected TARGET:PLACE; targets: {', '.join(PUBLISHERS)}.")
    PUBLISHERS.entry(kind)
    if len(formats) != 1:
        raise BadConfig(f"--to was given with {len(formats)} formats.", "Expected one: what is exported is published.")


def publish(folder: Path, to: str, dry_run: bool, settings: Any) -> tuple[dict[str, Any], str]:
    """Publish an exported folder, or only show what would be sent; (for --json, for people)."""
    from driftline.curate.publishing import PUBLISHERS, plan_of, table

    kind, _, place = to.partition(":")
    plan = plan_of(folder)
    if dry_run:
        visible = "public" if settings.public else "private"
        text = f"{table(plan)}\nNothing was sent: a dry run. Without --dry-run, they go to {to}, {visible}."
        return {"to": to, "dry_run": True, "files": plan.files, "bytes": plan.size}, text
    done = PUBLISHERS[kind](plan, place, settings)
    visible = "public" if done.public else "private: only you see it"
    text = f"{done.address}: {done.sent:,} files sent, {done.removed:,} of the last version removed; {visible}."
    return {"to": to, **asdict(done)}, f"{text} {done.note}".strip()
