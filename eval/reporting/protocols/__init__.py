"""What the report says and draws about a protocol, by the protocol's name. One without an entry has the base page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from driftline.curate.core.registry import Registry
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.protocol import Document, Score, kind_of, primary_of, score_of
from driftline.eval.reporting.compared import scores_of_members
from driftline.eval.reporting.text import listed
from driftline.eval.scoring.bands import Band
from driftline.eval.scoring.ranking import mean_of, rank, rival


@dataclass(frozen=True)
class Lead:
    """The first sentence of a protocol's own first screen."""

    sentence: Markup
    """with references, ranks and ties"""
    above: list[str]
    """labels of seeing learners above all references, beyond the 95 % interval"""


@dataclass(frozen=True)
class Page:
    """Titles, notes and figures of a protocol's documents."""

    measures_title: str = "Additional metrics, and how sure the differences are"
    measures_note: str = ""
    matrix_title: str = "Accuracy matrices"
    matrix_note: str = "Row: trained up to this step. Column: tested on this step."
    ages: bool = True
    """whether models are tested when they are old"""
    lead: Callable[[Document], Lead | None] = lambda document: None
    """where the usual first sentence does not fit"""
    first: Callable[[Document], Figure | None] = lambda document: None
    """the protocol's own chart of the first screen"""
    figures: Callable[[Document], Sequence[Figure]] = lambda document: curves(document)
    """charts of one of `ranking.parts`: a line for each result, named by its `label`"""
    whole: Callable[[Document], Sequence[Figure]] = lambda document: ()
    """charts over all groups of comparable results of one document"""
    note: Callable[[Document], str] = lambda document: ""
    """a paragraph above the table of one part"""
    varies: Callable[[Document], str] = lambda document: "What the protocol and the learner choose at random."
    """what differs between the seeds of one part, and what does not"""
    across: Callable[[Sequence[Document]], Section | None] = lambda documents: None
    """a table over several streams"""


PAGES = Registry(
    "page of a protocol", __name__, {"clear-iid": ":IID", "clear-streaming": ":STREAMING", "ocrr": ".ocrr:PAGE",
                                     "seq-to-final": ".seq_to_final:PAGE", "near-future": ".near_future:PAGE"},
)  # fmt: skip


def lead_of(document: Document, references: Mapping[str, float], alone: str, what: str) -> Lead:
    """document: one of `ranking.parts`. references: name → what is reached without looking at samples, by the primary
    score. alone: all of them in words. what: that a share is of, as in "of the samples 64 later"."""
    score, by_place = primary_of(document), {r["place"]: r for r in document["results"]}
    names = {place: r["label"] for place, r in by_place.items()}
    blind = {name for place, name in names.items() if by_place[place].get("standing") == "blind"}
    seeing = [r for r in by_place.values() if rival(r) and r["label"] not in blind and mean_of(score, r) is not None]
    known = ", ".join(f"{name} {100 * value:.1f} %" for name, value in references.items())
    if not seeing:
        return Lead(Markup("No learner here looks at samples: {}.").format(known), [])
    group = document.get("tested")
    tie = [names[i] for i in group["ties"][0]] if group and group["ties"] else []
    ends = {r["label"]: _interval(score, r, scores_of_members(group).get(r["place"])) for r in seeing}
    best, most = max(seeing, key=lambda r: rank(score, r)), max(references.values())
    above = [name for name, (low, _) in ends.items() if low > most]
    values = (100 * value for value in (mean_of(score, best) or 0.0, *ends[best["label"]]))
    share = "{:.1f} % ({:.1f} to {:.1f})".format(*values)
    of = f" of {len(seeing)} learners" if len(seeing) > 1 else ""
    if best["label"] not in above:
        text = "No learner is shown to be above {}: {}. The best{} looking at samples is <strong>{}</strong>, {} {}."
        return Lead(Markup(text).format(alone, known, of, best["label"], share, what), [])
    others = [name for name in tie if name in above and name != best["label"]]
    place = Markup(", the {}{}").format("best" if tie == [best["label"]] else "highest", of) if of else ""
    place += Markup(", not measurably different from {}").format(listed(others)) if others else ""
    text = "<strong>{}</strong> is right on {} {}{}. Without looking: {}."
    return Lead(Markup(text).format(best["label"], share, what, place, known), above)


def _interval(score: Score, result: Document, band: Band | None) -> tuple[float, float]:
    """95 % interval of a mean: over seeds and samples, and at least that of answers that come in runs."""
    mean = mean_of(score, result) or 0.0
    half = result.get("ci95_samples", {}).get(score.name) or 0.0
    low, high = (mean, mean) if band is None else (float(band.low), float(band.high))
    return max(0.0, min(low, mean - half)), min(1.0, max(high, mean + half))


def curves(part: Document) -> list[Figure]:
    """A chart of each y of `Result.curve` over "at"; "value" is the primary score on the way. The caption says where a
    curve does not end at the score of its name."""
    drawn = [r for r in part["results"] if r.get("curve") and "at" in r["curve"]]
    keys = dict.fromkeys(key for r in drawn for key in r["curve"] if key != "at")
    figures = []
    for key in keys:
        score = primary_of(part) if key == "value" else score_of(kind_of(part), key)
        series = {r["label"]: (r["curve"]["at"], r["curve"][key]) for r in drawn if key in r["curve"]}
        chart = lines(
            series, "at", y_name=score.label if score.unit == "share" else score.unit, share=score.unit == "share"
        )
        ends = [(r["curve"][key], mean_of(score, r)) for r in drawn if key in r["curve"]]
        at_score = all(values and mean is not None and abs(values[-1] - mean) < 1e-9 for values, mean in ends)
        caption = "Mean over seeds at each point."
        caption += "" if at_score else f" The score {score.label} is not the end of its curve."
        figures.append(Figure(f"{score.label.capitalize()} on the way", caption, chart))
    return figures


def page_of(document: Document) -> Page:
    """The page of a document's protocol."""
    page: Page = PAGES[document["protocol"]] if document["protocol"] in PAGES else Page()
    return page


def varies(document: Document) -> str:
    """What differs between seeds: samples only if the splits are drawn for each seed."""
    drawn = "Initial weights, the order of batches and what memories keep"
    kinds = dict.fromkeys(str(r["settings"].get("splits", "stream")) for r in document["results"])
    own = [kind for kind in kinds if kind != "stream"]
    texts = [f"splits={kind}: the train and test samples; {drawn[0].lower()}{drawn[1:]}." for kind in own]
    if "stream" in kinds:
        texts.append(f"{drawn}. The train and test samples are the same for every seed.")
    return " ".join(texts)


STREAMING = Page(
    matrix_note="Row: trained up to this step. Column: tested on this step. Framed: same step (in-domain). Right of "
    "the frame: later steps.",
    varies=varies,
)
IID = replace(
    STREAMING,
    measures_title="The same matrix by other papers' metrics, and how sure the differences are",
    measures_note="GEM: Lopez-Paz & Ranzato 2017; remembering, positive backward: Díaz-Rodríguez et al. 2018; "
    "forgetting: Chaudhry et al. 2018; incremental accuracy: Rebuffi et al. 2017.",
    note=lambda document: str(document["results"][0].get("told", {}).get("warning", "")),  # of shared uploaders
)
