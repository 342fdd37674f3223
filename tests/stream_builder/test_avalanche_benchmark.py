"""Images that are decoded when asked for; streams for Avalanche."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from driftline.curate.core.errors import IncompatibleStream, IntegrityError
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.interop.avalanche import prepared, to_avalanche
from driftline.stream_builder.lazy_images import LazyImages
from driftline.stream_builder.stream import Split, Step, Stream


def pixels(n: int = 40) -> Split:
    x = rng_for(0, "pixels").integers(0, 256, (n, 12, 12, 3)).astype(np.uint8)
    return Split(x, np.arange(n, dtype=np.int64) % 4, np.arange(n).astype(np.str_))


def test_images_are_normalised_as_the_stream_records() -> None:
    split = pixels()
    plain = Stream("s", [Step(0, "0", {"train": split})], list("abcd"))
    assert prepared(plain)(split.x).permute(0, 2, 3, 1).numpy().tolist() == split.x.tolist()
    x = prepared(replace(plain, facts={"loading": {"normalise": True}}))(split.x)
    assert x.mean((0, 2, 3)).abs().max() < 1e-5
    assert (x.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


class TestEncoded:
    def test_images_of_a_release_are_decoded_when_asked_for(self, journey: Path, tmp_path: Path) -> None:
        from driftline.curate.release import Release

        release = Release.open(journey)
        eager, lazy = (from_release(release, f"{kind}:16") for kind in ("pixels", "images"))
        assert isinstance(lazy.steps[0]["train"].x, LazyImages)
        saved = lazy.save(tmp_path / "s")
        for a, b in zip(eager.steps, saved.steps, strict=True):
            far = np.abs(a["test"].x.astype(int) - b["test"].x[:].astype(int))
            assert far.mean() < 6, "decoders of JPEG may begin with a smaller picture"
            assert a["test"].ids.tolist() == b["test"].ids.tolist()
        assert len(saved.flat("train").x) == len(eager.flat("train").x)
        saved.verify(tmp_path / "s")
        assert saved.steps[0].everything().x.shape[0] == len(eager.steps[0].everything())

    def test_a_missing_or_altered_file_is_named(self, journey: Path, tmp_path: Path) -> None:
        from driftline.curate.release import Release

        saved = from_release(Release.open(journey), "images:16").save(tmp_path / "s")
        x = saved.steps[0]["train"].x
        file = x.files[int(x.locations[0, 0])]
        data = file.read_bytes()
        file.unlink()
        with pytest.raises(IntegrityError, match="is missing"):
            Stream.load(tmp_path / "s")
        offset = int(x.locations[0, 1]) + 40
        file.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.raises(IntegrityError, match="was changed"):
            Stream.load(tmp_path / "s").verify(tmp_path / "s")


def small_base() -> Dataset:
    rng = rng_for(0, "avalanche")
    y = np.repeat(np.arange(3), 30).astype(np.int64)
    x = np.clip(rng.normal(60 + 60 * y[:, None, None, None], 20, (90, 8, 8, 3)), 0, 255).astype(np.uint8)
    return Dataset("toy", Samples(x, y, np.arange(90)), Samples(x, y, np.arange(90)), list("abc"))


@pytest.mark.usefixtures("home")
def test_an_avalanche_strategy_runs_on_a_composed_stream() -> None:
    from avalanche.evaluation.metrics import accuracy_metrics
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Naive

    stream = compose(small_base(), "T:R", (45, 30, 45), 30, 0)
    benchmark = to_avalanche(stream)
    assert [len(e.dataset) for e in benchmark.train_stream] == [len(s["train"]) for s in stream.steps]
    x, y, _ = benchmark.train_stream[1].dataset[4]
    assert int(y) == stream.steps[1]["train"].y[4]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(x.numel(), 3))
    told = EvaluationPlugin(accuracy_metrics(stream=True), loggers=[])
    strategy = Naive(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.01), evaluator=told,
                     train_mb_size=16, train_epochs=6)  # fmt: skip
    for experience in benchmark.train_stream:
        strategy.train(experience)
    (accuracy,) = strategy.eval(benchmark.test_stream).values()
    assert accuracy > 0.8


@pytest.mark.usefixtures("home")
def test_a_stream_without_tests_is_no_benchmark() -> None:
    with pytest.raises(IncompatibleStream, match="no test split"):
        to_avalanche(Stream("s", [Step(0, "0", {"train": pixels()})], list("abcd")))
