"""CLEAR's tables over several features of one release: network × features × method [CLEAR, supplement, tables 6–9]."""

from collections.abc import Sequence

from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import Document, Score, primary_of, scores_of
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.protocols import Page
from driftline.eval.reporting.text import spread
from driftline.eval.scoring.ranking import Place, ranked


def varies(document: Document) -> str:
    """What differs between seeds: samples only if the splits are drawn for each seed."""
    drawn = "Initial weights, the order of batches and what memories keep"
    kinds = dict.fromkeys(str(r["settings"].get("splits", "stream")) for r in document["results"])
    own = [kind for kind in kinds if kind != "stream"]
    texts = [f"splits={kind}: the train and test samples; {drawn[0].lower()}{drawn[1:]}." for kind in own]
    if "stream" in kinds:
        texts.append(f"{drawn}. The train and test samples are the same for every seed.")
    return " ".join(texts)


def across(documents: Sequence[Document]) -> Section | None:
    """A row for each network and method, a column for each stream; in a cell the primary score and one other. None for
    a single stream."""
    if len({d["stream"]["sha256"] for d in documents}) < 2:
        return None
    columns = [(d["stream"]["name"], d["stream"].get("page", "")) for d in documents]
    cells: dict[tuple[str, str], dict[int, Place]] = {}
    for i, document in enumerate(documents):
        for place in ranked(document):
            cells.setdefault((str(place.result["settings"].get("net", "–")), place.name), {})[i] = place
    first = primary_of(documents[0])
    second = next(score for score in scores_of(documents[0]) if score != first)
    rows: list[list[Cell | str]] = []
    for (net, name), row in sorted(cells.items()):
        rows.append([net, Cell(name, kind="left"), *(_cell(row.get(i), first, second) for i in range(len(columns)))])
    protocol = documents[0]["protocol"]
    note = (
        f"{first.label.capitalize()} accuracy; below it, {second.label}. Per cent, over seeds. The best "
        f"{first.label} of each column is bold."
    )
    heads = ["network", "method", *(Cell(name, link=page) for name, page in columns)]
    title = f"Network × features × method, {protocol}"
    return Section(f"across-{protocol}", title, render("soft", note) + table(heads, rows))


def _cell(place: Place | None, first: Score, second: Score) -> Cell | str:
    if place is None:
        return "–"
    upper, lower = spread(first, place.result), spread(second, place.result)
    return Cell(upper, below=lower, kind="best" if place.best else "")


class Streaming(Page):
    """Of clear-streaming."""

    matrix_note = (
        "Row: trained up to this step. Column: tested on this step. Framed: same step (in-domain). Right of the frame: "
        "later steps."
    )
    across, varies = staticmethod(across), staticmethod(varies)


class Iid(Streaming):
    """Of clear-iid."""

    measures_title = "The same matrix by other papers' measures, and how sure the differences are"
    measures_note = (
        "GEM: Lopez-Paz & Ranzato 2017; remembering, positive backward: Díaz-Rodríguez et al. 2018; "
        "forgetting: Chaudhry et al. 2018; incremental accuracy: Rebuffi et al. 2017."
    )

    @staticmethod
    def note(document: Document) -> str:
        """The warning of uploaders that training and tests share."""
        return str(document["results"][0].get("told", {}).get("warning", ""))
