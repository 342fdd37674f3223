"""Turkle, a self-hosted clone of MTurk: the same template and CSV, and the requests for its API.

`calls.json` holds the bodies of two requests (POST /api/projects/, then POST /api/batches/ with the project's number);
the results (GET /api/batches/N/results/) go into the answers folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import write_json
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import COLUMNS, marketplace_csv, question_html
from driftline.curate.validation.asking.platforms.mturk import write_requester_files


def write(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Write `batch.csv`, `template.html` and `calls.json`."""
    rows = [(batch["batch"], item, url) for item, url in addresses.items()]
    calls = {
        "project": {
            "name": f"driftline {batch['batch']}",
            "filename": "template.html",
            "html_template": question_html(concepts),
            "assignments_per_task": batch["workers"],
            "login_required": True,
        },
        "batch": {
            "name": batch["batch"],
            "filename": "batch.csv",
            "csv_text": marketplace_csv(COLUMNS, rows),
            "assignments_per_task": batch["workers"],
            "login_required": True,
            "published": True,
        },
    }
    write_json(out / "calls.json", calls)
    return write_requester_files(batch, addresses, concepts, out)
