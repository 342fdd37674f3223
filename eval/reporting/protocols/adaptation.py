"""Texts of the protocol adaptation."""

from __future__ import annotations

from driftline.eval.reporting.protocols import Page


class Adaptation(Page):
    """Of adaptation."""

    measures_title = "Accuracy estimated without labels"
    measures_note = (
        "Mean absolute error of the estimated accuracy of the model without adaptation, over the later steps. ATC: "
        "Garg et al. 2022; DoC: Guillory et al. 2021; both need confidences. GDE: Jiang et al. 2022, agreement of two "
        "models that learned a random half of the source each."
    )
