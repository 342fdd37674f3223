"""Results for other programs: tidy CSV, and LaTeX tables; scores as text, for a terminal."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.core.errors import BadConfig, available
from driftline.curate.foreign.escaping import latex, no_formula
from driftline.eval.experiment.tune import choice_text
from driftline.eval.protocol import OF_CLASSES, Document, primary_of, scores_of
from driftline.eval.reporting.compared import letters
from driftline.eval.reporting.document import recalls, remarks, title_of
from driftline.eval.reporting.text import spread, value_text
from driftline.eval.scoring.aggregate import plain
from driftline.eval.scoring.ranking import entry_of, parts, ranked, references

PUBLISHED = "published"  # in place of a seed
CLASS_COLUMNS = ("stream", "protocol", "learner", "class", "n", "recall")
EXPORTED = ("scores.csv", "scores.tex", "results.json")
FORMATS = ("csv", "latex")
SCORE_COLUMNS = (
    "stream", "stream_sha256", "protocol", "learner", "settings", "score", "unit", "higher_is_better", "seed", "value",
    "run",
)  # fmt: skip
LEFT_OUT = frozenset({"timeline", "chance", "accuracy_of"})  # of results.json: repeated, or by class and age
FEW_CLASSES, CLASS_NAME = 10, 16  # classes that have their recall here; letters of a name


def checked_formats(names: Sequence[str]) -> Sequence[str]:
    """These names of `FORMATS`, all of none. Raises BadConfig for another name."""
    for name in names:
        if name not in FORMATS:
            raise BadConfig(f"--format is {name!r}.", available(name, FORMATS))
    return names or FORMATS


def write_exports(documents: Sequence[Document], out: Path, formats: Sequence[str]) -> None:
    """Write scores.csv, scores.tex and results.json. formats: of `FORMATS`."""
    if "csv" in formats:
        write_text(out / "scores.csv", scores_csv(documents))
    if "latex" in formats:
        write_text(out / "scores.tex", scores_tex(documents))
    # Indented by hand, down to results: Python's own indenting takes ten times as long.
    texts = []
    for document in documents:
        results = ",".join(f"\n    {_json(result)}" for result in document["results"])
        others = [f'\n  "{key}": {_json(value)}' for key, value in sorted(document.items()) if key != "results"]
        texts.append("\n {" + ",".join([*others, f'\n  "results": [{results}]']) + "}")
    write_text(out / "results.json", "[" + ",".join(texts) + "\n]\n")


def _json(value: Any) -> str:
    # With nine decimals: what a mean of shares has beyond them is rounding, and half of the file.
    return json.dumps(plain(value, LEFT_OUT, 9), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def score_records(documents: Sequence[Document], published: bool = False) -> Iterator[dict[str, Any]]:
    """One row for each score of each run, also of balanced accuracy and macro-F1, the best learner first. published:
    behind them the published mean, with the seed "published"."""
    for document in documents:
        stream = document["stream"]
        about = {"stream": stream["name"], "stream_sha256": stream["sha256"], "protocol": document["protocol"]}
        for place in ranked(document):
            result = place.result
            settings = json.dumps(result["settings"], sort_keys=True, default=str)
            runs = result.get("runs") or [None] * len(result["seeds"])
            for score in [*scores_of(document), *OF_CLASSES]:
                kind = {"score": score.name, "unit": score.unit, "higher_is_better": score.higher_is_better}
                values = entry_of(score, result).get("values", ())
                for seed, value, run in zip(result["seeds"], values, runs, strict=False):
                    own = {"learner": place.name, "settings": settings, "seed": int(seed), "value": value, "run": run}
                    yield about | own | kind
                if published and (printed := result.get(PUBLISHED, {}).get(score.name)):
                    yield about | kind | {"learner": place.name, "seed": PUBLISHED, "value": printed["mean"]}


def scores_csv(documents: Sequence[Document]) -> str:
    """One line for each learner, protocol, score and seed; the seed of a published mean is `published`."""
    rows = score_records(documents, published=True)
    return csv_text(SCORE_COLUMNS, [[no_formula(row.get(column)) for column in SCORE_COLUMNS] for row in rows])


def scores_tex(documents: Sequence[Document]) -> str:
    """One LaTeX table (booktabs) for each protocol and stream: mean ± standard deviation over seeds. The best learner
    is first, its primary score bold. Learners whose primary scores have a common letter do not differ."""
    tables = []
    for d in documents:
        if not d["results"]:
            continue
        scores, primary = scores_of(d), primary_of(d)
        ties, at = letters(d), {id(result): i for i, result in enumerate(d["results"])}
        labels = [latex(score.label) for score in scores]
        columns, head = "r" * len(scores), " & ".join(["learner", *labels])
        lines = [f"% {latex(d['protocol'])} on {latex(d['stream']['name'])}"]
        lines += ["% learners with a common letter do not differ (5 %, Holm)"] if ties else []
        lines += [rf"\begin{{tabular}}{{l{columns}}}", r"\toprule", rf"{head} \\", r"\midrule"]
        for place in ranked(d):
            result, tie = place.result, ties.get(at[id(place.result)], "").replace("…", "+")
            cells = []
            for score in scores:
                text = spread(score, result).replace("±", r"\pm")
                text = rf"\mathbf{{{text}}}" if place.best and score == primary else text
                cells.append(f"${text}^{{{tie}}}$" if tie and score == primary else f"${text}$")
            lines.append(" & ".join([latex(place.shown), *cells]) + r" \\")
            if printed := result.get(PUBLISHED):
                pairs = [printed.get(score.name) for score in scores]
                printed_sd = [rf" \pm {100 * p['sd']:.1f}" if p and "sd" in p else "" for p in pairs]
                theirs = [
                    f"${100 * p['mean']:.1f}{sd}$" if p else "--" for p, sd in zip(pairs, printed_sd, strict=True)
                ]
                lines.append(" & ".join([r"\quad published", *theirs]) + r" \\")
        tables.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(tables) + "\n"


def class_records(document: Document) -> Iterator[tuple[str, str, str, str, int, float | None]]:
    """Stream, protocol, learner, class, test samples and recall, the best learner first, the classes in their order."""
    names = document.get("classes", ())
    for name, result, *_ in ranked(document):
        about = document["stream"]["name"], document["protocol"], name
        of = result.get("classes", {"n": (), "recall": ()})
        for k, (n, share) in enumerate(zip(of["n"], of["recall"], strict=True)):
            yield *about, names[k] if k < len(names) else str(k), n, share


def scores_text(document: Document) -> str:
    """For each group of comparable results a table in order of the primary score, with half the 95 % interval over test
    samples and their number, and recall by class; then why learners were skipped."""
    lines = []
    for part in parts(document):
        lines.append(title_of(part))
        if not part["results"]:
            continue
        primary, results = primary_of(part), part["results"]
        lines[-1] += f", in order of {primary.name}"
        scores = [*scores_of(part), *(score for score in OF_CLASSES if any(entry_of(score, r) for r in results))]
        counted = any("tests" in r for r in results)
        rows = [
            ["learner", *(score.name for score in scores), *(("± of test samples", "test samples") if counted else ())]
        ]
        for r in results:
            half = r.get("ci95_samples", {}).get(primary.name)
            of_tests = [value_text(primary, half), f"{r['tests']:,}" if "tests" in r else "–"] if counted else []
            rows.append([r["label"], *(spread(score, r) for score in scores), *of_tests])
        for name, value in references(results).items():
            cells = [value_text(primary, value) if score == primary else "" for score in scores]
            rows.append([f"({name})", *cells, *["", ""][: 2 * counted]])
        notes = ["", *("".join(f"  ({remark})" for remark in remarks(r)) for r in results)]
        notes += [""] * (len(rows) - len(notes))
        lines += [line + note for line, note in zip(columns(rows), notes, strict=True)] + _recalls(part)
        lines += [f"  {text}" for text in map(choice_text, results) if text]
    reasons: dict[str, list[str]] = {}
    for skipped in document["skipped"]:
        reasons.setdefault(skipped["because"], []).append(skipped["learner"])
    lines += [f"  {', '.join(names)}: skipped, because {because}" for because, names in reasons.items()]
    return "\n".join(lines)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column at the left, the others at the right."""
    first, *others = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    return [
        f"  {row[0]:<{max(first, 16)}}" + "".join(f"{cell:>{n}}" for cell, n in zip(row[1:], others, strict=True))
        for row in rows
    ]


def _recalls(part: Document) -> list[str]:
    """Recall of each class in per cent, or where it is if there are many classes; "–": no tests."""
    names, rows = recalls(part)
    if len(names) > FEW_CLASSES:
        return [f"  Recall of each of the {len(names)} classes: --json, or driftline report."]
    return columns([["recall", *(name[:CLASS_NAME] for name in names)], *rows]) if names else []
