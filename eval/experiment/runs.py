"""One run after the other: found on disk, or begun, run by the protocol, and recorded with the code that decides it.

A digest changes when a file changes that can change a result: the module of a class and the modules beside it that it
imports, the version of an installed package, the values that a function encloses. What cannot be read as text or data,
as a class of a notebook's cell, has none (`Untold`): its rows are not used again.
"""

import dataclasses
import glob
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from driftline.curate.core import files as digests
from driftline.curate.core.atomic_io import fingerprint, locked
from driftline.curate.core.executor import one_blas_thread
from driftline.curate.core.files import files_of
from driftline.curate.core.own_code import HOME, PLAIN, Untold, code_of, sha256_of, value_of
from driftline.eval import predictions, timeline
from driftline.eval import rows as row_files
from driftline.eval.checkpoint import Checkpoint
from driftline.eval.engine import fused
from driftline.eval.experiment.jobs import Job, Setup
from driftline.eval.experiment.tune import choose, started
from driftline.eval.history import label_time_note
from driftline.eval.learner import Learner
from driftline.eval.protocol import Protocol, Ran, Start, skip_reason, standing_of
from driftline.eval.rows import Run, folder_name
from driftline.stream_builder.stream import Stream

OURS = ("curate", "stream_builder", "eval")  # packages of driftline whose code decides a row


def code_of_run(learner: object, protocol: object) -> dict[str, str]:
    """What decides the rows of a learner under a protocol: `driftline`, `learner`, `protocol` → a digest or a version;
    {"untold": name} for code that has no digest."""
    try:
        return {HOME: ours(), "learner": _object(learner), "protocol": _object(protocol)}
    except Untold as error:
        return {"untold": str(error)}


def ours() -> str:
    """Of driftline's own code that decides rows."""
    return digests.code_of(OURS)


def _object(thing: Any) -> str:
    """Of an instance: its class, the settings that are no text or number, and the files that its settings name."""
    own = {f.name: getattr(thing, f.name) for f in fields(thing) if f.init} if is_dataclass(thing) else {}
    values = {name: value_of(value) for name, value in own.items() if not isinstance(value, PLAIN)}
    for name, what in getattr(thing, "reaches", {}).items():
        if what in ("a file", "a model") and isinstance(own.get(name), str) and own[name] and Path(own[name]).exists():
            path = Path(own[name])
            files = sorted(files_of(path)) if path.is_dir() else [path]
            values[name] = [(file.name, sha256_of(file)) for file in files]
    kind = code_of(type(thing))
    return kind if not values else fingerprint([kind, values])[:16]


def about_stream(stream: Stream, seed: int | None) -> dict[str, str]:
    """What a record says about its stream. A draw that is evaluated with its own seed is one of a family."""
    about = {"name": stream.name, "sha256": stream.sha256}
    family = stream.facts.get("family")
    return about | ({"family": str(family)} if family and stream.facts.get("seed") == seed else {})


Task = tuple[Path, Setup, list[Job]]  # runs for another process, and the folder of their stream


def shares(protocol: Protocol, jobs: Sequence[Job], workers: int) -> list[list[Job]]:
    """Jobs of one call of `run_many`: as many as it takes at once, spread evenly. A learner that was given as an
    instance runs one seed after the other, so that it never shares a pass with itself."""
    share = max(1, min(protocol.learners_per_pass, -(-len(jobs) // workers)))
    parts: list[list[Job]] = []
    for job in jobs:
        alone = any(other.spec and other.spec.instance for other in (job, *(parts[-1][:1] if parts else ())))
        if alone or not parts or len(parts[-1]) == share:
            parts.append([])
        parts[-1].append(job)
    return parts


def shared_runs(task: Task) -> tuple[dict[str, str], int]:
    """Runs in a process of their own; row folders are written whole or not at all. Returns who failed, and why, and
    how many runs were not found on disk."""
    stream_folder, grid, jobs = task
    failed: dict[str, str] = {}
    done = 0
    for job, run, found in runs_of(predictions.numbered(Stream.load(stream_folder)), grid, jobs):
        if not isinstance(run, Run):
            failed.setdefault(job.name, str(run))
        done += not found
    return failed, done


def runs_of(stream: Stream, grid: Setup, jobs: Sequence[Job]) -> Iterator[tuple[Job, Run | Exception, bool]]:
    """Each job's run, or why there is none, and whether it was found on disk. The protocol does the others. stream:
    numbered."""
    begun: list[tuple[Job, _Begun]] = []
    stored = predictions.Shared()
    for job in jobs:
        try:
            run = _begin(stream, grid, job)
        except Exception as error:
            yield job, skip_reason(error), False
            continue
        if isinstance(run, tuple):
            loaded, _ = predictions.load(run[0], stored)  # a damaged one is no failure of its learner
            other = loaded.about.get("code_of") != run[1]  # as it may be if any code will do
            yield job, dataclasses.replace(loaded, about=loaded.about | {"other_code": True}) if other else loaded, True
        else:
            begun.append((job, run))
    with one_blas_thread():
        for i, ran in grid.protocol.run_many(stream, [run.start for _, run in begun]):
            job, begun_run = begun[i]
            try:
                finished = ran if isinstance(ran, Exception) else _finish(stream, grid, job, begun_run, ran)
            except Exception as error:
                finished = skip_reason(error)
            yield job, finished, False


def place_of(stream: Stream, grid: Setup, job: Job, learner: Learner) -> tuple[dict[str, Any], Path | None]:
    """A run's identity, and the folder of its rows, whose name ends with a digest of the identity; if any code will do,
    that of a finished run that differs in nothing else."""
    identity = {
        "protocol": grid.name,
        "protocol_settings": dataclasses.asdict(grid.protocol),
        "learner": job.name,
        "settings": job.recorded(learner) | ({"tune": dict(job.tune)} if job.tune else {}),
        "seed": job.seed,
        "stream": about_stream(stream, job.seed),
        "steps": len(stream.steps),
    }
    same, identity = identity, identity | {"code_of": code_of_run(learner, grid.protocol)}
    if grid.out is None:
        return identity, None
    folder, name = grid.out / folder_name(grid.name), row_files.stored_name(identity)
    if grid.any_code:
        wanted = json.loads(json.dumps(same))
        for other in sorted(folder.glob(f"{glob.escape(name.rpartition('-')[0])}-*")):
            record = row_files.record(other) if is_finished(other, grid) else {}
            if all(record.get(key) == value for key, value in wanted.items()):
                return identity, other
    return identity, folder / name


@dataclasses.dataclass(frozen=True)
class _Begun:
    """A run that has begun."""

    start: Start
    identity: dict[str, Any]
    folder: Path | None
    chosen: dict[str, Any]
    """of its record: settings that were chosen, and how"""
    clock: float
    """process time when it began"""


def _begin(stream: Stream, grid: Setup, job: Job) -> tuple[Path, dict[str, str]] | _Begun:
    """The folder of a run that is finished on disk, and the code that is here now; or a learner that is ready to
    begin."""
    learner, protocol = job.learner(), grid.protocol
    identity, folder = place_of(stream, grid, job, learner)
    if folder is not None and is_finished(folder, grid):
        return folder, identity["code_of"]
    clock = time.process_time()
    chosen = {}
    if job.tune:
        settings, how = choose(protocol, stream, grid.name, job.learner, job.tune, job.seed)
        learner, chosen = job.learner(**settings), {"chosen": settings, "selection": how}
    start = started(protocol, stream, grid.name, learner, job.seed, grid.out and grid.out / "fits")
    save = None if folder is None else Checkpoint(folder / "state.pt")
    return _Begun(dataclasses.replace(start, save=save), identity, folder, chosen, clock)


def is_finished(folder: Path, grid: Setup) -> bool:
    """Whether a run is stored that can be used again: its code must be one that can be told, unless any will do."""
    if not (folder / "run.json").is_file():
        return False
    return grid.any_code or "untold" not in row_files.record(folder).get("code_of", {})


def _finish(stream: Stream, grid: Setup, job: Job, run: _Begun, ran: Ran) -> Run:
    """The run's record, stored if there is a folder."""
    learner, protocol = ran.learner, grid.protocol
    alone = protocol.learners_per_pass == 1  # else the clock ran for other learners, too
    seconds = max([time.process_time() - run.clock if alone else 0.0, *(row.seconds for row in ran.rows)])
    predictions.check_classes(ran.rows, type(learner).__name__, stream)
    records = predictions.table(ran.rows, predictions.groups_of(stream))
    changes = row_files.last_changes(ran.rows, protocol.roles.step)
    if learner.needs.future:  # it learned all steps before the first test
        changes = dict.fromkeys(changes, len(stream.steps) - 1)
    rows = [
        row_files.changed(row, {"last_change": changes[row.learned_to]}) if row.learned_to in changes else row
        for row in ran.rows
    ]
    about = run.identity | {"stored_bytes": learner.stored_bytes(), "gradient_steps": learner.gradient_steps}
    about |= {"seconds": round(seconds, 3), "kernel": fused.kind(), "code": digests.code_of()}
    about["tests"] = row_files.tested(rows)
    notes = {
        "published": stream.facts.get("published"),
        "learner_facts": learner.metadata(),
        "timeline": timeline.record(stream),
        "release": timeline.release_record(stream),
        "label_time": label_time_note(grid.name, protocol.late_labels, stream),
        "settings_from": job.origin,
        "rules": "own" if grid.rules and not learner.obeys else "",
    }
    about["standing"] = standing_of(type(learner), type(protocol))
    about |= {k: v for k, v in notes.items() if v} | protocol.facts(stream, learner, run.start.seed) | run.chosen
    folder = run.folder
    if code_of_run(learner, protocol) != run.identity["code_of"]:
        about["edited_while_running"] = True
        folder = folder and folder.with_name(f"{folder.name}-edited")
    if folder is not None:
        with locked(folder):  # several processes end the run that they shared
            if is_finished(folder, grid) and "edited_while_running" not in about:
                return predictions.load(folder)[0]
            (folder / "run.json").unlink(missing_ok=True)  # of code that could not be told
            predictions.write(folder / predictions.FILE, records)
            row_files.save(folder, about, rows)
    return Run(about, list(rows))
