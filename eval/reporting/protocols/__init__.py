"""What the report says and draws about a protocol, by the protocol's name. One without an entry has the base page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from driftline.curate.core.registry import Registry
from driftline.eval.protocol import Document

if TYPE_CHECKING:
    from driftline.eval.plotting.charts import Figure, Section


class Page:
    """Titles, notes and figures of a protocol's documents; derive from it and register the class by the protocol's
    name."""

    measures_title: str = "Further measures, and how sure the differences are"
    measures_note: str = ""
    matrix_title: str = "Accuracy matrices"
    matrix_note: str = "Row: trained up to this step. Column: tested on this step."

    @staticmethod
    def figures(document: Document) -> Sequence[Figure]:
        """Charts of one document."""
        return ()

    @staticmethod
    def note(document: Document) -> str:
        """A paragraph above the table of one document."""
        return ""

    @staticmethod
    def varies(document: Document) -> str:
        """What differs between the seeds of one document, and what does not."""
        return "What the protocol and the learner draw at random."

    @staticmethod
    def across(documents: Sequence[Document]) -> Section | None:
        """A table over several streams."""
        return None


PAGES = Registry(
    "page of a protocol",
    {
        "clear-iid": "driftline.eval.reporting.protocols.clear:Iid",
        "clear-streaming": "driftline.eval.reporting.protocols.clear:Streaming",
        "ocrr": "driftline.eval.reporting.protocols.ocrr:Ocrr",
        "seq-to-final": "driftline.eval.reporting.protocols.seq_to_final:SeqToFinal",
        "adaptation": "driftline.eval.reporting.protocols.adaptation:Adaptation",
        "near-future": "driftline.eval.reporting.protocols.near_future:NearFuture",
    },
)


def page_of(document: Document) -> type[Page]:
    """The page of a document's protocol."""
    if document["protocol"] not in PAGES:
        return Page
    page: type[Page] = PAGES[document["protocol"]]
    return page
