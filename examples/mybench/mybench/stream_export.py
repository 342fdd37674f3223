import json
from pathlib import Path

import numpy as np

from driftline.ext import Split, Step, Stream, write_text


def text(stream: Stream, out: Path) -> dict[str, int]:
    """One line of JSON per sample: step, split, label, values."""
    lines = [
        json.dumps([step.index, name, label, np.asarray(x).tolist()])
        for step in stream.steps
        for name, split in step.splits.items()
        for x, label in zip(split.x, split.y.tolist(), strict=True)
    ]
    write_text(out / "samples.jsonl", "\n".join(lines))
    return {"samples": len(lines)}


def from_jsonl(source: Path, name: str = "mine") -> Stream:
    """What `text` wrote: an importer."""
    samples = [json.loads(line) for line in (source / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    parts: dict[int, dict[str, Split]] = {}
    for index, split in dict.fromkeys((index, split) for index, split, _, _ in samples):
        rows = [(x, y) for i, s, y, x in samples if (i, s) == (index, split)]
        x, y = (np.array(column) for column in zip(*rows, strict=True))
        parts.setdefault(index, {})[split] = Split(x.astype(np.float32), y)
    classes = [str(label) for label in range(max(y for _, _, y, _ in samples) + 1)]
    return Stream(name, [Step(index, str(index), splits) for index, splits in parts.items()], classes)
