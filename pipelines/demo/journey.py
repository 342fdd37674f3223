"""`driftline demo`: all steps of a real build, with rendered photos and simulated workers."""

import csv
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from driftline.curate.core.atomic_io import write_json, write_text
from driftline.curate.core.executor import Executor, default_workers
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.metadata.clocks import without_spike
from driftline.curate.release import Release
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.asking.batches import NONE, read_batch
from driftline.eval.control import controlled
from driftline.eval.plotting.charts import Section
from driftline.eval.reporting.markup import Cell, table
from driftline.eval.reporting.report import results_of
from driftline.eval.reporting.text import named_steps
from driftline.eval.run import evaluate
from driftline.pipelines.config import presets
from driftline.pipelines.config.loader import load
from driftline.pipelines.demo.draw import CHANGES, CONCEPTS, HALFWAY
from driftline.pipelines.demo.world import END, RESET_DAY, START, World, build, serve
from driftline.pipelines.reporting import audit_page
from driftline.pipelines.reporting.audit import audit
from driftline.pipelines.reporting.run_report import journey_report
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.embed import OF_2004, spec_of
from driftline.pipelines.stages.state import folder_of
from driftline.pipelines.web.rendering import template
from driftline.stream_builder.builders.release import MADE_BY_EMBED, from_release
from driftline.stream_builder.stream import Stream

CLOSED = ["nearest-mean", "slda", "ridge", "ranpac", "fecam"]
LEARNERS = ["majority", *CLOSED, "nap", "scratch", "finetune", "cumulative", "er", "der++"]
PROTOCOLS = ["clear-iid", "clear-streaming"]
FEATURES = "photos-of-2004"
WORKER_ERROR, WORKERS = 0.05, 3  # of an answer; who answer for each image
NOTICE = (
    "Demonstration: the photos are rendered by a program, and the annotators are simulated "
    f"(each answer is wrong with probability {WORKER_ERROR:.0%}). "
    "The pipeline, the download, the model and the evaluation are the real ones."
)


class Parts(dict[str, float]):
    """Name of a part of a demo → seconds, in the order in which they were done."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = time.monotonic()

    def done(self, part: str) -> None:
        """A part ends now."""
        self[part] = round(time.monotonic() - self.begun - sum(self.values()), 1)

    def __str__(self) -> str:
        return "seconds: " + ", ".join(f"{name} {spent:.0f}" for name, spent in self.items())


@dataclass(frozen=True)
class Scale:
    """Size of the demo."""

    records: int = 8000
    """metadata lines"""
    asked: int = 30
    """candidates per class and bucket"""
    published: int = 20
    """images per class and bucket in the release"""
    seeds: int = 5
    """runs of each learner"""
    draws: int = 20
    """of the control of closed forms, in which nothing can age"""
    plain: bool = False
    """whether all files are upright JPEGs and no clock was reset: the baseline photo-world"""
    test_share: float = 0.3
    """of the release"""
    uploaders: int = 0
    """who upload about as much each; 0: a few of 400 upload most, as on Flickr"""


# Of few photos one large uploader would decide every split; the control needs 20 test visits of each class.
QUICK = Scale(1600, 14, 8, 2, 5, test_share=0.45, uploaders=200)


def evaluated(
    context: Context, features: str, learners: Sequence[str], seeds: int, controls: Mapping[str, Mapping[str, Any]]
) -> tuple[Release, Stream]:
    """The release of a run, and its features as the stream `stream`, with the runs of the learners on it in `runs`.

    controls: protocol → which learners have a control, and its draws.
    """
    out, run_log = context.root, context.run_log
    more: dict[str, Any] = {"executor": context.executor, "stream_folder": out / "stream"}
    release = Release.open(out)
    stream = from_release(release, features).save(out / "stream")
    for protocol in PROTOCOLS:
        with run_log.progress(protocol, len(learners) * seeds, "runs") as tick:
            results = evaluate(stream, protocol, learners, list(range(seeds)), out=out / "runs", progress=tick)
        if protocol in controls:
            controlled(results, out=out / "runs", log=run_log, **controls[protocol], **more)
    return release, stream


def demo(out: Path, scale: Scale, run_log: RunLog, workers: int | None = None) -> dict[str, Any]:
    """Run all steps in `out`; returns {"report", "seconds", "parts", "stages"}. Finished steps are not repeated.

    workers: processes; None: one per core. parts: name of a part → seconds.
    """
    parts = Parts()
    run_log.say(NOTICE)
    world = build(out / "world", scale.records, seed=0, run_log=run_log, plain=scale.plain, uploaders=scale.uploaders)
    parts.done("rendered photos")
    config_path = out / "driftline.yaml"
    if not config_path.is_file():
        write_text(config_path, configuration(world, scale))
    config = load(config_path)
    context = Context(out, config, run_log, Executor(workers=workers or default_workers()))
    with serve(world):
        run(context, until="ask")
    simulate_answers(out, world)
    entries = run(context)
    parts.done("build")
    control = {"learners": CLOSED, "control": scale.draws}
    release, stream = evaluated(context, FEATURES, LEARNERS, scale.seeds, {PROTOCOLS[0]: control})
    texts = row_0(context, release, scale.seeds)
    parts.done("evaluate")
    truth = {
        id_: "two concepts" if len(things) > 1 else things[0] if things[0] in CONCEPTS else BACKGROUND
        for id_, things in world.truth().items()
    }
    findings = audit(out)
    write_json(out / "audit" / "audit.json", findings)
    write_text(out / "audit" / "audit.html", audit_page.page(findings, audit_page.pictures(out, findings)))
    audited = Section("audit", "Audit of the release", shown("audit", audit_page.lines(findings)))
    extra = [texts, audited, Section("about", "About this demonstration", about(sum(parts.values())))]
    title = "driftline demo: how ten everyday things aged"
    return reported(context, release, stream, parts, extra, title, truth, stages=entries)


def reported(
    context: Context, release: Release, stream: Stream, parts: Parts, extra: Sequence[Section], title: str,
    truth: Mapping[str, str] | None = None, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """Write the report, and how long each part took; returns what a demo does. more: of it."""
    out = context.root
    documents = results_of([out / "runs"], [stream])
    page = journey_report(context, release, stream, documents, out / "report", truth, extra, title)
    parts.done("report")
    context.run_log.say(str(parts))
    document = {"seconds": round(sum(parts.values()), 1), "parts": parts, **more}
    write_json(out / "demo.json", document)
    return {"report": str(page), **document}


def row_0(context: Context, release: Release, seeds: int) -> Section:
    """A learner that compares photos with the prompts, in the vectors of the CLIP: accuracy in each bucket.

    The stream is stored in `described`, the rows in `row-0` of the run's folder.
    """
    stream = from_release(release, MADE_BY_EMBED, texts=spec_of(context).load).save(context.root / "described")
    results = evaluate(stream, PROTOCOLS[0], "zero-shot", list(range(seeds)), out=context.root / "row-0")
    rows = [
        [one["learner"], *(f"{100 * accuracies[t]:.1f}" for t, accuracies in enumerate(one["matrix"]))]
        for one in results["results"]
    ]
    grid = table(["", *named_steps(stream)], rows, "plain")
    return Section("texts", "The prompts alone", shown("prompts_alone", grid))


def configuration(world: World, scale: Scale) -> str:
    """The preset `mini` with the metadata of the world."""
    values = presets.values("mini")
    values["collection"]["path"] = str(world.metadata.relative_to(world.folder.parent))
    values["filter"] = {"where": without_spike(RESET_DAY, "taken")}
    values["release"] |= {"name": "photo-world", "notice": NOTICE, "judgement": str(Path("world") / "judgement.md")}
    values["validation"]["image_base_url"] = f"http://127.0.0.1:{world.port}/images"
    values["retrieve"] |= {"per_class": scale.asked, "depth": 6 * scale.asked}
    features = {"name": FEATURES, "model": "test_resnet", "weights": OF_2004}
    values["release"] |= {"per_class": scale.published, "test_share": scale.test_share, "features": [features]}
    judgement = files("driftline.pipelines").joinpath("demo/judgement.md")
    write_text(world.folder / "judgement.md", judgement.read_text(encoding="utf-8"))
    return presets.full_text(values, "The demo: preset mini with rendered photos")


def simulate_answers(out: Path, world: World) -> None:
    """Write the answers of simulated workers to the batch of the stage ask into `out`/answers, unless they exist."""
    results = out / "answers" / "results.csv"
    if results.is_file():
        return
    folder = folder_of(out, "ask")
    facts = read_batch(folder)
    rows = list(csv.DictReader(io.StringIO((folder / "batch.csv").read_text(encoding="utf-8"))))
    shown = world.truth()
    truth = {item: {t for t in shown[id_] if t in CONCEPTS} for item, id_ in facts["items"].items()}
    write_text(results, answer(rows, truth))


def shown(macro: str, *values: object) -> Markup:
    """What a macro of about.html.j2 says."""
    return Markup(getattr(template("driftline.pipelines.demo", "about.html.j2").module, macro)(*values))


def about(seconds: float) -> Markup:
    """What is not real, which features are evaluated, and what the world draws differently each year.

    seconds: time of all steps.
    """
    rows = []
    for name, draw in CONCEPTS.items():
        year = (START + (HALFWAY - CHANGES[name]) * (END - START)).year
        old, _, new = (draw.__doc__ or "").rstrip(".").partition(" → ")
        rows.append([name, Cell(old.lower(), kind="left"), Cell(new, kind="left"), year])
    heads = ["class", Cell("old form", kind="left"), Cell("new form", kind="left"), "around"]
    return shown("about", NOTICE, table(heads, rows, "plain"), f"{seconds:.0f}")


HEADER = (
    "HITId", "HITTypeId", "Title", "Reward", "MaxAssignments", "AssignmentId", "WorkerId", "AssignmentStatus",
    "AcceptTime", "SubmitTime", "WorkTimeInSeconds", "Input.batch", "Input.item", "Input.image_url", "Answer.labels",
    "Answer.sensitive", "Approve", "Reject",
)  # fmt: skip


def answer(rows: Sequence[Mapping[str, str]], truth: Mapping[str, set[str]]) -> str:
    """A results CSV. rows: lines of batch.csv. truth: item → concepts that it shows; a wrong answer misses the concept,
    adds one, or confuses it with another."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(HEADER)
    names = list(CONCEPTS)
    for row in rows:
        item = row["item"]
        rng = rng_for(0, "workers", item)
        for place, worker in enumerate(rng.choice(25, WORKERS, replace=False).tolist()):
            ticked = set(truth[item])
            if rng.random() < WORKER_ERROR:
                wrong = names[int(rng.integers(len(names)))]
                ticked = [{wrong}, set(), ticked | {wrong}][int(rng.integers(3))]
            facts = [f"HIT{item}", "SIMULATED", "Which of these are in the image?", "$0.02", WORKERS]
            facts += [f"A{item}{place}", f"SIMULATED{worker:03d}", "Submitted"]
            facts += ["Thu Oct 09 07:30:20 PDT 2025", "Thu Oct 09 07:30:29 PDT 2025", int(rng.integers(4, 15))]
            facts += [row["batch"], item, row["image_url"], "|".join(sorted(ticked)) or NONE, "no", "", ""]
            writer.writerow(facts)
    return buffer.getvalue()
