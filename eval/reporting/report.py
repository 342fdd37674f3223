"""Rows → self-contained HTML pages, CSV and LaTeX. Every number comes from rows."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_text
from driftline.curate.core.executor import Executor, one_blas_thread
from driftline.curate.core.outputs import check_own
from driftline.curate.core.system import cores
from driftline.eval import predictions
from driftline.eval import rows as row_files
from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import Document, stored_protocol
from driftline.eval.reporting import ageing, compared, pages
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.exports import EXPORTED, FORMATS, write_exports
from driftline.eval.reporting.markup import SCRIPT, environment, script
from driftline.eval.reporting.overview import overview, versions_section
from driftline.eval.reporting.pages import charts_of, save_figures
from driftline.eval.reporting.protocols import page_of
from driftline.eval.rows import Run, groups
from driftline.eval.scoring import aggregate
from driftline.eval.scoring.aggregate import Comparisons
from driftline.eval.scoring.bands import Array
from driftline.eval.scoring.net import NO_CONTROL, Control, nets_of, read_control
from driftline.eval.scoring.ranking import parts
from driftline.eval.scoring.retraining import harder_data, retrain_every
from driftline.eval.scoring.sums import Resampling, clusters_of
from driftline.stream_builder.stream import Stream

TITLE = "driftline report"
MANY_RUNS = 2000  # with more, several processes make the documents
FEW_RUNS, REPLICATES, FEW = 500, 1000, 60  # with more runs, intervals come from fewer replicates
NAMED = 3  # files of predictions that cannot be used
MOST_BYTES = 64 * 2**20  # bytes of predictions that are read


def results_of(paths: Sequence[Path], streams: Sequence[Stream] = ()) -> list[dict[str, Any]]:
    """Row folders → one document of `eval --json` for each protocol and stream, with how its learners age. A learner
    that was skipped once and has rows now is not listed as skipped.

    streams: evaluated streams, for the names of classes and for samples that belong together. Raises MissingFile for
    neither rows nor reasons, UnknownName for rows of an unknown protocol.
    """
    whys = row_files.find_skipped(paths)
    folders = row_files.folders(paths, bool(whys))
    groups: dict[row_files.Key, list[Path]] = {}
    for folder in folders:
        groups.setdefault(row_files.key_of(row_files.record(folder)), []).append(folder)
    reasons = {
        (row_files.stream_digest(entry["stream"]), entry["protocol"], entry["stream"]["name"]): entry["skipped"]
        for entry in whys
    }
    streams_of = {stream.sha256: stream for stream in streams}
    size = sum(file.stat().st_size for folder in folders if (file := folder / predictions.FILE).is_file())
    # A protocol of a plugin may be known to this process only.
    ours = all(stored_protocol(key[1]).__module__.startswith("driftline.eval.") for key in groups)
    several = ours and len(folders) > MANY_RUNS
    executor = Executor(workers=cores() if several else 1)
    keys = sorted({*groups, *reasons})
    tasks = [
        (groups.get(key, []), key, _plain(streams_of.get(key[0]), several), len(folders) > FEW_RUNS, size)
        for key in keys
    ]
    documents_of = dict(executor.run_tasks(_document, tasks))
    documents = []
    for i, key in enumerate(keys):
        names, document = documents_of[i]
        skipped = [entry for entry in reasons.get(key, ()) if entry["learner"] not in names]
        documents.append(document | {"skipped": skipped})
    return documents


def _document(task: tuple[list[Path], row_files.Key, Stream | None, bool, int]) -> tuple[set[str], dict[str, Any]]:
    """Folders of runs, their key, the stream, whether replicates are few, and bytes of all predictions → the
    learners that have rows, and the document. Without Python's search for cycles, which goes through a million
    rows again and again and finds none."""
    (places, key, stream, few, size), collects = task, gc.isenabled()
    gc.disable()
    try:
        unread: list[str] = []
        if size > MOST_BYTES:
            runs = [row_files.load(folder) for folder in places]
            limit = f"more than the {MOST_BYTES / 2**20:.0f} that a report reads"
            unread = [f"The per-sample predictions have {size / 2**20:,.0f} MiB, {limit}."]
        elif places:
            runs, unread = predictions.find(places)
        else:
            runs = []
        if len(unread) > NAMED:
            unread = [*unread[:NAMED], f"So it is with {len(unread) - NAMED:,} more runs."]
        roots = {folder.parent.parent for folder in places}
        document = document_of(runs, key, stream, few, read_control(roots, key[1], key[0]))
        return {run.about["learner"] for run in runs}, document | ({"unread": unread} if unread else {})
    finally:
        if collects:
            gc.enable()


def _plain(stream: Stream | None, travels: bool) -> Stream | None:
    """Without samples if it travels to another process: a document needs classes, times and groups."""
    if stream is None or not travels:
        return stream
    steps = [
        replace(step, unlabelled=None, splits={
            name: replace(split, x=np.zeros((len(split), 0), np.float32)) for name, split in step.splits.items()
        })
        for step in stream.steps
    ]  # fmt: skip
    return replace(stream, steps=steps, unlabelled=None, oracle=None)


@one_blas_thread()
def document_of(
    runs: Sequence[Run], key: tuple[str, str, str], stream: Stream | None, few: bool, control: Control = NO_CONTROL
) -> dict[str, Any]:
    """The document of runs of one protocol and stream, with what the report says beyond scores. key: hash, protocol and
    name, as `rows.grouped` has it. few: fewer replicates."""
    sha, protocol, name = key
    clusters = clusters_of(runs, stream)
    document, comparisons = aggregate.compared(runs, name, sha, protocol, clusters)
    for result, net in zip(document["results"], nets_of(runs, control, clusters), strict=True):
        result |= {} if net is None else {"net": net}
    if (harder := harder_data(runs, control, clusters)) is not None:
        document["harder_data"] = harder
    if runs and (release := runs[0].about.get("release")) is not None:
        document["release"] = release
    if stream is not None:
        document["classes"] = list(stream.classes)
    return document | (_more(runs, document, comparisons, stream, few, clusters) if runs else {})


def _more(
    runs: Sequence[Run], document: Document, comparisons: Comparisons, stream: Stream | None, few: bool,
    clusters: Array | None,
) -> dict[str, Any]:  # fmt: skip
    """What the report says beyond scores: how learners age, and which of them differ."""
    draws = Resampling(FEW if few else REPLICATES, groups=clusters)
    aged = ageing.facts_of(runs, stream, draws)
    facts = {
        "ageing": aged,
        "compared": compared.facts_of(comparisons),
        "old": compared.old_of(runs, document, aged["results"], draws.groups) if aged else [],
        "retrain_every": [retrain_every(group, clusters) for group in groups(runs)] if aged else [],
        "uploaders": "" if clusters is not None else "not known" if stream is None else "none",
    }
    return {key: value for key, value in facts.items() if value}


def report(
    results: Document | str | Path | Sequence[Document | str | Path], out: str | Path, title: str = TITLE,
    streams: Sequence[Stream] = (), figures: Path | None = None, formats: Sequence[str] = FORMATS,
) -> Path:  # fmt: skip
    """Write the report of what `evaluate` returned, or of folders of rows, into `out`; returns the path of index.html.

    streams, formats: as for `write`. figures: a folder for the charts of all pages. Raises MissingFile for a folder
    without rows.
    """
    sources = [results] if isinstance(results, Mapping | str | Path) else results
    documents: list[Document] = []
    for source in sources:
        if isinstance(source, Mapping):  # results of `evaluate` have more to say, and know their stream
            documents.append(source.whole() if hasattr(source, "whole") else source)
            on = getattr(source, "on", None)
            streams = streams if on is None or on.sha256 in {s.sha256 for s in streams} else [*streams, on]
        else:
            documents += results_of([Path(source)], streams)
    page = write(documents, Path(out), title, streams=streams, formats=formats)
    if figures is not None:
        save_figures(list(charts_of(documents, streams)), figures)
    return page


@one_blas_thread()
def write(
    documents: Sequence[Document], out: Path, title: str = TITLE, notice: str = "", before: Sequence[Section] = (),
    after: Sequence[Section] = (), streams: Sequence[Stream] = (), opening: Section | None = None,
    formats: Sequence[str] = FORMATS,
) -> Path:  # fmt: skip
    """Write index.html with the overview, a page for each protocol and stream, and scores.csv, scores.tex,
    results.json into `out`; returns the path of index.html. It also shows the results of a single stream.

    before, after: more sections of index.html. streams: evaluated streams, for the names of their steps and the
    contents of their pages. opening: comes first, in place of the answer and chart of one result. formats: csv, latex.
    Raises BadConfig if `out` has files of these names that no report wrote.
    """
    check_own(out, ["index.html", *EXPORTED], SCRIPT)
    write_text(out / SCRIPT, script())
    streams_of = {stream.sha256: stream for stream in streams}
    plain = pages.linked(documents)
    single = len({d["stream"]["sha256"] for d in documents}) <= 1
    full: list[dict[str, Any]] = []
    for d in plain:
        over_groups = page_of(d).whole(d) if d["results"] else ()
        for k, part in enumerate(parts(d)):
            entry = shown(part, streams_of.get(part["stream"]["sha256"]))
            first = {"figures": [*over_groups, *entry["figures"]]} if k == 0 else {"skipped": []}
            full.append(entry | first | {"id": f"r{len(full) + 1}"})
    for d in full:
        d["home"] = f"{'index.html' if single else d['page']}#{d['id']}"
    lead = None if opening else max(full, key=_leading, default=None)
    across: dict[str, Section] = {}
    for name in dict.fromkeys(d["protocol"] for d in plain if d["results"]):
        of_protocol = [d for d in plain if d["protocol"] == name and d["results"]]
        if section := page_of(of_protocol[0]).across(of_protocol):
            across[name] = section
    whole = overview(plain)
    sections = [Section("overview", "All protocols and streams", whole)] if whole else []
    if text := versions_section(plain):
        sections.append(Section("versions", "Versions of one release", text))
    index = (
        environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            up="",
            notice=notice,
            documents=full if single else [],
            opening=opening,
            lead=lead,
            lead_of_many=len(full) if len(full) > 1 else 0,
            before=[*before, *([] if single else sections)],
            after=[*after, *(sections if single else []), *across.values()],
            pages=pages.contents(plain),
        )
    )
    for name, page in pages.pages(environment(), full, plain, title, streams_of, across, single).items():
        write_text(out / name, page)
    write_text(out / "index.html", index)
    write_exports(documents, out, formats)
    return out / "index.html"


def _leading(part: Mapping[str, Any]) -> tuple[bool, int]:
    """What decides which part is on the first screen."""
    return bool(part.get("ageing")) and page_of(part).ages, len(part["results"])


def answer_of(documents: Sequence[Document]) -> dict[str, Any]:
    """What the first screen of these documents' report says: `headline`, `sentences`, `may_conclude` and
    `may_not_conclude`, as plain text; {} without results."""
    every = [part for document in pages.linked(documents) for part in parts(document) if part["results"]]
    found = shown(max(every, key=_leading), None)["answer"] if every else None
    return found.texts() if found else {}
