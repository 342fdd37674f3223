"""Contact sheets and a table of what prompts retrieve per bucket, without a browser."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import csv_text, write_bytes, write_text
from driftline.curate.core.outside.escaping import no_formula
from driftline.pipelines.prompt_explorer.explorer import Explorer
from driftline.pipelines.prompt_explorer.query import Query
from driftline.pipelines.prompt_explorer.views import View

LABEL = 130  # pixels to the left of a row
SIDE = 80  # pixels of a picture
EDGE, FOOT = 6, 16


def sheets(explorer: Explorer, texts: list[str], concept: str, k: int, out: Path) -> list[dict[str, Any]]:
    """Write `NN.png` for each prompt (a row per bucket, best image on the left) and one `candidates.csv`.

    Returns prompt, picture (the path) and overlap of each.
    """
    rows, written = [], []
    for number, text in enumerate(texts):
        view = explorer.view(Query.parse(text), concept, k)
        write_bytes(out / f"{number:02d}.png", picture(explorer, view, k))
        prompt = " | ".join(text.split("\n"))
        for bucket in view.buckets:
            for rank, shot in enumerate(bucket.shots):
                row = [prompt, bucket.name, rank, shot.id, f"{shot.score:.6f}", " ".join(shot.also)]
                rows.append([no_formula(cell) for cell in row])
        written.append({"prompt": prompt, "picture": str(out / f"{number:02d}.png"), "overlap": view.overlap})
    write_text(out / "candidates.csv", csv_text(("prompt", "bucket", "rank", "id", "score", "also"), rows))
    return written


def picture(explorer: Explorer, view: View, k: int) -> bytes:
    """The sheet of one prompt as a PNG."""
    from PIL import Image, ImageDraw

    side = SIDE
    width = LABEL + k * (side + EDGE) + EDGE
    height = len(view.buckets) * (side + FOOT + EDGE) + EDGE + 24
    sheet = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    head = " + ".join(view.query.prompts) + "".join(f"  - {n}" for n in view.query.negatives)
    draw.text((EDGE, EDGE), head[:200], fill="black")
    for row, bucket in enumerate(view.buckets):
        top = 24 + EDGE + row * (side + FOOT + EDGE)
        draw.text((EDGE, top + side // 2), bucket.name[:24], fill="black")
        for column, shot in enumerate(bucket.shots):
            left = LABEL + column * (side + EDGE)
            with Image.open(io.BytesIO(explorer.thumbnail(shot.id))) as small:
                small.thumbnail((side, side))
                sheet.paste(small, (left + (side - small.width) // 2, top + (side - small.height) // 2))
            draw.text((left, top + side), f"{shot.score:.3f}", fill="black")
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()
