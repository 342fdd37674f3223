"""The identity of a stage: a fingerprint of all that its output depends on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json
from driftline.curate.core.digests import full_digest
from driftline.curate.core.errors import DriftlineError, MissingFile
from driftline.pipelines.run.stage import Stage
from driftline.pipelines.run.stage_folder import done_of

Outside = list[list[str]]  # name, digest


def outside_of(stage: Stage) -> Outside:
    """Name and digest of the files and folders outside the run that the output depends on. Raises MissingFile."""
    paths, cache = stage.outside(), stage.context.root / "digests.sqlite"
    if missing := [path for path in paths if not path.exists()]:
        raise MissingFile(
            f"There is no {missing[0].absolute()}.",
            f"The stage {stage.name} reads it.",
            "Check the settings.",
        )
    return [[path.name, full_digest(path, cache)] for path in paths]


def mark_of(stage: Stage, outside: Outside) -> str | None:
    """Fingerprint of settings, outside files and the inputs' `done.json`; None while an input is unfinished."""
    inputs = {}
    for need in stage.needs:
        done = done_of(stage.context.root, need)
        if done is None:
            return None
        inputs[need] = fingerprint({k: v for k, v in done.items() if k != "seconds"})
    return fingerprint([stage.name, stage.edition(), stage.settings(), outside, inputs])


def is_current(stage: Stage, done: Mapping[str, Any]) -> bool:
    """Whether the finished output is that of today's settings and inputs. Raises MissingFile for an input that is not
    reachable."""
    return mark_of(stage, outside_of(stage)) == done["fingerprint"]


def record_of(root: Path) -> dict[str, Any]:
    """`DIR/record.json`: `changes`, the --set of the last run; {} without a sound one."""
    try:
        record = read_json(root / "record.json")
        changes = record.get("changes", [])
    except (DriftlineError, OSError, AttributeError):
        return {}
    return record if isinstance(changes, list) and all(isinstance(change, str) for change in changes) else {}


def update_record(root: Path, **entries: Any) -> None:
    """Write `entries` into the record."""
    record = record_of(root)
    if {**record, **entries} != record:
        write_json(root / "record.json", {**record, **entries})
