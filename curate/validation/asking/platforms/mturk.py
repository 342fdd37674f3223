"""MTurk's requester pages: a CSV with one row per image, and the HTML template of the question.

Amazon closed the service; compatible services and the archives of laboratories use this format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import write_text
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import COLUMNS, marketplace_csv, question_html

CLOSED = (
    "Amazon Mechanical Turk closed on 30 September 2026 (mturk.com/pricing, read 7 October 2026). These files are for "
    "compatible services and archives; for paid workers: driftline batch --format prolific.\n"
)


def write(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Write `batch.csv` and `template.html`, and `README.txt`, which says that the service is closed."""
    write_text(out / "README.txt", CLOSED)
    return write_requester_files(batch, addresses, concepts, out)


def write_requester_files(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Write `batch.csv` and `template.html`."""
    rows = [(batch["batch"], item, url) for item, url in addresses.items()]
    write_text(out / "batch.csv", marketplace_csv(COLUMNS, rows))
    write_text(out / "template.html", question_html(concepts))
    return {"images": len(addresses), "answers": len(addresses) * batch["workers"]}
