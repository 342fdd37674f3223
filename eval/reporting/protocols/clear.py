"""What a page says about CLEAR's protocols."""

from driftline.eval.protocol import Document
from driftline.eval.reporting.protocols import Page


def varies(document: Document) -> str:
    """What differs between seeds: samples only if the splits are drawn for each seed."""
    drawn = "Initial weights, the order of batches and what memories keep"
    kinds = dict.fromkeys(str(r["settings"].get("splits", "stream")) for r in document["results"])
    own = [kind for kind in kinds if kind != "stream"]
    texts = [f"splits={kind}: the train and test samples; {drawn[0].lower()}{drawn[1:]}." for kind in own]
    if "stream" in kinds:
        texts.append(f"{drawn}. The train and test samples are the same for every seed.")
    return " ".join(texts)


class Streaming(Page):
    """Of clear-streaming."""

    matrix_note = (
        "Row: trained up to this step. Column: tested on this step. Framed: same step (in-domain). Right of the frame: "
        "later steps."
    )
    varies = staticmethod(varies)


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
