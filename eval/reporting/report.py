"""Rows → a site of self-contained HTML pages, CSV and LaTeX. Nothing is computed that does not come from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.core.atomic_io import csv_text, write_json, write_text
from curate.core.registry import Registry
from eval import rows as row_files
from eval.plotting.charts import Section
from eval.reporting import pages as site
from eval.reporting.overview import overview
from eval.scoring.aggregate import labels, summary
from stream_builder.stream import Stream

LABELS = {
    "in_domain": "in-domain",
    "next_domain": "next-domain",
    "accuracy": "accuracy",
    "backward": "backward transfer",
    "forward": "forward transfer",
    "gem_backward": "GEM backward",
    "gem_forward": "GEM forward",
    "remembering": "remembering",
    "positive_backward": "positive backward",
    "forgetting": "forgetting",
    "incremental_accuracy": "incremental accuracy",
    "near_future": "near-future",
    "prediction_us": "µs a prediction",
    "correction_us": "µs a correction",
    "recall": "recall of the search",
    **{f"corrections_to_{n}": f"corrections to {n} %" for n in (10, 30, 50, 70, 90)},
    "start_novel": "novel at the start",
    "start_original": "original at the start",
    "on_the_stream": "right on the stream",
}


FAMILIES = {
    "near-future": "near_future",
    "ocrr": "ocrr",
    "seq-to-final": "seq_to_final",
}  # that have figures of their own
FIGURES = Registry("page", {name: f"eval.protocols.{room}.figures:figures" for name, room in FAMILIES.items()})
NOTES = Registry("note", {name: f"eval.protocols.{room}.figures:note" for name, room in FAMILIES.items()})
ACROSS = Registry(  # over several streams and settings
    "table",
    {
        "ocrr": "eval.protocols.ocrr.figures:across",
        "clear-iid": "eval.protocols.clear.figures:across",
        "clear-streaming": "eval.protocols.clear.figures:across",
    },
)
SHOWN = "Per cent, over seeds. The best of each column is bold."
ACROSS_TEXTS = {
    "ocrr": ("Policies and data", "Final novel accuracy; below it, on what was known. Per cent, over seeds."),
    "clear-iid": ("Network × features × method, iid protocol", f"In-domain accuracy; below it, next-domain. {SHOWN}"),
    "clear-streaming": (
        "Network × features × method, streaming protocol",
        f"Next-domain accuracy; below it, forward transfer. {SHOWN}",
    ),
}
TEXTS = {
    "clear": {
        "measures": "The same matrix by other papers' measures, and how sure the differences are",
        "measures_note": "GEM: Lopez-Paz & Ranzato 2017; remembering, positive backward: Díaz-Rodríguez et al. 2018; "
        "forgetting: Chaudhry et al. 2018; incremental accuracy: Rebuffi et al. 2017.",
        "matrix": "Accuracy matrices",
        "matrix_note": "Row: trained up to this step. Column: tested on this step. Framed: same step (in-domain). "
        "Right of the frame lies the future.",
    },
    "near-future": {
        "measures": "Accuracy at further shifts, and how sure the differences are",
        "measures_note": "",
        "matrix": "Retention by period",
        "matrix_note": "Row: after this period. Column: tested on this period's held-out samples.",
    },
    "seq-to-final": {
        "measures": "Accuracy on other steps, and how sure the differences are",
        "measures_note": "",
        "matrix": "",
        "matrix_note": "",
    },
    "ocrr": {
        "measures": "Where it began, and how sure the differences are",
        "measures_note": "",
        "matrix": "",
        "matrix_note": "",
    },
}

BLIND = ("majority", "random", "blind")  # learners that never look at an image


def results_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Row folders → one document of `eval --json` per protocol and stream; streams are never mixed. A learner that was
    skipped once and has rows now is not listed any more."""
    groups: dict[tuple[str, str, str], list[row_files.Run]] = {}
    for run in row_files.find(paths):
        stream = run.about["stream"]
        groups.setdefault((stream["sha256"], run.about["protocol"], stream["name"]), []).append(run)
    why = {
        (one["stream"]["sha256"], one["protocol"], one["stream"]["name"]): one["skipped"]
        for one in row_files.find_skipped(paths)
    }
    found = []
    for key in sorted({*groups, *why}):
        sha, protocol, name = key
        there = {run.about["learner"] for run in groups.get(key, ())}
        skipped = [one for one in why.get(key, ()) if one["learner"] not in there]
        found.append({**summary(groups.get(key, ()), name, sha, protocol), "skipped": skipped})
    return found


def write(
    documents: Sequence[Mapping[str, Any]],
    out: Path,
    title: str = "driftline report",
    notice: str = "",
    before: Sequence[Section] = (),
    after: Sequence[Section] = (),
    streams: Sequence[Stream] = (),
) -> Path:
    """Write a site into `out`: index.html with the overview, a page for each protocol, learner and stream, and
    scores.csv, scores.tex, results.json; returns the first page's path. Results of a single stream stand on the first
    page, too.

    streams: those evaluated, where their folders are known: they give names to steps, and their pages more to tell.
    """
    known = {stream.sha256: stream for stream in streams}
    plain = site.linked(documents)
    full = [_with_best(d, known.get(d["stream"]["sha256"])) for d in plain]
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
        after=[*after, *(sections if single else []), *(s for parts in across.values() for s in parts)],
        pages=site.contents(plain),
    )
    for name, page in site.pages(environment, full, plain, title, known, across).items():
        write_text(out / name, page)
    write_text(out / "index.html", index)
    write_text(out / "scores.csv", scores_csv(documents))
    write_text(out / "scores.tex", scores_tex(documents))
    write_json(out / "results.json", list(documents))
    return out / "index.html"


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("eval.reporting"),
    )
    made.filters |= {
        "label": lambda name: LABELS.get(name, name),
        "pct": _per_cent,
        "amount": _amount,
        "colour": colour,
        "ink": ink,
    }
    return made


def _across(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Section]]:
    """Protocol → a table over all of its streams and settings, where there is more than one."""
    found = {}
    for name in ACROSS:
        mine = [d for d in documents if d["protocol"] == name and d["results"]]
        if table := ACROSS[name](mine):
            title, note = ACROSS_TEXTS[name]
            text = f"<p class='soft'>{note}</p><div class='scroll'>{table}</div>"
            found[name] = [Section(f"across-{name}", title, text)]
    return found


def _per_cent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _amount(value: float | None, name: str) -> str:
    """A score as it is read: corrections are counted, all else is a share."""
    if value is None or not (name.startswith("corrections") or name.endswith("_us")):
        return _per_cent(value)
    return f"{value:.0f}"


def _best(results: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The highest mean, of corrections the lowest; None where nobody got there."""
    there = [r["scores"][name]["mean"] for r in results if r["scores"][name]["mean"] is not None]
    return (min if name.startswith("corrections") else max)(there, default=None)


def _with_best(document: Mapping[str, Any], stream: Stream | None) -> dict[str, Any]:
    """Add what the page shows but the document does not say: the best of each column, matrix axes and range."""
    results = document["results"]
    columns = list(results[0]["scores"]) if results else []
    best = {c: _best(results, c) for c in columns}
    seeing = [r for r in results if r["learner"] not in BLIND] or results  # chance level would flatten the colours
    cells = [cell for r in seeing for row in r["matrix"] or [] for cell in row if cell is not None]
    steps = len(results[0]["matrix"]) if results and results[0]["matrix"] else 0
    span = (min(cells), max(cells)) if cells else (0.0, 1.0)
    return {
        **document,
        "results": [{**r, "learner": shown} for r, shown in zip(results, labels(results), strict=True)],
        "columns": columns,
        "measures": list(results[0].get("measures", {})) if results else [],
        "texts": TEXTS.get(document["protocol"], TEXTS["clear"]),
        "figures": FIGURES[document["protocol"]](document) if results and document["protocol"] in FIGURES else [],
        "note": NOTES[document["protocol"]](document) if results and document["protocol"] in NOTES else "",
        "best": best,
        "names": [step.name for step in stream.steps] if stream is not None else list(map(str, range(steps))),
        "span": span,
    }


def colour(value: float, span: tuple[float, float]) -> str:
    """A cell's background: light for the lowest value of the page's matrices, deep blue for the highest.

    >>> colour(0.0, (0.0, 1.0)), colour(1.0, (0.0, 1.0))
    ('#f1f5f2', '#0b4f6c')
    """
    low, high = span
    t = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 1.0
    ends = ((241, 245, 242), (11, 79, 108))
    return "#" + "".join(f"{round(a + (b - a) * t):02x}" for a, b in zip(*ends, strict=True))


def ink(value: float, span: tuple[float, float]) -> str:
    """A cell's text colour: black or white, whichever stands out more on `colour` (contrast above 4.5)."""
    hexed = colour(value, span)
    parts = [int(hexed[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # WCAG 2
    return "#ffffff" if luminance < 0.179 else "#000000"


def scores_csv(documents: Sequence[Mapping[str, Any]]) -> str:
    """One line per learner, protocol, score and seed; a published mean has `published` for its seed."""
    rows = []
    for d in documents:
        for r, shown in zip(d["results"], labels(d["results"]), strict=True):
            for name, score in r["scores"].items():
                told = [("published", r["published"][name]["mean"])] if name in r.get("published", {}) else []
                for seed, value in [*zip(r["seeds"], score["values"], strict=True), *told]:
                    rows.append((d["stream"]["name"], d["protocol"], shown, name, seed, repr(value)))
    return csv_text(("stream", "protocol", "learner", "score", "seed", "value"), rows)


def scores_tex(documents: Sequence[Mapping[str, Any]]) -> str:
    """One LaTeX table (booktabs) per protocol: mean ± standard deviation over seeds, best in bold."""
    tables = []
    for d in documents:
        if not d["results"]:
            continue
        columns = list(d["results"][0]["scores"])
        best = {c: _best(d["results"], c) for c in columns}
        lines = [
            f"% {d['protocol']} on {d['stream']['name']}",
            r"\begin{tabular}{l" + "r" * len(columns) + "}",
            r"\toprule",
            " & ".join(["learner", *(LABELS.get(c, c) for c in columns)]) + r" \\",
            r"\midrule",
        ]
        for r, shown in zip(d["results"], labels(d["results"]), strict=True):
            cells = []
            for c in columns:
                mean, sd = (_amount(r["scores"][c][key], c) for key in ("mean", "sd"))
                text = f"{mean} \\pm {sd}"
                is_best = best[c] is not None and r["scores"][c]["mean"] == best[c]
                cells.append(f"$\\mathbf{{{text}}}$" if is_best else f"${text}$")
            lines.append(" & ".join([shown.replace("_", r"\_"), *cells]) + r" \\")
            if told := r.get("published"):
                theirs = [f"${100 * told[c]['mean']:.1f} \\pm {100 * told[c]['sd']:.1f}$" for c in columns]
                lines.append(" & ".join([r"\quad published", *theirs]) + r" \\")
        tables.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(tables) + "\n"
