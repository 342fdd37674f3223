"""What a page shows of one document: the answer, charts, tables and matrices."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from driftline.eval.plotting.charts import Figure, front, scatter
from driftline.eval.protocol import OF_CLASSES, Document, Score, kind_of, primary_of, score_of, scores_of
from driftline.eval.reporting import ageing
from driftline.eval.reporting.answer import answer, seconds_of
from driftline.eval.reporting.compared import letters
from driftline.eval.reporting.markup import table
from driftline.eval.reporting.protocols import page_of
from driftline.eval.reporting.text import named_steps, step_names, value_text
from driftline.eval.scoring import ranking
from driftline.eval.scoring.ranking import mean_of, rival
from driftline.stream_builder.stream import Stream

MATRICES = 6  # in the page; results.json has all
CLASSES = 60  # in the table of recalls


def shown(part: Document, stream: Stream | None) -> dict[str, Any]:
    """What a page shows beyond one of `ranking.parts`: the answer, columns, texts, figures, the matrix's axes and
    range. All of it is about this group of comparable results."""
    results, kind, page = part["results"], kind_of(part), page_of(part)
    seeing = [r for r in results if r.get("standing") != "blind"] or results  # chance would flatten the colours
    cells = [cell for r in seeing for row in r["matrix"] or [] for cell in row if cell is not None]
    measures = dict.fromkeys(name for r in results for name in r.get("measures", ()))
    ties = letters(part)
    about, lacks = part.get("ageing") or {}, []  # what could be shown if the rows had it
    if any(r["matrix"] for r in results):
        if not about:
            lacks = [
                "No model was tested after its training, or no per-sample predictions were read: there are no "
                "ageing curves."
            ]
        elif not about["dates"]:
            lacks = ["No dates: ages are in steps."]
    sizes = [len(step.splits.get("train", ())) for step in stream.steps] if stream is not None else []
    part = {**part, "names": names_of(part, stream), "ends": list(accumulate(sizes)) if all(sizes) else []}
    full = {
        **part,
        "title": title_of(part),
        "results": [{**r, "tie": ties.get(r["place"], ""), "remarks": remarks(r)} for r in results],
        "tied": any(r["place"] in ties for r in results),
        "columns": scores_of(part),
        "primary": primary_of(part) if results else None,
        "seeds": _seeds(results),
        "varies": page.varies(part) if any(len(r["seeds"]) > 1 for r in results) else "",
        "measures": [score_of(kind, name) for name in measures]
        + [score for score in OF_CLASSES if any(ranking.entry_of(score, r) for r in results)],
        "references": ranking.references(results),
        "recalls": _recall_table(part),
        "texts": page,
        "figures": page.figures(part) if results else [],
        "note": " ".join(filter(None, [page.note(part), results[0].get("label_time")])) if results else "",
        "span": (min(cells), max(cells)) if cells else (0.0, 1.0),
        "lacks": " ".join([*lacks, *part.get("unread", ())]),
    }
    aged = page.ages and any(r.get("aged") for r in results)
    full["answer"] = answer(full)
    full["first"] = page.first(full) or (ageing.curves(full) if aged else None) if results else None
    full["second"] = ageing.never(full) if aged else None
    full["retrain"] = ageing.retrain(full) if aged else None
    full["placebo"] = ageing.placebo(full) if aged else None
    full["ageing_table"] = ageing.table(full) if aged else None
    full["by_class"] = ageing.by_class(full) if aged else None
    full["cost"] = _cost(full) if results else None
    with_matrix = [r for r in full["results"] if r["matrix"]]
    full["matrices"], full["more_matrices"] = with_matrix[:MATRICES], len(with_matrix[MATRICES:])
    return full


def title_of(part: Document) -> str:
    """Protocol, stream and, where the document has several groups of comparable results, the settings of this one."""
    return f"{part['protocol']} on {part['stream']['name']}" + f", {part['setting']}" * bool(part["setting"])


def remarks(result: Mapping[str, Any]) -> list[str]:
    """What a table says below the name of one of a document's results.

    >>> remarks({"same_as": "substrate", "code": "other"})
    ['same answers as substrate', 'results of other code']
    """
    same = [f"same answers as {result['same_as']}"] if "same_as" in result else []
    same += [result["mark"]] if result.get("mark") else []
    constant = ["one answer for all samples of a test"] if result.get("constant") else []
    constant += [f"no answer to {result['no_answer']:.1%} of test samples"] if "no_answer" in result else []
    return same + constant + ["results of other code"] * (result.get("code") == "other")


def recalls(part: Document) -> tuple[list[str], list[list[str]]]:
    """Names of the classes, and for each learner with predictions its label and its recall (%) of each class; "–"
    for a class without tests."""
    results = [r for r in part["results"] if "classes" in r]
    names = list(part.get("classes", ())) if results else []
    size = max((len(r["classes"]["recall"]) for r in results), default=0)
    size = max(size, len(names))
    share, rows = Score("", ""), []
    for r in results:
        values = r["classes"]["recall"]
        rows.append([r["label"], *(value_text(share, v) for v in [*values, *[None] * (size - len(values))])])
    return [*names, *map(str, range(len(names), size))], rows


def _recall_table(part: Document) -> Markup | None:
    """A row for each class, those with the lowest recall if there are many; None without predictions."""
    names, rows = recalls(part)
    n: list[int] = max((r["classes"]["n"] for r in part["results"] if "classes" in r), key=len, default=[])
    n = [*n, *[0] * (len(names) - len(n))]
    lines = [
        [name, f"{count:,}", *cells] for name, count, *cells in zip(names, n, *(row[1:] for row in rows), strict=True)
    ]
    if len(lines) > CLASSES:
        worst = sorted(
            range(len(lines)), key=lambda k: min((float(c) for c in lines[k][2:] if c != "–"), default=math.inf)
        )
        lines = [lines[k] for k in sorted(worst[:CLASSES])]
    return table(["class", "test samples", *(row[0] for row in rows)], lines) if lines else None


def names_of(document: Document, stream: Stream | None) -> list[str]:
    """Of the steps, as `step_names` has them."""
    about = document.get("ageing") or {}
    if stream is not None:
        return named_steps(stream)
    if about.get("names"):
        return step_names(about["names"], about.get("dates", ()))
    matrices = [r["matrix"] for r in document["results"] if r["matrix"]]
    return list(map(str, range(max(map(len, matrices), default=0))))


def _seeds(results: Sequence[Mapping[str, Any]]) -> str:
    """Over how many seeds the results are.

    >>> _seeds([{"seeds": [0]}]), _seeds([{"seeds": [0]}, {"seeds": [0, 1, 2]}])
    ('1 seed', 'mean ± standard deviation over 1 to 3 seeds')
    """
    low, *_, high = sorted([len(result["seeds"]) for result in results] * 2) or [0, 0]
    if high == 1:
        return "1 seed"
    return f"mean ± standard deviation over {high if low == high else f'{low} to {high}'} seeds"


def _cost(document: Mapping[str, Any]) -> Figure | None:
    """The primary score over the cost of a run; None for fewer than two learners."""
    score: Score = document["primary"]
    named = {r["label"]: r for r in document["results"]}
    whole = {name: r for name, r in named.items() if ranking.rank(score, r)[0] == 1}
    costs = {name: (1000 * seconds_of(r), mean_of(score, r)) for name, r in whole.items()}
    places = {name: (cost, mean) for name, (cost, mean) in costs.items() if mean is not None and cost > 0}
    if len(places) < 2 or score.unit != "share":
        return None
    best = [name for name in front({n: (-cost, mean) for n, (cost, mean) in places.items()}) if rival(named[name])]
    caption = (
        f"{score.label.capitalize()} (%) over the processor time of one run. Blue, joined by a line: no other "
        "learner is at least as cheap and as good."
    )
    return Figure("Cost against accuracy", caption, scatter(places, best, "milliseconds per run", score.label))
