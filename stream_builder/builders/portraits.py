"""Portraits of American high-school yearbooks, one step a decade, as Seq-to-Final cuts them [spec, section 1]."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np

from curate.core.errors import BadInput, MissingFile
from curate.core.seeding import rng_for
from stream_builder.lazy_images import PICTURES
from stream_builder.stream import Split, Step, Stream

FIRST, LAST = 1930, 2013
FOLDERS = ("M", "F")  # class 0, class 1
SHARES = (0.8, 0.2)  # train, val of every step but the last
FINAL = (0.4, 0.1, 0.5)  # train, val, test of the last


def portraits(
    folder: Path, size: int = 32, seed: int = 0, fidelity: Literal["clean", "paper-code"] = "clean"
) -> Stream:
    """folder: M/ and F/ with files YEAR_….png; years before 1930 are left out, 2000 to 2013 are one step.

    Images are resized, not cut out, to size × size, in three equal channels, uint8. fidelity "paper-code" records what
    the reference's loader did: images in [0, 1] normalised with 255 × mean and 255 × deviation, which leaves them a
    hundredth of their contrast. Raises MissingFile, BadInput naming a file without a year.
    """
    found: dict[int, list[tuple[str, int, Path]]] = {}
    for label, name in enumerate(FOLDERS):
        if not (folder / name).is_dir():
            raise MissingFile(f"{folder} has no folder {name}.", "Expected M and F with files YEAR_….png.")
        for path in sorted((folder / name).iterdir()):
            if path.suffix.lower() not in PICTURES:
                continue
            year = re.match(r"(\d{4})", path.name)
            if year is None:
                raise BadInput(f"{path} does not begin with a year.", "Expected YEAR_….png.")
            if FIRST <= int(year[1]) <= LAST:
                found.setdefault(min(int(year[1]) // 10 * 10, 2000), []).append((path.name, label, path))
    if not found:
        raise MissingFile(f"{folder} holds no portraits of {FIRST} to {LAST}.", "Expected M/1935_….png and so on.")
    decades = sorted(found)
    steps = []
    for t, decade in enumerate(decades):
        rows = sorted(found[decade])
        y = np.array([label for _, label, _ in rows], np.int64)
        order = rng_for(seed, "portraits", decade).permutation(len(rows))
        shares = FINAL if t == len(decades) - 1 else SHARES
        cuts = np.cumsum([int(s * len(rows) + 1e-9) for s in shares[:-1]])
        splits = {}
        for side, where in zip(("train", "val", "test"), np.split(order, cuts), strict=False):
            if len(where):
                x = np.stack([_read(rows[i][2], size) for i in where.tolist()])
                splits[side] = Split(x, y[where], np.array([rows[i][0] for i in where.tolist()]))
        steps.append(Step(t, f"{decade}s", splits))
    loading = {"normalise": True, "augment": []} if fidelity == "clean" else {"normalise": "squashed", "augment": []}
    facts = {"from": "portraits", "seed": seed, "fidelity": fidelity, "loading": loading}
    return Stream("portraits", steps, ["male", "female"], facts=facts)


def _read(path: Path, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            grey = np.asarray(image.convert("L").resize((size, size), Image.Resampling.BILINEAR))
    except OSError as error:
        raise BadInput(f"{path}: no image ({error}).", "Expected one that decodes.") from None
    return np.repeat(grey[..., None], 3, -1)
