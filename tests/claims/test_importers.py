"""Promise: the order of files, of rows and of ids decides nothing in an imported stream, the names of classes are those
of the data, and the seed draws what the data does not say.

Random labels whose ids begin with their class, and years as times: where ids ordered equal times, a classifier that
looks at no sample was right on .978 of them. Every importer is found in its registry.
"""

import json
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.helpers import saved
from support.worlds import across_seeds, permuted

from driftline.stream_builder.importers import IMPORTERS
from driftline.stream_builder.stream import Stream

YEARS = (2012, 2013, 2015)
EACH = 40  # samples of a class and year
CLASSES = ("tram", "bus")  # as the files name them: not in the order of the alphabet
Row = tuple[int, str, int]  # year, class, number
Built = tuple[Path, dict[str, Any]]  # what an importer is called with


@cache
def picture() -> bytes:
    return saved(Image.new("RGB", (4, 4)), "PNG")


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture())


def clear(folder: Path, rows: list[Row]) -> Built:
    """The old layout without metadata: nothing is known of the order within a bucket."""
    listed: dict[tuple[str, str], list[str]] = {}
    for year, c, i in rows:
        name = f"labeled_images/{year}/{c}/{c}{year}{i:03d}.png"
        put(folder / name)
        for part in ("all", "test" if i % 4 == 0 else "train"):
            listed.setdefault((str(year), part), []).append(f"{name} {CLASSES.index(c)}\n")
    training = folder / "training_folder"
    for (year_, part), lines in listed.items():
        place = training / ("filelists" if part == "all" else "testset_ratio_0.3/split_0") / year_ / f"{part}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(lines))
    (training / "bucket_indices.json").write_text(json.dumps([str(year) for year in YEARS]))
    (folder / "class_names.txt").write_text("\n".join(CLASSES))
    return folder, {"features": "images:8"}


def folder_by_time(folder: Path, rows: list[Row]) -> Built:
    for year, c, i in rows:
        put(folder / c / str(year) / f"{i:03d}.png")
    return folder, {"size": 8}


def hub(folder: Path, rows: list[Row]) -> Built:
    columns = {
        "text": [f"{c} {i}" for _, c, i in rows],
        "topic": [c for _, c, _ in rows],
        "when": [y for y, _, _ in rows],
    }
    pq.write_table(pa.table(columns), folder / "all.parquet")
    return folder, {"time": "when", "label": "topic"}


def tic(folder: Path, rows: list[Row]) -> Built:
    uids = {row: f"{row[0]}{CLASSES.index(row[1])}{row[2]:027x}" for row in rows}
    np.save(folder / "x.npy", np.array([[i] for _, _, i in rows], np.float32))
    lines = ["uid,label", *(f"{uids[row]},{row[1]}" for row in rows)]
    (folder / "mine.csv").write_text("\n".join(lines))
    lists = {str(year): [uids[row] for row in rows if row[0] == year] for year in YEARS}
    (folder / "tic_year2uids.json").write_text(json.dumps(lists))
    return folder / "tic_year2uids.json", {"table": folder / "mine.csv", "features": folder / "x.npy"}


def wild_time(folder: Path, rows: list[Row]) -> Built:
    content = {
        year: {
            side: {
                "headline": np.array([f"{c} {i}" for y, c, i in rows if y == year and (i % 4 == 0) == side]),
                "category": np.array([CLASSES.index(c) for y, c, i in rows if y == year and (i % 4 == 0) == side]),
            }
            for side in (0, 1)
        }
        for year in YEARS
    }
    (folder / "huffpost.pkl").write_bytes(pickle.dumps(content))
    return folder / "huffpost.pkl", {}


def wilds(folder: Path, rows: list[Row]) -> Built:
    lines = ["split,category,year,filename"]
    for year, c, i in rows:
        name = f"{c}{year}{i:03d}.png"
        put(folder / "train" / name)
        lines.append(f"{'test' if i % 4 == 0 else 'train'},{c},{year},{name}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    return folder, {"size": 8}


TIED: dict[str, Callable[[Path, list[Row]], Built]] = {
    "clear": clear, "folder-by-time": folder_by_time, "hub": hub, "tic": tic, "wild-time": wild_time, "wilds": wilds,
}  # fmt: skip
ROW_IS_ID = {"hub", "wild-time"}  # these formats have no ids: the place in the file names a sample
OWN_SPLIT = {"clear", "wild-time", "wilds"}  # the data says which samples are tests
ROWS: list[Row] = [(year, c, i) for year in YEARS for c in CLASSES for i in range(EACH)]


def written(name: str, folder: Path, rows: list[Row]) -> Built:
    folder.mkdir()
    return TIED[name](folder, rows)


def imported(name: str, folder: Path, rows: list[Row]) -> Stream:
    path, options = written(name, folder, rows)
    return IMPORTERS[name](path, **options)


def class_of(name: str, id_: str, x: Any) -> str:
    """What the file says of a sample."""
    if name == "tic":
        return CLASSES[int(id_[4])]
    return next(c for c in CLASSES if c in (str(x) if name in ROW_IS_ID else id_))


def repeated(stream: Stream) -> tuple[float, float]:
    """How often a training sample has the label of the one before, less what chance gives; its standard deviation."""
    again, expected, pairs = 0, 0.0, 0
    for step in stream.steps:
        y = step["train"].y
        counts, n = np.bincount(y), len(y)
        again += int((y[1:] == y[:-1]).sum())
        expected += (n - 1) * float((counts * (counts - 1)).sum()) / (n * (n - 1))
        pairs += n - 1
    return (again - expected) / pairs, 0.5 / pairs**0.5


@pytest.mark.parametrize("name", IMPORTERS)
def test_an_importer_makes_no_label_correlation_of_file_order_or_ids(name: str, tmp_path: Path) -> None:
    """Ids and rows are sorted by class. One in 16,000 draws would fail."""
    stream = imported(name, tmp_path / "data", ROWS)
    excess, deviation = repeated(stream)
    assert abs(excess) < 4 * deviation
    assert "random order, seed 0" in stream.ties_text() or (stream.ties() is None and name == "clear")


@pytest.mark.parametrize("name", IMPORTERS)
def test_files_in_any_order_give_the_same_stream_and_classes_by_name(name: str, tmp_path: Path) -> None:
    """By id where the format has ids, else the same samples in another draw."""
    first = imported(name, tmp_path / "first", ROWS)
    for k, rows in enumerate(permuted(ROWS, name)):
        other = imported(name, tmp_path / str(k), rows)
        assert list(other.classes) == list(first.classes)
        for a, b in zip(first.steps, other.steps, strict=True):
            assert set(a.splits) == set(b.splits)
            for side in a.splits:
                if name not in ROW_IS_ID:
                    assert a[side].ids.tolist() == b[side].ids.tolist()
                    assert a[side].y.tolist() == b[side].y.tolist()
                elif name == "wild-time":  # the file says the side; it is drawn for hub
                    assert sorted(a[side].x.tolist()) == sorted(b[side].x.tolist())


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_sample_has_the_class_that_its_file_names(name: str, tmp_path: Path) -> None:
    stream = imported(name, tmp_path / "data", next(permuted(ROWS, name)))
    if name == "wild-time":  # numbers, whose names are known: 0 and 1 are used
        assert list(stream.classes)[:2] == ["BLACK VOICES", "BUSINESS"]
    else:  # clear has a file of names
        assert list(stream.classes) == (list(CLASSES) if name == "clear" else sorted(CLASSES))
    names = list(CLASSES) if name == "wild-time" else stream.classes
    for step in stream.steps:
        for split in step.splits.values():
            x = split.x if name in ROW_IS_ID else split.y
            said = [class_of(name, id_, value) for id_, value in zip(split.ids.tolist(), x.tolist(), strict=True)]
            assert [names[label] for label in split.y.tolist()] == said


@pytest.mark.parametrize("name", IMPORTERS)
def test_the_seed_of_an_importer_draws_what_the_data_does_not_say(name: str, tmp_path: Path) -> None:
    """The order within a year; and which samples are tests, each of a year and class equally likely."""
    path, options = written(name, tmp_path / "data", ROWS)
    streams = [IMPORTERS[name](path, **options, seed=seed) for seed in range(20)]
    whole = [step.everything() for step in streams[0].steps]
    cells = {i: (t, y) for t, s in enumerate(whole) for i, y in zip(s.ids.tolist(), s.y.tolist(), strict=True)}

    def early(seed: int) -> list[str]:
        orders = [step["train"] if name in OWN_SPLIT else step.everything() for step in streams[seed].steps]
        return [id_ for split in orders for id_ in split.ids[: len(split) // 2].tolist()]

    of_order = streams[0].flat("train").ids.tolist() if name in OWN_SPLIT else list(cells)
    across_seeds(early, of_order, strata={id_: cells[id_][0] for id_ in of_order})
    tests = [stream.flat("test").ids.tolist() for stream in streams]
    if name in OWN_SPLIT:
        assert all(sorted(ids) == sorted(tests[0]) for ids in tests)
    else:
        across_seeds(tests.__getitem__, list(cells), strata=cells)
