"""Folders STEP/SPLIT/CLASS/KEY.png: torchvision's ImageFolder loads each STEP/SPLIT, `datasets` the whole folder."""

from __future__ import annotations

from pathlib import Path

from driftline.curate.core.atomic_io import write_bytes, write_text
from driftline.curate.core.outside.escaping import image_folders_readme
from driftline.stream_builder.export.images import class_folder, images
from driftline.stream_builder.stream import Stream


def export(stream: Stream, out: Path) -> dict[str, int]:
    """PNG files. Every class has a folder in every step and split, so that ImageFolder gives the same labels."""
    for step in stream.steps:
        for name in step.splits:
            for label in range(len(stream.classes)):
                (out / f"step_{step.index:03d}" / name / class_folder(stream, label)).mkdir(parents=True, exist_ok=True)
    n = 0
    for image in images(stream):
        folder = out / f"step_{image.step.index:03d}" / image.split / class_folder(stream, image.label)
        write_bytes(folder / f"{image.key}.png", image.data)
        n += 1
    splits = {f"step_{s.index:03d}_{name}": f"step_{s.index:03d}/{name}" for s in stream.steps for name in s.splits}
    write_text(out / "README.md", image_folders_readme(splits))
    return {"images": n}
