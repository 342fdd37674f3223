"""WebDataset tars named *train* and *test* (or *val*): KEY.jpg (or .png …) and KEY.cls, the label as a number."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from curate.core.errors import BadInput, MissingFile
from stream_builder.datasets import Base, Options, Side
from stream_builder.lazy_images import PICTURES, Encoded, members


def open_tars(place: Path, options: Options) -> Base:
    """Images are decoded when drawn, to `options.size`. Optional: class_names.txt, one name a line."""
    test = sorted(place.glob("*test*.tar")) or sorted(place.glob("*val*.tar"))
    if not test:
        raise MissingFile(f"{place} holds tars *train* and neither *test* nor *val*.", "Expected one of them.")
    sides = [_side(tars, options.size) for tars in (sorted(place.glob("*train*.tar")), test)]
    n_classes = int(max(s.y.max(initial=0) for s in sides)) + 1
    file = place / "class_names.txt"
    names = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    classes = names if len(names) >= n_classes else [str(c) for c in range(n_classes)]
    return Base(place.name, sides[0], sides[1], classes)


def _side(tars: list[Path], size: int) -> Side:
    rows, labels = [], []
    for number, tar in enumerate(tars):
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for name, offset, length in members(tar):
            key, _, kind = name.partition(".")
            found.setdefault(key, {})["picture" if f".{kind.lower()}" in PICTURES else kind] = (offset, length)
        with tar.open("rb") as file:
            for key, parts in found.items():
                if not {"picture", "cls"} <= set(parts):
                    raise BadInput(f"{tar}: the sample {key!r} holds {sorted(parts)}.", "Expected an image and .cls.")
                offset, length = parts["cls"]
                file.seek(offset)
                text = file.read(length).decode("ascii", "replace").strip()
                if not text.isdigit():
                    raise BadInput(f"{tar}: {key}.cls holds {text[:20]!r}.", "Expected a number from 0.")
                labels.append(int(text))
                rows.append((number, *parts["picture"]))
    x = Encoded(tuple(tars), np.array(rows, np.int64).reshape(-1, 3), size, strict=True)
    return Side(x, np.array(labels, np.int64), np.arange(len(labels)))
