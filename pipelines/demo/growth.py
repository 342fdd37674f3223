"""`driftline demo --grow`: a year of new photos reaches the finished demo, and old models meet them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.local import default_workers
from driftline.curate.core.run_log import RunLog
from driftline.curate.release import Release
from driftline.curate.release.versions.comparison import compare_releases
from driftline.eval.reporting.report import report
from driftline.eval.run import evaluate
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.config.loader import load
from driftline.pipelines.demo import world as worlds
from driftline.pipelines.demo.journey import FEATURES, Scale, demo, simulate_answers
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.stage import Context
from driftline.stream_builder.builders.release import from_release

LEARNERS = ["nearest-mean", "nap", "finetune", "cumulative"]
PROTOCOL = "clear-iid"
YEARS = 10  # of the world before: the new year has as many photos as one of them
PAID = ("rows", "images", "buckets", "requests", "embeddings", "answers")
SETS = ("release.previous=grown/before", "release.append=true", "release.version=1.1.0")


def demo_grown(
    out: Path, scale: Scale, run_log: RunLog, workers: int | None = None, learners: Sequence[str] = LEARNERS
) -> dict[str, Any]:
    """Add a bucket to the demo in `out`, which is made first if needed; finished steps are not repeated.

    Returns {"report", "seconds", "grown", "compare", "learners"}: what `grow` found new, which buckets of the release
    are the same as before, and for each learner {"learner", "then", "new", "after"}: trained on the old buckets, its
    accuracy on the last of them and on the new one; and on the new one when it was trained on that, too.
    """
    if not worlds.has_grown(out / "world"):
        demo(out, scale, run_log, workers)
    clock, folder = time.monotonic(), out / "grown"
    _keep(Release.open(out).path, folder / "before")
    world = worlds.build(out / "world", scale.records, 0, run_log)
    worlds.grow(world, scale.records // YEARS, run_log)
    executor = Executor(workers=workers or default_workers())
    context = Context(out, load(out / "driftline.yaml", SETS), run_log, executor, SETS)
    with worlds.serve(world):
        summary = grow(context)
    simulate_answers(out, world, open_batch(context).folder, "later.csv")
    answered = grow(context)
    summary |= {key: summary[key] + answered[key] for key in ("embeddings", "answers")}
    record = folder / "grown.json"
    if not record.is_file():  # a second call finds nothing new
        write_json(record, {key: summary[key] for key in PAID})
    release = Release.open(out)
    stream = from_release(release, FEATURES).save(folder / "stream")
    with run_log.progress(PROTOCOL, len(learners) * scale.seeds, "runs") as tick:
        rows = evaluate(stream, PROTOCOL, learners, list(range(scale.seeds)), out=folder / "runs", progress=tick)
    page = report([out / "runs", folder / "runs"], folder / "report", "driftline demo --grow: a year later")
    matrices = {result["learner"]: result["matrix"] for result in rows["results"]}
    return {
        "report": str(page),
        "seconds": round(time.monotonic() - clock, 1),
        "grown": read_json(record),
        "compare": compare_releases(Release.open(folder / "before"), release),
        "learners": [
            {"learner": name, "then": m[-2][-2], "new": m[-2][-1], "after": m[-1][-1]} for name, m in matrices.items()
        ],
    }


def _keep(release: Path, target: Path) -> None:
    """Copy the release that the run is about to replace, unless it was done."""
    if not target.is_dir():
        whole = target.with_name("before.next")
        shutil.rmtree(whole, ignore_errors=True)
        shutil.copytree(release, whole)
        whole.rename(target)


def text(summary: dict[str, Any]) -> str:
    """The same for a terminal."""
    grown, same = summary["grown"], summary["compare"]
    table = [f"{'learner':<14}  last old bucket  new bucket  trained on it"]
    table += [
        f"{r['learner']:<14}  {r['then']:>15.3f}  {r['new']:>10.3f}  {r['after']:>13.3f}" for r in summary["learners"]
    ]
    buckets = grown["buckets"]
    return "\n".join(
        [
            f"new: {grown['rows']['new']:,} rows, {grown['requests']:,} requests, {grown['embeddings']:,} vectors, "
            f"{grown['answers']:,} answers, bucket {', '.join(buckets['now'][len(buckets['before']) :])}",
            f"used again: everything else; buckets {same['comparable'][0]} … {same['comparable'][-1]} of release "
            f"{same['b']['version']} are those of {same['a']['version']}",
            "Accuracy of models that were trained on the old buckets, and then on the new one:",
            *table,
            f"report: {summary['report']}",
        ]
    )
