"""Caffe-style lists: `step_000_train.txt` with lines "path label", and the images that they name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from curate.core.atomic_io import write_bytes, write_text
from stream_builder.export.pictures import pictures
from stream_builder.stream import Stream


def export(stream: Stream, out: Path) -> dict[str, int]:
    """Lists in the stream's own order; paths are relative to `out`."""
    lists: dict[str, list[str]] = defaultdict(list)
    for p in pictures(stream):
        path = f"images/{p.key}.png"
        write_bytes(out / path, p.data)
        lists[f"step_{p.step.index:03d}_{p.split}.txt"].append(f"{path} {p.label}\n")
    for name, lines in lists.items():
        write_text(out / name, "".join(lines))
    write_text(out / "classes.txt", "".join(f"{c}\n" for c in stream.classes))
    return {"images": sum(map(len, lists.values())), "lists": len(lists)}
