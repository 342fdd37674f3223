"""Rows → self-contained HTML pages, CSV and LaTeX. Every number comes from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.core.atomic_io import csv_text, write_json, write_text
from curate.core.outside.escaping import latex, no_formula
from eval import rows as row_files
from eval.plotting.charts import Section
from eval.plotting.embed import SCRIPT, figure, script
from eval.protocol import Document, Score, kind_of, primary_of, scores_of
from eval.reporting import pages
from eval.reporting.overview import overview
from eval.results import COLUMNS, records
from eval.scoring.aggregate import summary
from eval.scoring.ranking import ranked
from stream_builder.stream import Stream

BLIND = ("majority", "random", "blind")  # learners that never look at a sample


def results_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Row folders → one document of `eval --json` for each protocol and stream. A learner that was skipped once and has
    rows now is not listed as skipped. Raises MissingFile for no rows, UnknownName for rows of an unknown protocol."""
    groups = row_files.grouped(row_files.find(paths))
    reasons = {
        (row_files.stream_digest(entry["stream"]), entry["protocol"], entry["stream"]["name"]): entry["skipped"]
        for entry in row_files.find_skipped(paths)
    }
    documents = []
    for key in sorted({*groups, *reasons}):
        sha, protocol, name = key
        finished = {run.about["learner"] for run in groups.get(key, ())}
        skipped = [entry for entry in reasons.get(key, ()) if entry["learner"] not in finished]
        documents.append({**summary(groups.get(key, ()), name, sha, protocol), "skipped": skipped})
    return documents


def report(
    results: Document | str | Path | Sequence[Document | str | Path],
    out: str | Path,
    title: str = "driftline report",
    streams: Sequence[Stream] = (),
) -> Path:
    """Write the report of what `evaluate` returned, or of folders of rows, into `out`; returns the path of index.html.

    streams: as for `write`. Raises MissingFile for a folder without rows.
    """
    given = [results] if isinstance(results, Mapping | str | Path) else results
    documents = [d for one in given for d in ([one] if isinstance(one, Mapping) else results_of([Path(one)]))]
    return write(documents, Path(out), title, streams=streams)


def write(
    documents: Sequence[Document],
    out: Path,
    title: str = "driftline report",
    notice: str = "",
    before: Sequence[Section] = (),
    after: Sequence[Section] = (),
    streams: Sequence[Stream] = (),
) -> Path:
    """Write index.html with the overview, a page for each protocol, learner and stream, and scores.csv, scores.tex,
    results.json into `out`; returns the path of index.html. It also shows the results of a single stream.

    before, after: more sections of index.html. streams: evaluated streams, for the names of their steps and the
    contents of their pages.
    """
    known = {stream.sha256: stream for stream in streams}
    plain = pages.linked(documents)
    full = [_shown(d, known.get(d["stream"]["sha256"])) for d in plain]
    single = len({d["stream"]["sha256"] for d in documents}) <= 1
    across = _across(plain)
    whole = overview(plain)
    sections = [Section("overview", "All protocols and streams", whole)] if whole else []
    environment = _environment()
    index = environment.get_template("report.html.j2").render(
        title=title,
        up="",
        notice=notice,
        documents=full if single else [],
        before=[*before, *([] if single else sections)],
        after=[*after, *(sections if single else []), *across.values()],
        pages=pages.contents(plain),
    )
    for name, page in pages.pages(environment, full, plain, title, known, across).items():
        write_text(out / name, page)
    write_text(out / "index.html", index)
    write_text(out / SCRIPT, script())
    write_text(out / "scores.csv", scores_csv(documents))
    write_text(out / "scores.tex", scores_tex(documents))
    write_json(out / "results.json", list(documents))
    return out / "index.html"


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("eval.reporting")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"pct": Score("", "").text, "colour": colour, "ink": ink, "figure": lambda one: Markup(figure(one))}
    made.globals["script"] = SCRIPT
    return made


def _across(documents: Sequence[Document]) -> dict[str, Section]:
    """Protocol → its table over all streams, if it has one."""
    sections = {}
    for name in dict.fromkeys(d["protocol"] for d in documents if d["results"]):
        of_protocol = [d for d in documents if d["protocol"] == name and d["results"]]
        if section := kind_of(of_protocol[0]).across(of_protocol):
            sections[name] = section
    return sections


def _shown(document: Document, stream: Stream | None) -> dict[str, Any]:
    """What a page shows beyond the document: the order and the best, columns, texts, figures, the matrix's axes and
    range."""
    results, kind = document["results"], kind_of(document)
    seeing = [r for r in results if r["learner"] not in BLIND] or results  # chance level would flatten the colours
    cells = [cell for r in seeing for row in r["matrix"] or [] for cell in row if cell is not None]
    steps = len(results[0]["matrix"]) if results and results[0]["matrix"] else 0
    measures = dict.fromkeys(name for r in results for name in r.get("measures", ()))
    return {
        **document,
        "results": [{**p.result, "learner": p.name, "group": p.group, "is_best": p.best} for p in ranked(document)],
        "columns": scores_of(document),
        "primary": primary_of(document) if results else None,
        "seeds": _seeds(results),
        "varies": kind.varies(document) if any(len(r["seeds"]) > 1 for r in results) else "",
        "measures": [kind.score_of(name) for name in measures],
        "texts": kind,
        "figures": kind.figures(document) if results else [],
        "note": kind.note(document) if results else "",
        "names": [step.name for step in stream.steps] if stream is not None else list(map(str, range(steps))),
        "span": (min(cells), max(cells)) if cells else (0.0, 1.0),
    }


def _seeds(results: Sequence[Mapping[str, Any]]) -> str:
    """Over how many seeds the results are.

    >>> _seeds([{"seeds": [0]}]), _seeds([{"seeds": [0]}, {"seeds": [0, 1, 2]}])
    ('of one seed', 'mean ± standard deviation over 1 to 3 seeds')
    """
    low, *_, high = sorted([len(result["seeds"]) for result in results] * 2) or [0, 0]
    if high == 1:
        return "of one seed"
    return f"mean ± standard deviation over {high if low == high else f'{low} to {high}'} seeds"


def colour(value: float, span: tuple[float, float]) -> str:
    """A cell's background: light for the lowest value of the page's matrices, dark blue for the highest.

    >>> colour(0.0, (0.0, 1.0)), colour(1.0, (0.0, 1.0))
    ('#f1f5f2', '#0b4f6c')
    """
    low, high = span
    t = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 1.0
    ends = ((241, 245, 242), (11, 79, 108))
    return "#" + "".join(f"{round(a + (b - a) * t):02x}" for a, b in zip(*ends, strict=True))


def ink(value: float, span: tuple[float, float]) -> str:
    """A cell's text colour: black or white, for the higher contrast with `colour` (above 4.5)."""
    hexed = colour(value, span)
    parts = [int(hexed[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # WCAG 2
    return "#ffffff" if luminance < 0.179 else "#000000"


def scores_csv(documents: Sequence[Document]) -> str:
    """One line for each learner, protocol, score and seed; the seed of a published mean is `published`."""
    rows = [[no_formula(cell) for cell in record] for document in documents for record in records(document)]
    return csv_text(COLUMNS, rows)


def scores_tex(documents: Sequence[Document]) -> str:
    """One LaTeX table (booktabs) for each protocol and stream: mean ± standard deviation over seeds. The best learner
    is first, its primary score bold."""
    tables = []
    for d in documents:
        if not d["results"]:
            continue
        scores, primary = scores_of(d), primary_of(d)
        labels = [latex(score.label) for score in scores]
        columns, head = "r" * len(scores), " & ".join(["learner", *labels])
        lines = [f"% {latex(d['protocol'])} on {latex(d['stream']['name'])}", rf"\begin{{tabular}}{{l{columns}}}"]
        lines += [r"\toprule", rf"{head} \\", r"\midrule"]
        for shown, result, _, is_best in ranked(d):
            texts = [(score, score.spread(result).replace("±", r"\pm")) for score in scores]
            cells = [rf"$\mathbf{{{t}}}$" if is_best and score == primary else f"${t}$" for score, t in texts]
            lines.append(" & ".join([latex(shown), *cells]) + r" \\")
            if printed := result.get("published"):
                pairs = [printed.get(score.name) for score in scores]
                theirs = [rf"${100 * p['mean']:.1f} \pm {100 * p['sd']:.1f}$" if p else "--" for p in pairs]
                lines.append(" & ".join([r"\quad published", *theirs]) + r" \\")
        tables.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(tables) + "\n"
