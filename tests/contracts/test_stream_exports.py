"""Every export of a stream loads in its format's own library: same samples, labels and order."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.export import EXPORTS
from driftline.stream_builder.export.layouts import class_folder, write_contact_sheet
from driftline.stream_builder.step import NEVER
from driftline.stream_builder.stream import Split, Step, Stream

LAYOUTS = list(EXPORTS)


CLASSES = ["a/b", "a_b", "<d>", "train", "test", "validation", "10", "v1.0"]


def images() -> Stream:
    """Two steps of images with three splits each."""
    rng = np.random.default_rng(0)
    steps = []
    for t in range(2):
        splits = {}
        for name, n in (("train", 7), ("val", 2), ("test", 3)):
            y = rng.integers(0, len(CLASSES), n)
            ids = np.array([f"{t}/{name}/{i}" for i in range(n)])
            x, time = rng.integers(0, 256, (n, 9, 9, 3)).astype(np.uint8), np.arange(n) + 100 * t
            test_in, late = rng.random((n, 2)) < 0.5, np.where(y == 0, NEVER, time + 5)
            splits[name] = Split(x, y, ids, time, y // 2, test_in, late)
        steps.append(Step(t, f"step {t}", splits))
    return Stream("images", steps, CLASSES)


@pytest.fixture(scope="module")
def stream() -> Stream:
    return images()


@pytest.fixture(scope="module")
def exports(stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("exports")
    for name in LAYOUTS:
        EXPORTS[name](stream, out / name)
    return {name: out / name for name in LAYOUTS}


Samples = dict[tuple[int, str], list[tuple[str, int]]]


def truth(stream: Stream) -> Samples:
    """(step, split) → digests of pixels and labels, in order."""
    return {(s.index, n): list(zip(map(digest, split.x), split.y.tolist(), strict=True))
            for s in stream.steps for n, split in s.splits.items()}  # fmt: skip


def digest(x: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(np.asarray(x, np.uint8)).tobytes()).hexdigest()


def read_arrays(folder: Path, stream: Stream) -> Samples:
    back = from_arrays(folder / "stream.npz")
    assert back.classes == list(stream.classes)
    for step, own in zip(back, stream, strict=True):
        for name, split in own.splits.items():
            columns = step[name].columns()
            assert columns.keys() == split.columns().keys()
            assert all((columns[key] == column).all() for key, column in split.columns().items() if key != "group")
    return truth(back)


def test_a_time_that_is_not_known_is_null_or_said(stream: Stream, tmp_path: Path) -> None:
    half = Stream("s", [Step(0, "0", {**stream[0].splits, "train": replace(stream[0]["train"], time=None)})], CLASSES)
    assert EXPORTS["webdataset"](half, tmp_path) == {"images": 12, "tars": 3}
    assert (tmp_path / "step_000_train.tar").read_bytes().count(b'"time": null') == 7
    assert EXPORTS["arrays"](half, tmp_path) == {"samples": 12, "without time, which is left out": 7}


def read_imagefolder(folder: Path, stream: Stream) -> Samples:
    from torchvision.datasets import ImageFolder

    samples = {}
    for step, split in truth(stream):
        classes = ImageFolder(str(folder / f"step_{step:03d}" / split), allow_empty=True)
        assert classes.classes == [class_folder(stream, label) for label in range(len(CLASSES))]
        files = sorted((Path(p).name, digest(np.asarray(Image.open(p))), label) for p, label in classes.samples)
        samples[step, split] = [(pixels, label) for _, pixels, label in files]
    return samples


def test_image_folders_load_in_datasets_with_every_split(exports, stream, tmp_path, monkeypatch):
    """Case 19: it takes the folders train, val and test of all steps for three splits, unless the README names them."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    loaded = datasets.load_dataset(str(exports["imagefolder"]), cache_dir=str(tmp_path))
    wanted = {f"step_{step:03d}_{split}": sorted(rows) for (step, split), rows in truth(stream).items()}
    names = [class_folder(stream, label) for label in range(len(CLASSES))]
    assert {
        name: sorted(
            (digest(np.asarray(r["image"])), names.index(part.features["label"].names[r["label"]])) for r in part
        )
        for name, part in loaded.items()
    } == wanted


def read_webdataset(folder: Path, stream: Stream) -> Samples:
    import webdataset

    samples = {}
    for step, split in truth(stream):
        tar = str(folder / f"step_{step:03d}_{split}.tar")
        rows = webdataset.WebDataset(tar, shardshuffle=False).decode("pil").to_tuple("png", "cls", "json")
        rows = [(x, y, facts) for x, y, facts in rows if facts["split"] == split]
        samples[step, split] = [(digest(np.asarray(x)), int(y)) for x, y, _ in rows]
        for name, column in stream[step][split].columns().items():
            assert [facts[name] for *_, facts in rows] == column.tolist()
    return samples


def read_huggingface(folder: Path, stream: Stream) -> Samples:
    import datasets

    loaded = datasets.load_dataset(str(folder), cache_dir=str(folder.with_suffix(".cache")))
    samples = {}
    for step, split in truth(stream):
        part = loaded[f"step_{step:03d}_{split}"]
        samples[step, split] = [(digest(np.asarray(row["image"])), row["label"]) for row in part]
        assert part.features["label"].names == list(stream.classes)
        known = stream[step][split].columns()
        assert all(part[name] == known[name].tolist() for name in ("time", "group", "label_time"))
    return samples


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_export_has_every_sample_in_order(name: str, exports: dict[str, Path], stream: Stream) -> None:
    reader = f"read_{name.replace('-', '_')}"
    if reader not in globals():
        pytest.fail(f"The export {name!r} has no reader. Expected {reader}(folder, stream) → Samples in {__name__}.")
    assert globals()[reader](exports[name], stream) == truth(stream)


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_export_writes_every_sample_and_the_same_bytes_again(name: str, stream: Stream, tmp_path: Path) -> None:
    written = []
    for out in (tmp_path / "a", tmp_path / "b"):
        assert sum(map(len, truth(stream).values())) in EXPORTS[name](stream, out).values()
        written.append({p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()})
    assert written[0] == written[1]


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_export_takes_features_or_says_that_it_needs_images(name: str, tmp_path: Path) -> None:
    split = Split(np.zeros((2, 3), np.float32), np.zeros(2, np.int64), np.array(["a", "b"]))
    features = Stream("features", [Step(0, "0", {"train": split})], ["x"])
    counts, refusal = {}, ""
    try:
        counts = EXPORTS[name](features, tmp_path)
    except IncompatibleStream as error:
        refusal = str(error)
    assert "Expected uint8 images" in refusal or 2 in counts.values()
    assert not refusal or name != "arrays"


def test_class_folders_are_distinct_and_sort_by_label(stream: Stream) -> None:
    many = replace(stream, classes=["same/name", "same_name"] * 5001)
    folders = [class_folder(many, label) for label in range(10_002)]
    assert len(set(folders)) == 10_002
    assert sorted(folders) == folders


def test_a_contact_sheet_is_the_same_every_time(stream: Stream, tmp_path: Path) -> None:
    a, b = (write_contact_sheet(stream, tmp_path / f"{n}.png").read_bytes() for n in "ab")
    assert a == b
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 300
        assert np.asarray(picture.convert("L")).std() > 5
