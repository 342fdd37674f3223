"""CLEAR-10 and CLEAR-100 as their authors publish them → a stream with one step per bucket [CLEAR].

Data: https://clear-benchmark.github.io; zip files at huggingface.co/datasets/elvishelvis6. Avalanche 0.6.0 reads the
new layout wrongly: each of its experiences holds all buckets.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from driftline.curate.core.atomic_io import sha256_file
from driftline.curate.core.errors import BadConfig, IntegrityError
from driftline.curate.core.seeding import time_order
from driftline.curate.foreign.documents import sums_of
from driftline.curate.foreign.images import IMAGE_SUFFIXES
from driftline.curate.foreign.names import fault, inside, is_count
from driftline.stream_builder.importers.clear_layouts import AGAIN, Part, is_old, read_new, read_old
from driftline.stream_builder.lazy_images import LazyImages, from_files, join
from driftline.stream_builder.splitting import drawn, numbered
from driftline.stream_builder.stream import Split, Step, Stream

ORIGIN = {
    "source": "https://clear-benchmark.github.io",
    "licence": "Creative Commons licence of each photo, as in YFCC100M; the authors name none for the lists",
    "cite": "Lin, Shi, Pathak, Ramanan: The CLEAR Benchmark: Continual LEArning on Real-World Imagery. NeurIPS 2021, "
    "Datasets and Benchmarks",
}
ALL_BUCKETS = {str(number) for number in range(11)}


def from_clear(
    path: Path,
    features: str = "images:224",
    split: int = 0,
    first_bucket: Literal["auto", "unlabelled", "step"] = "auto",
    seed: int = 0,
) -> Stream:
    """Read CLEAR-10 or CLEAR-100 as they are published.

    A step for each bucket, in order of upload time if the metadata is there. An incomplete download, files of another
    version, a photo in the wrong bucket and pickles with code raise an error.

    path DIR: The unpacked download, old or new layout.
    features NAME: images:SIZE, decoded on access; or published vectors: moco_b0, …

    Raises MissingFile, BadInput, IntegrityError and BadConfig: for missing images, for a photo in two places or in a
    bucket of another time, for features, class lists or splits of another version, and for checksums of a file
    SHA256SUMS that differ.
    """
    kind, _, size = features.partition(":")
    if kind == "images" and (not is_count(size) or not 4 <= int(size) <= 8192):
        raise BadConfig(f"--features is {features!r}.", "Expected images:SIZE with SIZE from 4 to 8192, or a name.")
    edge = int(size) if kind == "images" else None
    old = is_old(path)
    _check_sums(path)
    parts, classes, splits = (read_old if old else read_new)(path, None if edge else features)
    if splits and not 0 <= split < len(splits):
        raise BadConfig(f"--split is {split}.", f"{path} has the splits 0 … {len(splits) - 1}.")
    names = list(dict.fromkeys(part.bucket for part in parts))
    if all(map(is_count, names)):
        names.sort(key=int)
    _check_places(parts)
    timed = all(time is not None for part in parts for time in part.time)
    if timed:
        _check_order(parts, names)
    _check_widths(parts)
    is_prior = "0" in names and (first_bucket == "unlabelled" or (first_bucket == "auto" and set(names) == ALL_BUCKETS))
    users = numbered(np.array([user for part in parts for user in part.user], np.str_))
    with_users = any(user for part in parts for user in part.user)
    starts = dict(zip(map(id, parts), np.cumsum([0, *(len(part.y) for part in parts)]), strict=False))
    labelled = {id_ for part in parts for id_ in part.ids}
    steps: list[Step] = []
    prior: list[Any] = []
    for bucket in names:
        of_bucket = [part for part in parts if part.bucket == bucket]
        further = None if edge is None else _unlabelled(path, bucket, labelled, edge)
        if bucket == "0" and is_prior:
            prior = [_samples(part, np.arange(len(part.y)), edge) for part in of_bucket]
            prior += [] if further is None else [further]
            continue
        by_side: dict[str, Split] = {}
        for part in of_bucket:
            for side, rows in _sides(part, split).items():
                time = np.array(part.time if timed else [0] * len(part.y), np.int64)
                rows = rows[time_order(time[rows], np.array(part.ids, np.str_)[rows], seed)]
                by_side[side] = Split(
                    _samples(part, rows, edge),
                    np.array(part.y, np.int64)[rows],
                    np.array(part.ids, np.str_)[rows],
                    time[rows] if timed else None,
                    users[starts[id(part)] + rows] if with_users else None,
                    part.test_in[rows] if part.test_in is not None and len(splits) > 1 else None,
                )
        steps.append(Step(len(steps), bucket, by_side, further))
    if not is_prior and edge is not None and "0" not in names:
        further = _unlabelled(path, "0", labelled, edge)
        prior = [] if further is None else [further]
    facts = {"from": "clear", "layout": "old" if old else "new", "features": features, **ORIGIN, **drawn(seed)}
    facts |= {"split": splits[split]} if splits else {}
    before = None if not prior else join(prior) if edge is not None else np.concatenate(prior)
    return Stream(path.resolve().name, steps, classes, before, facts=facts)


def _check_sums(folder: Path) -> None:
    """Raise IntegrityError if a file of SHA256SUMS, if there is one, differs."""
    sums = folder / "SHA256SUMS"
    if not sums.is_file():
        return
    for name, digest in sums_of(sums.read_bytes(), sums, AGAIN).items():
        file = inside(folder, name, sums)
        if not file.is_file() or sha256_file(file) != digest:
            raise IntegrityError(f"{file} is not the file that {sums} describes.", "", AGAIN)


def _check_places(parts: Sequence[Part]) -> None:
    """Raise IntegrityError for a photo that is listed twice: tests would be on training samples."""
    seen: dict[str, Part] = {}
    for part in parts:
        for id_ in part.ids:
            if id_ in seen:
                raise IntegrityError(
                    f"The photo {id_} is in {seen[id_].source} and in {part.source}.",
                    "Expected each photo in one bucket, class and part.",
                    AGAIN,
                )
            seen[id_] = part


def _check_order(parts: Sequence[Part], names: Sequence[str]) -> None:
    """Raise IntegrityError unless each bucket's photos were uploaded before those of the next bucket."""

    def times(bucket: str) -> tuple[np.ndarray[Any, Any], list[str]]:
        of_bucket = [part for part in parts if part.bucket == bucket]
        return np.concatenate([np.array(p.time, np.int64) for p in of_bucket]), [i for p in of_bucket for i in p.ids]

    for before, after in pairwise(names):
        (early, early_ids), (late, late_ids) = times(before), times(after)
        if early.max() > late.min():
            misplaced_late = late.min() < np.median(early)
            id_, bucket = (late_ids[late.argmin()], after) if misplaced_late else (early_ids[early.argmax()], before)
            day = np.datetime64(int(late.min() if misplaced_late else early.max()), "s").astype("datetime64[D]")
            raise IntegrityError(
                f"The photo {id_} of bucket {bucket} was uploaded on {day}, "
                f"{'before the last' if misplaced_late else 'after the first'} photo of bucket "
                f"{before if misplaced_late else after}.",
                "Expected buckets that follow each other in time.",
                AGAIN,
            )


def _check_widths(parts: Sequence[Part]) -> None:
    widths = {part.vectors.shape[1]: part for part in parts if part.vectors is not None}
    if len(widths) > 1:
        first, other = list(widths)[:2]
        raise IntegrityError(
            f"The features of bucket {widths[other].bucket} have {other} numbers, others {first}.",
            "Expected files of one version.",
            AGAIN,
        )


def _sides(part: Part, split: int) -> dict[str, np.ndarray[Any, Any]]:
    """Side → rows of the part."""
    rows = np.arange(len(part.y))
    if part.is_test is not None or part.test_in is None:
        return {"test" if part.is_test else "train": rows}
    test = part.test_in[:, split]
    sides = {"train": rows[~test], "test": rows[test]}
    return {side: chosen for side, chosen in sides.items() if len(chosen)}


def _samples(part: Part, rows: np.ndarray[Any, Any], edge: int | None) -> Any:
    """Features or lazy images of some rows. Raises MissingFile with the number of images that are not there."""
    if edge is None:
        assert part.vectors is not None
        return part.vectors[rows]
    files: list[Path] = []
    folders: dict[str, Path] = {}
    for row in rows.tolist():
        folder, _, name = part.paths[row].rpartition("/")
        if folder not in folders:
            folders[folder] = inside(part.root, folder, part.source) if folder else part.root
        if why := fault(name):
            raise IntegrityError(f"{part.source} names the file {name[:200]!r}: {why}.", "", AGAIN)
        files.append(folders[folder] / name)
    return from_files(files, edge, part.source)


def _unlabelled(path: Path, bucket: str, labelled: set[str], edge: int) -> LazyImages | None:
    """The images of all_images/BUCKET that have no label anywhere, in name order; None if there are none."""
    folders = [folder for root in (path, path / "train") if (folder := root / "all_images" / bucket).is_dir()]
    files = [file for folder in folders for file in sorted(folder.iterdir()) if file.suffix.lower() in IMAGE_SUFFIXES]
    files = [file for file in files if file.stem not in labelled]
    return from_files(files, edge, path) if files else None
