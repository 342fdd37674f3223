"""Prolific's task builder: a data set with one row per image, and the question as data.

Participants see every column, so there are only two: the image, and the batch and item to which the answers belong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import write_json, write_text
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import NONE, marketplace_csv


def write(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Write `dataset.csv`, the same rows as `dataset.jsonl`, and `instructions.json`."""
    rows = [(f"{batch['batch']}:{item}", url) for item, url in addresses.items()]
    write_text(out / "dataset.csv", marketplace_csv(("item", "image_url"), rows))
    lines = [json.dumps({"item": item, "image_url": url}, ensure_ascii=False) for item, url in rows]
    write_text(out / "dataset.jsonl", "".join(line + "\n" for line in lines))
    options = [{"label": c.option, "value": c.name} for c in concepts] + [{"label": "None of the above", "value": NONE}]
    sensitive = [{"label": "Yes", "value": "yes"}, {"label": "No", "value": "no"}]
    write_json(
        out / "instructions.json",
        [
            {
                "name": "labels",
                "type": "multiple_choice",
                "description": "Select one or more elements in this image; “None of the above” stands alone.",
                "options": options,
                "answer_limit": len(options),
            },
            {
                "name": "sensitive",
                "type": "multiple_choice",
                "description": "Does this image contain sensitive content (pornography, abuse, hate speech, …)?",
                "options": sensitive,
                "answer_limit": 1,
            },
        ],
    )
    return {"images": len(rows), "answers": len(rows) * batch["workers"]}
