"""Caffe-style lists: `step_000_train.txt` with lines "path label", and the images."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from driftline.curate.core.atomic_io import write_bytes, write_text
from driftline.stream_builder.export.images import images
from driftline.stream_builder.stream import Stream


def export(stream: Stream, out: Path) -> dict[str, int]:
    """Lists in the stream's order; paths are relative to `out`."""
    lists: dict[str, list[str]] = defaultdict(list)
    for image in images(stream):
        path = f"images/{image.key}.png"
        write_bytes(out / path, image.data)
        lists[f"step_{image.step.index:03d}_{image.split}.txt"].append(f"{path} {image.label}\n")
    for name, lines in lists.items():
        write_text(out / name, "".join(lines))
    write_text(out / "classes.txt", "".join(f"{c}\n" for c in stream.classes))
    return {"images": sum(map(len, lists.values())), "lists": len(lists)}
