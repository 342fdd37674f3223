"""WebDataset tars, one a step and split: KEY.png, KEY.cls, KEY.json."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from curate.core.atomic_io import writing
from stream_builder.export.pictures import Picture, pictures
from stream_builder.stream import Stream


def export(stream: Stream, out: Path) -> dict[str, int]:
    """`step_000_train.tar` …: members adjacent, in the stream's order, without time or owner."""
    n = tars = 0
    for (step, split), some in groupby(pictures(stream), lambda p: (p.step.index, p.split)):
        path = out / f"step_{step:03d}_{split}.tar"
        with writing(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content in _members(some):
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
                n += name.endswith(".png")
        tars += 1
    return {"images": n, "tars": tars}


def _members(some: Iterator[Picture]) -> Iterator[tuple[str, bytes]]:
    for p in some:
        side = {"id": p.id, "label": p.label, "step": p.step.index, "split": p.split, "time": p.time or 0}
        yield f"{p.key}.png", p.data
        yield f"{p.key}.cls", str(p.label).encode()
        yield f"{p.key}.json", json.dumps(side, sort_keys=True).encode()
