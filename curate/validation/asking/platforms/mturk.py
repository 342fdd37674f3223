"""MTurk's requester pages: a CSV with one row per image, and the HTML template of the question.

Compatible services and the archives of laboratories use this format, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import write_text
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import COLUMNS, marketplace_csv, question_html


def write(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Write `batch.csv` and `template.html`."""
    rows = [(batch["batch"], item, url) for item, url in addresses.items()]
    write_text(out / "batch.csv", marketplace_csv(COLUMNS, rows))
    write_text(out / "template.html", question_html(concepts))
    return {"images": len(addresses), "answers": len(addresses) * batch["workers"]}
