"""Texts of the protocol adaptation."""

from __future__ import annotations

from driftline.eval.protocol import Document
from driftline.eval.reporting.protocols import Page


def note(document: Document) -> str:
    """The order of the test samples, and what labels alone give away in it."""
    first = document["results"][0]
    settings, order = first["settings"], first.get("told", {}).get("neighbours")
    if order is None:
        return ""
    text = (
        f"Test samples come {'in the order of the stream' if settings['order'] == 'as-given' else 'shuffled'}, in "
        f"batches of {settings['batch']}. Neighbours share their label in {100 * order['repeated']:.1f} % "
        f"({100 * order['by_chance']:.1f} % in a random order). The most frequent label of each batch, as the answer "
        f"for all of it, would be right in {100 * order['majority']:.1f} %."
    )
    if order["correlated"]:
        text += (
            " Warning: the order gives labels away. A model that adapts to a batch may gain from the order alone; "
            "use order=shuffled."
        )
    return text


class Adaptation(Page):
    """Of adaptation."""

    note = staticmethod(note)
    measures_title = "Accuracy estimated without labels"
    measures_note = (
        "Mean absolute error of the estimated accuracy of the model without adaptation, over the later steps. ATC: "
        "Garg et al. 2022; DoC: Guillory et al. 2021; both need confidences. GDE: Jiang et al. 2022, agreement of two "
        "models that learned a random half of the source each."
    )
