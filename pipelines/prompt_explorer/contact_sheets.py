"""Contact sheets and a table, for those without a browser: what prompts bring, per bucket."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from curate.core.atomic_io import csv_text, write_bytes, write_text
from pipelines.prompt_explorer.explorer import THUMBNAIL, Asked, Explorer, View

LABEL = 90  # pixels to the left of a row
EDGE, FOOT = 6, 16


def sheets(explorer: Explorer, texts: list[str], concept: str, k: int, out: Path) -> list[dict[str, Any]]:
    """Write `NN.png` (a row a bucket, best left) for each prompt and `candidates.csv` for all; returns what was
    written: prompt, picture, overlap."""
    rows, made = [], []
    for number, text in enumerate(texts):
        view = explorer.look(Asked.of(text), concept, k)
        write_bytes(out / f"{number:02d}.png", picture(explorer, view, k))
        told = " | ".join(text.split("\n"))
        for bucket in view.buckets:
            for rank, shot in enumerate(bucket.shots):
                row = [told, bucket.name, rank, shot.id, f"{shot.score:.6f}", " ".join(shot.also)]
                rows.append([guarded(cell) for cell in row])
        made.append({"prompt": told, "picture": str(out / f"{number:02d}.png"), "overlap": view.overlap})
    write_text(out / "candidates.csv", csv_text(("prompt", "bucket", "rank", "id", "score", "also"), rows))
    return made


def guarded(cell: Any) -> Any:
    """A cell that a spreadsheet would run as a formula starts with an apostrophe."""
    return "'" + cell if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell


def picture(explorer: Explorer, view: View, k: int) -> bytes:
    """One prompt's sheet as a PNG."""
    from PIL import Image, ImageDraw

    side = THUMBNAIL // 2
    width = LABEL + k * (side + EDGE) + EDGE
    height = len(view.buckets) * (side + FOOT + EDGE) + EDGE + 24
    sheet = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    head = " + ".join(view.asked.prompts) + "".join(f"  - {n}" for n in view.asked.negatives)
    draw.text((EDGE, EDGE), head[:200], fill="black")
    for row, bucket in enumerate(view.buckets):
        top = 24 + EDGE + row * (side + FOOT + EDGE)
        draw.text((EDGE, top + side // 2), bucket.name[:14], fill="black")
        for column, shot in enumerate(bucket.shots):
            left = LABEL + column * (side + EDGE)
            with Image.open(io.BytesIO(explorer.thumbnail(shot.id))) as small:
                small.thumbnail((side, side))
                sheet.paste(small, (left + (side - small.width) // 2, top + (side - small.height) // 2))
            draw.text((left, top + side), f"{shot.score:.3f}", fill="black")
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()
