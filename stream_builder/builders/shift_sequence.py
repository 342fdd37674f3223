"""A dataset and a sequence of shifts → a stream: `C:L:R` has a source step and three target steps. Also a dataset as
one step, and portraits, one step a decade."""

import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile
from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign.images import IMAGE_SUFFIXES, as_rgb, open_image
from driftline.stream_builder.builders import sampling
from driftline.stream_builder.builders.sampling import Composition
from driftline.stream_builder.datasets import Dataset, Samples, open_dataset
from driftline.stream_builder.shifts.base import ORDER, Labels, Shift
from driftline.stream_builder.shifts.grammar import PlannedStep, Rendering, accumulated, canonical, parse, sizes_of
from driftline.stream_builder.stream import SPLITS, Array, Split, Step, Stream

TEST_SIZE = 5000
PUBLISHED = "as published"
LEVELS = 64  # different amounts of a growing shift within a step
PART = 1 << 17  # bytes of images that are shifted at a time: they stay in the cache
FIRST, LAST = 1930, 2013
FOLDERS = ("M", "F")  # class 0, class 1
SHARES = (0.8, 0.2)  # train, val of all steps except the last
FINAL = (0.4, 0.1, 0.5)  # train, val, test of the last step


def compose(
    dataset: Dataset | str | Path,
    sequence: str,
    sizes: Sequence[int] | None = None,
    test_size: int = TEST_SIZE,
    seed: int = 0,
    composition: Composition | None = None,
    workers: int = 1,
    oracle: bool = True,
) -> Stream:
    """A stream with a source step and one step for each part of the sequence; shifts accumulate.

    dataset: opened, or what `open_dataset` takes. sequence: see `shifts.grammar`. sizes: samples of each
    step, train and val together (None: the paper's). test_size: test samples of the last step. workers: steps, test
    samples and oracle rendered in parallel; the result is the same. oracle: also draw as many samples of the last
    step's distribution as all steps have, including those of the last step, if the dataset is large enough.

    Samples are drawn without replacement within a step; the draws do not depend on shifts of images and labels.

    Raises BadConfig if sizes and steps disagree, IncompatibleStream for a shift that does not fit the dataset,
    Shortage if a class has too few images; and what `parse` and `open_dataset` raise.
    """
    composition = composition or Composition()
    steps = parse(sequence)
    sequence = canonical(steps)
    sizes = sizes_of(sequence) if sizes is None else sizes
    if len(sizes) != len(steps):
        raise BadConfig(
            f"--sizes has {len(sizes)} numbers for {len(steps)} steps.",
            "Expected one per step, including the source step.",
        )
    dataset = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
    renderings = accumulated(steps, composition.fidelity == "paper-code")
    counts = [rendering.counts for rendering in renderings]
    last = len(steps) - 1
    _check(dataset, counts[last])
    overlap, drawn = _draws(dataset, counts, sizes, test_size, composition, seed)
    published = overlap == PUBLISHED
    if published and any(rendering.starts for rendering in renderings):  # what grows must not follow the classes
        drawn = [
            {k: rng_for(seed, "order", t, k).permutation(v) for k, v in part.items()} for t, part in enumerate(drawn)
        ]

    def render(t: int, side: str, positions: Array, rng: np.random.Generator) -> Split:
        samples = dataset.test if side == "test" else dataset.train
        ids = np.char.add(f"{side}-", samples.index[positions].astype(np.str_))  # both sides are numbered from 0
        return _render(samples, positions, ids, renderings[t], len(dataset.classes), rng)

    def training(t: int) -> dict[str, Split]:
        rng = rng_for(seed, "render", t)
        return {name: render(t, "train", rows, rng) for name, rows in drawn[t].items() if len(rows)}

    def test() -> dict[str, Split]:
        rng = rng_for(seed, "render test", last)
        return {"test": render(last, "test", drawn[last + 1]["test"], rng)} if test_size else {}

    def oracle_step() -> Step | None:
        if not oracle:
            return None
        share = sampling.class_shares(dataset, last, counts[last], counts[last], composition)
        rows = sampling.draw_oracle(
            dataset, drawn[last], sum(sizes), share, composition=composition, seed=seed, published=published
        )
        if rows is None:
            return None
        rng = rng_for(seed, "render oracle")
        return Step(last + 1, "oracle", {name: render(last, "train", rows[name], rng) for name in rows})

    with ThreadPoolExecutor(workers) as pool:  # the longest first, so that the workers end at about the same time
        upper, tests = pool.submit(oracle_step), pool.submit(test)
        trains = [pool.submit(training, t) for t in reversed(range(len(steps)))][::-1]
    splits = [train.result() for train in trains]
    splits[last] |= tests.result()
    rendered = [Step(t, _name(t, step), splits[t]) for t, step in enumerate(steps)]
    facts: dict[str, Any] = {"from": "shifts", "base": dataset.name, "sequence": sequence}
    facts |= {"sizes": list(sizes), "seed": seed, "fidelity": composition.fidelity}
    facts |= {"draws": "published" if published else "own", "overlap": overlap, "loading": composition.loading()}
    facts["shared"] = sampling.overlap_counts(drawn[: len(steps)])
    name = f"{dataset.name}-{sequence}"
    return Stream(name, rendered, dataset.classes, facts=facts, oracle=upper.result())


def _name(t: int, step: PlannedStep) -> str:
    name = ",".join("~" * grows + shift.code for shift, grows in zip(step.shifts, step.grows, strict=True))
    return f"{t} {name or 'source'}"


def _draws(
    dataset: Dataset, counts: Sequence[Mapping[Shift, float]], sizes: Sequence[int], test_size: int,
    composition: Composition, seed: int,
) -> tuple[str, list[dict[str, Array]]]:  # fmt: skip
    """The overlap that was used (PUBLISHED: the paper's draws), and the positions of each step and then of the test."""
    asked = composition.draws == "published" or (composition.draws == "auto" and composition.fidelity == "paper-code")
    if asked and (published := sampling.published_draws(dataset, sizes, test_size)) is not None:
        return PUBLISHED, published
    if composition.draws == "published":
        raise BadConfig(
            f"{dataset.name} has no published samples for these sizes.", "Expected *draws*.npz in its folder."
        )
    shares = [sampling.class_shares(dataset, t, count, counts[-1], composition) for t, count in enumerate(counts)]
    overlap, drawn = sampling.draw_steps(dataset, sizes, shares, composition, seed)
    counts_of_test = sampling.quotas(
        test_size, shares[-1], rng_for(seed, "test quotas"), composition.fidelity == "paper-code"
    )
    by_class = sampling.draw_positions(dataset.test, counts_of_test, rng_for(seed, "test", len(counts) - 1))
    drawn.append({"test": rng_for(seed, "test order").permutation(np.concatenate(by_class))})
    return overlap, drawn


def _check(dataset: Dataset, total: Mapping[Shift, float]) -> None:
    """Raise IncompatibleStream for shifts of images if the dataset has no images."""
    for shift in total:
        if dataset.train.x.dtype != np.uint8 and shift.acts_on not in ("sampling", "label"):
            raise IncompatibleStream(
                f"{shift.code} changes images; {dataset.name} has features of dtype {dataset.train.x.dtype}.",
                "Expected uint8 images, or only shifts of labels and sampling.",
            )


def _render(
    samples: Samples, positions: Array, ids: Array, rendering: Rendering, n_classes: int, rng: np.random.Generator
) -> Split:
    """The samples at `positions` after every shift of a rendering, each applied once, in the order of ORDER."""
    x, y = samples.x, samples.y[positions]
    original, n, counts = y, len(y), rendering.counts
    ordered = sorted(counts, key=lambda shift: ORDER.index(shift.acts_on))
    on_images = [shift for shift in ordered if shift.acts_on not in ("sampling", "label")]

    def shifted(low: int, high: int, shifts: Sequence[Shift]) -> Any:
        if x is not samples.x:
            part = x[low:high]
        elif isinstance(x, np.ndarray):  # they are shifted for the first time; `take` takes half the time
            part = np.take(x, positions[low:high], axis=0)
        else:
            part = x[positions[low:high]]
        for shift in shifts:
            if shift in rendering.starts:
                part = _grow(
                    shift, part, original, rendering.starts[shift], after=counts[shift], n_classes=n_classes, rng=rng
                )
            else:
                part, _ = shift.apply(part, original[low:high], counts[shift], n_classes, rng)
        return part

    for in_parts, together in groupby(on_images, lambda shift: shift.by_image and shift not in rendering.starts):
        shifts = list(together)
        if in_parts:
            out = np.empty((n, *x.shape[1:]), np.uint8)
            size = max(1, PART // math.prod(x.shape[1:]))
            for low in range(0, n, size):
                out[low : low + size] = shifted(low, low + size, shifts)
            x = out
        else:
            x = shifted(0, n, shifts)
    x = np.ascontiguousarray(shifted(0, n, ()))
    for shift in ordered:
        if shift.acts_on == "label":
            _, y = shift.apply(x, y, counts[shift], n_classes, rng)
    return Split(x, y, ids)


def _grow(
    shift: Shift, x: Any, y: Labels, before: float, after: float, n_classes: int, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Sample i of n gets the shift `before` + (i + 1)/n × (`after` − `before`) times, rounded up to one of LEVELS
    amounts."""
    n = len(x)
    out = np.array(x)
    level = np.ceil((np.arange(n) + 1) / n * LEVELS) / LEVELS
    for value in np.unique(level).tolist():
        rows = level == value
        out[rows] = shift.apply(out[rows], y[rows], before + value * (after - before), n_classes, rng)[0]
    return out


def from_dataset(dataset: Dataset) -> Stream:
    """One step with train and test splits, in the order of the files."""
    sides = {"train": dataset.train, "test": dataset.test}
    splits = {name: Split(s.x, s.y, np.array([f"{name}-{i}" for i in s.index.tolist()])) for name, s in sides.items()}
    is_text = isinstance(dataset.train.x, np.ndarray) and dataset.train.x.dtype.kind == "U"
    facts = {"from": "texts" if is_text else "dataset", "base": dataset.name}
    return Stream(dataset.name, [Step(0, "all", splits)], dataset.classes, facts=facts)


def portraits(
    folder: Path, size: int = 32, seed: int = 0, fidelity: Literal["clean", "paper-code"] = "clean"
) -> Stream:
    """folder: M/ and F/ with files YEAR_….png; years before 1930 are ignored, 2000 to 2013 are one step.

    Images are resized, not cropped, to size × size, uint8, with three equal channels. fidelity "paper-code" records
    what the reference's loader did: images in [0, 1] normalised with 255 × mean and 255 × standard deviation, which
    reduces contrast to a hundredth. Raises MissingFile, and BadInput naming a file without a year.
    """
    decades: dict[int, list[tuple[str, int, Path]]] = {}  # decade → file name, label, path
    for label, name in enumerate(FOLDERS):
        if not (folder / name).is_dir():
            raise MissingFile(f"{folder} has no folder {name}.", "Expected M and F with files YEAR_….png.")
        for path in (path for path in (folder / name).iterdir() if path.suffix.lower() in IMAGE_SUFFIXES):
            if (year := re.match(r"\d{4}", path.name)) is None:
                raise BadInput(f"{path} does not begin with a year.", "Expected YEAR_….png.")
            if FIRST <= int(year[0]) <= LAST:
                decades.setdefault(min(int(year[0]) // 10 * 10, 2000), []).append((path.name, label, path))
    if not decades:
        raise MissingFile(f"{folder} has no portraits from {FIRST} to {LAST}.", "Expected files such as M/1935_….png.")
    steps = []
    for t, decade in enumerate(sorted(decades)):
        rows = sorted(decades[decade])
        ids, y = np.array([file for file, _, _ in rows]), np.array([label for _, label, _ in rows], np.int64)
        order = rng_for(seed, "portraits", decade).permutation(len(rows))
        shares = FINAL if t == len(decades) - 1 else SHARES
        parts = np.split(order, np.cumsum([int(s * len(rows) + 1e-9) for s in shares[:-1]]))
        splits = {
            name: Split(np.stack([_read(rows[i][2], size) for i in part.tolist()]), y[part], ids[part])
            for name, part in zip(SPLITS, parts, strict=False)
            if len(part)
        }
        steps.append(Step(t, f"{decade}s", splits))
    loading = {"normalise": True, "augment": []} if fidelity == "clean" else {"normalise": "squashed", "augment": []}
    facts = {"from": "portraits", "seed": seed, "fidelity": fidelity, "loading": loading}
    return Stream("portraits", steps, ["male", "female"], facts=facts)


def _read(path: Path, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    from PIL import Image

    with open_image(path, path) as image:
        grey = np.asarray(as_rgb(image).convert("L").resize((size, size), Image.Resampling.BILINEAR))
    return np.repeat(grey[..., None], 3, -1)
