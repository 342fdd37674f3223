"""Folders STEP/SPLIT/CLASS/KEY.png: each STEP/SPLIT loads in torchvision's ImageFolder."""

from __future__ import annotations

from pathlib import Path

from curate.core.atomic_io import write_bytes
from stream_builder.export.pictures import folder_of, pictures
from stream_builder.stream import Stream


def export(stream: Stream, out: Path) -> dict[str, int]:
    """PNG files; every class has a folder in every step and split, so that labels are the same everywhere."""
    for step in stream.steps:
        for name in step.splits:
            for label in range(len(stream.classes)):
                (out / f"step_{step.index:03d}" / name / folder_of(stream, label)).mkdir(parents=True, exist_ok=True)
    n = 0
    for p in pictures(stream):
        write_bytes(out / f"step_{p.step.index:03d}" / p.split / folder_of(stream, p.label) / f"{p.key}.png", p.data)
        n += 1
    return {"images": n}
