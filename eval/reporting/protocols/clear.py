"""CLEAR's tables over several features of one release: network × features × method [CLEAR, supplement, tables 6–9]."""

from __future__ import annotations

import html
from collections.abc import Sequence

from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import Document, Score, primary_of, scores_of
from driftline.eval.reporting import spread
from driftline.eval.reporting.protocols import Page
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
    head = "".join(f"<th scope='col'><a href='{page}'>{html.escape(name)}</a></th>" for name, page in columns)
    body = []
    for (net, name), row in sorted(cells.items()):
        values = "".join(_cell(row.get(i), first, second) for i in range(len(columns)))
        names = f"<th scope='row'>{html.escape(net)}</th><td class='left'>{html.escape(name)}</td>"
        body.append(f"<tr>{names}{values}</tr>")
    protocol = documents[0]["protocol"]
    return Section(
        f"across-{protocol}",
        f"Network × features × method, {protocol}",
        f"<p class='soft'>{first.label.capitalize()} accuracy; below it, {second.label}. Per cent, over seeds. The "
        f"best {first.label} of each column is bold.</p>"
        "<div class='scroll' tabindex='0'><table class='scores'><thead><tr>"
        f"<th scope='col'>network</th><th scope='col'>method</th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>",
    )


def _cell(place: Place | None, first: Score, second: Score) -> str:
    if place is None:
        return "<td>–</td>"
    result = place.result
    upper, lower = spread(first, result), spread(second, result)
    mark = " class='best'" if place.best else ""
    link = f"<a class='n' href='{result['page']}#{result['anchor']}'>{upper}</a>" if "page" in result else upper
    return f"<td{mark}>{link}<br><span class='sd'>{lower}</span></td>"


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
