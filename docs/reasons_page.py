"""The manual's page of reasons: why a stage drops a photo, as `driftline status DIR --dropped` prints it."""

from driftline.pipelines.stages.photos import MEANING

TOP = """# Reasons of drops

This page explains every reason for which a photo is dropped. In every stage read = kept + dropped, and every
drop has one reason. `driftline status DIR --dropped` lists the photos, `driftline trace DIR PHOTO` shows one
photo's history, and the data card has the counts for each bucket. A row has the reason of the
first filter that it fails, in the order of this page.
"""


def page() -> str:
    """The page."""
    parts = [TOP]
    for stage, reasons in MEANING.items():
        parts += [f"## {stage}", "", *(f"- `{reason}`: {meaning}" for reason, meaning in reasons.items()), ""]
    return "\n".join(parts)
