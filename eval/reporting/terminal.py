"""The scores of a document as text, for a terminal."""

from collections.abc import Sequence

from driftline.eval.experiment.tune import choice_text
from driftline.eval.protocol import OF_CLASSES, Document, primary_of, scores_of
from driftline.eval.reporting.document import recalls, remarks, title_of
from driftline.eval.reporting.text import spread, value_text
from driftline.eval.scoring.ranking import entry_of, parts, references

FEW_CLASSES, CLASS_NAME = 10, 16  # classes that have their recall here; letters of a name


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
        rows = [["learner", *(score.name for score in scores), *(("± of tests", "tests") if counted else ())]]
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
