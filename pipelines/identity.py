"""The identity of a stage: a fingerprint of all that its output depends on; how output of 0.1.0 is recognised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from curate.core.atomic_io import fingerprint, read_json, write_json
from curate.core.digests import full_digest, quick_digest
from curate.core.errors import DriftlineError, MissingFile
from curate.core.settings import Section, Stages
from pipelines.config.loader import load
from pipelines.stage import Stage
from pipelines.stage_folder import done_of

Outside = list[list[str]]  # name, digest
RECORD: dict[str, Any] = {"changes": list, "adopted": dict}  # what record.json may have
S = TypeVar("S", bound=Section)


def outside_of(stage: Stage) -> Outside:
    """Name and digest of the files and folders outside the run that the output depends on. Raises MissingFile."""
    cache = stage.context.root / "digests.sqlite"
    return [[path.name, full_digest(path, cache)] for path in _existing(stage)]


def _existing(stage: Stage) -> list[Path]:
    paths = stage.outside()
    if missing := [path for path in paths if not path.exists()]:
        raise MissingFile(
            f"There is no {missing[0].absolute()}.",
            f"The stage {stage.name} reads it.",
            "Check the settings.",
        )
    return paths


def mark_of(stage: Stage, outside: Outside) -> str | None:
    """Fingerprint of settings, outside files and the inputs' `done.json`; None while an input is unfinished."""
    return _mark(stage, stage.settings(), outside)


def is_current(stage: Stage, done: Mapping[str, Any]) -> bool:
    """Whether the finished output is that of today's settings and inputs. Raises MissingFile for an input that is not
    reachable."""
    known = known_identity(stage, done)
    if known is None:
        return done["fingerprint"] in marks_of_0_1(stage)
    return mark_of(stage, outside_of(stage)) == known["fingerprint"]


def known_identity(stage: Stage, done: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Fingerprint and outside digests of finished output; None for output of 0.1.0 that no later run has met."""
    if "outside" in done:
        return done
    adopted: dict[str, Any] = record_of(stage.context.root).get("adopted", {}).get(stage.name, {})
    return adopted if adopted.get("of") == done["fingerprint"] else None


def adopt(stage: Stage, done: Mapping[str, Any]) -> None:
    """Record the identity of current output of 0.1.0, so that later changes are judged as those of new output."""
    if known_identity(stage, done) is None:
        outside = outside_of(stage)
        entry = {"of": done["fingerprint"], "fingerprint": mark_of(stage, outside), "outside": outside}
        record = record_of(stage.context.root)
        update_record(stage.context.root, adopted={**record.get("adopted", {}), stage.name: entry})


def marks_of_0_1(stage: Stage) -> Iterator[str | None]:
    """Fingerprints that 0.1.0 may have given this output: it held settings that do not change it (retries, time-outs),
    which may have been those of now, those of the run file, or the defaults."""
    outside = [[path.name, quick_digest(path)] for path in _existing(stage)]
    config = stage.context.config
    yield _mark(stage, stage.settings_of_0_1(), outside)
    for donor in (None, _file_of(stage.context.root)):
        twin = replace(stage, context=replace(stage.context, config=_freed(config, donor)))
        yield _mark(twin, twin.settings_of_0_1(), outside)


def _file_of(root: Path) -> Section | None:
    """The run file without --set; None if it needs them to be complete."""
    try:
        return load(root / "driftline.yaml")
    except (DriftlineError, OSError):
        return None


def _freed(section: S, donor: Section | None) -> S:
    """The settings with those that were part of fingerprints in 0.1.0 as in `donor` (None: the defaults)."""
    update: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        other = getattr(donor, name, None)
        if any(isinstance(mark, Stages) and mark.in_0_1 is not None for mark in field.metadata):
            update[name] = field.get_default(call_default_factory=True) if donor is None else other
        elif isinstance(value, Section):
            update[name] = _freed(value, other if isinstance(other, type(value)) else None)
    return section.model_copy(update=update)


def _mark(stage: Stage, settings: Any, outside: Outside) -> str | None:
    inputs = {}
    for need in stage.needs:
        done = done_of(stage.context.root, need)
        if done is None:
            return None
        inputs[need] = fingerprint({k: v for k, v in done.items() if k != "seconds"})
    return fingerprint([stage.name, stage.edition(), settings, outside, inputs])


def record_of(root: Path) -> dict[str, Any]:
    """`DIR/record.json`: `changes` (--set of the last run) and `adopted` (identities of output of 0.1.0)."""
    try:
        record = read_json(root / "record.json")
    except (DriftlineError, OSError):
        return {}
    if not isinstance(record, dict) or not all(
        isinstance(record.get(key, kind()), kind) for key, kind in RECORD.items()
    ):
        return {}
    changes, entries = record.get("changes", []), record.get("adopted", {}).values()
    sound = all(isinstance(change, str) for change in changes) and all(isinstance(entry, dict) for entry in entries)
    return record if sound else {}


def update_record(root: Path, **entries: Any) -> None:
    """Write `entries` into the record."""
    record = record_of(root)
    if {**record, **entries} != record:
        write_json(root / "record.json", {**record, **entries})
