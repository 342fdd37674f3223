"""MTurk's requester pages: a CSV with one row an image and the template that they put into their own form.

Archives of labs and clones of the service speak it, whatever becomes of the service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.core.atomic_io import write_text
from curate.retrieval.settings import Concept
from curate.validation.batches import FIELDS, question, table


def write(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """`batch.csv` and `template.html`."""
    write_text(out / "batch.csv", table(FIELDS, [(batch["batch"], item, url) for item, url in addresses.items()]))
    write_text(out / "template.html", question(concepts))
    return {"images": len(addresses), "answers": len(addresses) * batch["workers"]}
