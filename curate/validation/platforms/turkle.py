"""Turkle, a self-hosted clone of MTurk: the same template and CSV, and what its API wants to be told.

`batch.json` holds the bodies of its two calls (POST /api/projects/, then POST /api/batches/ with the project's number);
its results (GET /api/batches/N/results/) go into the answers folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.core.atomic_io import write_json
from curate.retrieval.settings import Concept
from curate.validation.batches import FIELDS, question, table
from curate.validation.platforms.mturk import write as write_requester_files


def write(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """`batch.csv`, `template.html`, `calls.json`."""
    rows = [(batch["batch"], item, url) for item, url in addresses.items()]
    calls = {
        "project": {
            "name": f"driftline {batch['batch']}",
            "filename": "template.html",
            "html_template": question(concepts),
            "assignments_per_task": batch["workers"],
            "login_required": True,
        },
        "batch": {
            "name": batch["batch"],
            "filename": "batch.csv",
            "csv_text": table(FIELDS, rows),
            "assignments_per_task": batch["workers"],
            "login_required": True,
            "published": True,
        },
    }
    write_json(out / "calls.json", calls)
    return write_requester_files(batch, addresses, concepts, out)
