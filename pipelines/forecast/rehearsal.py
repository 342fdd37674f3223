"""How a run would end with the answers that are there: its last stages, done in a folder for the moment."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.errors import DriftlineError, Waiting
from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.released_ids import FILE
from driftline.curate.release.composing.choice import choose
from driftline.curate.release.selection import without_images
from driftline.curate.store.answers import copy_answers
from driftline.curate.validation.answers.answers import KEY
from driftline.curate.validation.asking.batches import read_batch
from driftline.curate.validation.judging.panel import NOT_ASKED
from driftline.pipelines.annotation.batches import export_all
from driftline.pipelines.run.plan import Plan, make
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import done_of, folder_of
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages.ask import answers_of, results_files
from driftline.pipelines.stages.publish import Publish

VECTORS = 200_000  # that a plan searches: a second or two


@dataclass
class Ending:
    """How a run would end."""

    verdicts: dict[str, Any] | None = None
    """counts of the stage tally, as in `done.json`; None: it is done, or not reached"""
    release: dict[str, Any] | None = None
    """what would be published; None: nothing"""
    waits: str = ""
    """for which answers the run would wait"""
    problems: Sequence[str] = ()
    """why it would be refused"""
    is_certain: bool = False
    """whether the run would come to the end, or be refused, and not wait"""
    next_batch: dict[str, Any] = field(default_factory=dict)
    """`batch.json` of a later round, which the run would write and wait for"""


def rehearse(context: Context, plans: Sequence[Plan], is_model_here: bool) -> Ending:
    """What the planned stages would do: with the code of the stages, but no image is written and no judge is asked. The
    run folder does not change. Nothing is known before there are vectors, and answers of judges."""
    todo, ending = [p.stage for p in plans if p.action != "skip"], Ending()
    embedded = done_of(context.root, "embed")
    searches = is_model_here and embedded is not None and embedded["counts"]["kept"] <= VECTORS
    if not todo or todo[0] not in ("ask", "tally", "publish", *(["retrieve"] if searches else [])):
        return ending
    with _copied(context) as trial:
        try:
            _go_through(trial, todo, ending)
        except Waiting as error:
            ending.waits, ending.next_batch = _as_in_run(str(error), trial), _later_batch(trial)
        except DriftlineError as error:
            ending.problems, ending.is_certain = [_as_in_run(str(error), trial)], True
    return ending


def _go_through(trial: Context, todo: Sequence[str], ending: Ending) -> None:
    """Do the stages `todo`, as far as what they need is known."""
    folders = {name: folder_of(trial.root, name) for name in STAGES}
    for stage in make(trial):
        if stage.name not in todo:
            continue
        if isinstance(stage, Publish):
            ending.release = _release(stage, folders)
            continue
        inputs = {need: folders[need] for need in stage.needs}
        folders[stage.name] = folder_of(trial.own_folder, stage.name)
        counts = stage.run(inputs, folders[stage.name])
        stage.check_kept(counts)
        if NOT_ASKED in _faults(folders["ask"] / "opinions.parquet"):
            return
        if stage.name == "tally":
            ending.verdicts = counts.plain()
    ending.is_certain = True


def _later_batch(trial: Context) -> dict[str, Any]:
    """The batch that the rehearsal wrote last, if the run does not have it."""
    for path in sorted(trial.own_folder.glob("batches/*/batch.json"))[-1:]:
        facts, of_run = read_batch(path.parent), trial.root / path.relative_to(trial.own_folder)
        if not of_run.is_file() or read_batch(of_run.parent)["batch"] != facts["batch"]:
            return facts
    return {}


def _faults(opinions: Path) -> list[str | None]:
    """Why judges did not answer; of a run without judges nothing."""
    return pc.unique(pq.read_table(opinions)["fault"]).to_pylist() if opinions.is_file() else []


def _release(stage: Publish, inputs: Mapping[str, Path]) -> dict[str, Any]:
    """Numbers of images: accepted, published, dropped by reason, of each bucket and class; and what is absent."""
    collection = stage.collection(inputs)
    choice = choose(collection, stage.context.config.seed)
    for spec in collection.backbones.values():
        if Path(spec.weights or "").exists():  # others would be downloaded
            spec.load()
    cells = Counter((row["bucket"], row["class"]) for row in choice.rows)
    return {
        "accepted": len(choice.rows) + len(choice.dropped),
        "images": len(choice.rows),
        "dropped": dict(sorted(Counter(choice.dropped.values()).items())),
        "buckets": [
            {"name": str(bucket["name"]), "classes": {c: cells[bucket["index"], c] for c in choice.classes}}
            for bucket in collection.buckets
        ],
        "absent": without_images(choice.rows, collection.buckets, choice.classes),
    }


@contextmanager
def _copied(context: Context) -> Iterator[Context]:
    """The run with copies of what its last stages change outside their outputs."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        trial = replace(context, rehearsal=root, run_log=RunLog(None, quiet=True))
        files = {path: trial.answers_folder / path.name for path in results_files(context)}
        files |= {context.root / name: root / name for name in (KEY, FILE) if (context.root / name).is_file()}
        for pattern in ("*.json", "round_*/batch.json", "round_*/page.html"):
            files |= {path: root / path.relative_to(context.root) for path in context.root.glob(f"batches/{pattern}")}
        for path, copy in files.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        if context.config.validation.method == "crowd":
            export_all(trial)
            bucketed = folder_of(context.root, "bucket")
            source, target = (answers_of(one, bucketed, make=False).place for one in (context, trial))
            if (source.folder / "index.sqlite").is_file():
                copy_answers(source, target)
        yield trial


def _as_in_run(text: str, trial: Context) -> str:
    """A sentence with the paths of the run folder."""
    folder = trial.root / trial.config.validation.answers
    return text.replace(str(trial.answers_folder), str(folder)).replace(str(trial.own_folder), str(trial.root))
