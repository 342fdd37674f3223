"""WebDataset tars, one per step and split: KEY.png, KEY.cls, KEY.json."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from driftline.curate.core.atomic_io import writing
from driftline.stream_builder.export.images import EncodedImage, images
from driftline.stream_builder.stream import Stream


def export(stream: Stream, out: Path) -> dict[str, int]:
    """`step_000_train.tar` …: members of a sample are adjacent, in the stream's order, without time or owner."""
    n = tars = 0
    for (step, split), of_split in groupby(images(stream), lambda image: (image.step.index, image.split)):
        path = out / f"step_{step:03d}_{split}.tar"
        with writing(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content in _members(of_split):
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
                n += name.endswith(".png")
        tars += 1
    return {"images": n, "tars": tars}


def _members(of_split: Iterator[EncodedImage]) -> Iterator[tuple[str, bytes]]:
    for image in of_split:
        facts = {"id": image.id, "label": image.label, "step": image.step.index}
        facts |= {"split": image.split, "time": image.time or 0}
        yield f"{image.key}.png", image.data
        yield f"{image.key}.cls", str(image.label).encode()
        yield f"{image.key}.json", json.dumps(facts, sort_keys=True).encode()
