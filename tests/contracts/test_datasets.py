"""Every registered dataset: the same samples each time, each with a label and a number of its own."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import DATASETS, Dataset, Options, open_dataset


def imagenet(folder: Path) -> None:
    for side, n in (("train", 8), ("val", 4)):
        for c, name in enumerate(("n01", "n02")):
            (folder / "imagenet" / side / name).mkdir(parents=True, exist_ok=True)
            for i in range(n):
                pixels = rng_for(0, side, c, i).integers(0, 256, (16, 20, 3)).astype(np.uint8)
                buffer = io.BytesIO()
                Image.fromarray(pixels).save(buffer, "PNG")
                (folder / "imagenet" / side / name / f"{i}.png").write_bytes(buffer.getvalue())


def banking77(folder: Path) -> None:
    (folder / "banking77").mkdir(exist_ok=True)
    for side, n in (("train", 12), ("test", 6)):
        lines = [f"question {i},{('card', 'loan', 'rate')[i % 3]}" for i in range(n)]
        (folder / "banking77" / f"{side}.csv").write_text("\n".join(["text,category", *lines]), encoding="utf-8")


SAMPLES: dict[str, Callable[[Path], None]] = {
    "imagenet": imagenet, "banking77": banking77,
}  # fmt: skip
ELSEWHERE = {"cifar10", "cifar100", "clinc150"}  # stream_builder/test_datasets.py, test_real_streams.py, test_texts.py


def opened(name: str, folder: Path) -> Dataset:
    """A dataset that needs no file, or whose files the function of its name in SAMPLES writes."""
    if name in SAMPLES:
        SAMPLES[name](folder)
    try:
        return open_dataset(name, Options(folder, size=16))
    except DriftlineError as error:
        pytest.fail(f"The dataset {name!r} needs files: {error} Expected a function that writes them in SAMPLES.")


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ELSEWHERE])
class TestDataset:
    def test_gives_the_same_samples_each_time(self, name: str, tmp_path: Path) -> None:
        one, two = opened(name, tmp_path), opened(name, tmp_path)
        assert one.classes == two.classes
        for a, b in ((one.train, two.train), (one.test, two.test)):
            assert np.array_equal(a.x[:], b.x[:])
            assert np.array_equal(a.y, b.y)
            assert np.array_equal(a.index, b.index)

    def test_every_sample_has_a_label_and_a_number_of_its_own(self, name: str, tmp_path: Path) -> None:
        dataset = opened(name, tmp_path)
        assert set(dataset.train.y.tolist()) == set(range(len(dataset.classes)))
        for samples in (dataset.train, dataset.test):
            assert len(samples.x) == len(samples.y) == len(samples.index) == len(set(samples.index.tolist()))
            assert np.issubdtype(samples.y.dtype, np.integer)

    def test_images_become_the_same_stream_for_the_same_seed(self, name: str, tmp_path: Path) -> None:
        dataset = opened(name, tmp_path)
        if np.asarray(dataset.train.x[:1]).ndim != 4:
            return  # texts and features have no shifts
        n = 2 * len(dataset.classes)
        one, two = (compose(dataset, "R", (n, n), n, 3) for _ in range(2))
        assert one.sha256 == two.sha256
        assert len(one.steps) == 2

    def test_says_what_it_is(self, name: str, tmp_path: Path) -> None:
        assert DATASETS.summary(name)
        assert opened(name, tmp_path).name
