"""Members of every registry: encoders, shifts, datasets, distances, networks, samplers, stages, platforms."""

import math
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.errors import BadArray, BadConfig, DriftlineError
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import ENCODERS, Encoder, Vectors
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking import PLATFORMS
from driftline.eval.history import History
from driftline.eval.memory.samplers import SAMPLERS, Sampler
from driftline.eval.nets import NETS, build
from driftline.eval.nets.chain import HEAD, Net
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages.base import Stage
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import DATASETS, Dataset, Options, open_dataset
from driftline.stream_builder.measures import DISTANCES
from driftline.stream_builder.shifts import SHIFTS
from driftline.stream_builder.shifts.base import ORDER, Shift
from driftline.stream_builder.stream import Split

TEXTS = ["a car", "a bus on a road"]
Model = tuple[str, str | None]  # model, weights


def clip(folder: Path) -> Model:
    return str(files("driftline.pipelines") / "demo" / "model"), None


def table(folder: Path) -> Model:
    write_json(folder / "texts.json", TEXTS)
    np.save(folder / "texts.npy", rng_for(0, "table").normal(size=(len(TEXTS), 6)))
    return str(folder), None


def ngrams(folder: Path) -> Model:
    return "64", None


def backbone(folder: Path) -> Model:
    import timm

    torch.manual_seed(0)
    torch.save(timm.create_model("resnet10t", num_classes=0).state_dict(), folder / "weights.pt")
    return "resnet10t", str(folder / "weights.pt")


MODELS: dict[str, Callable[[Path], Model]] = {"clip": clip, "table": table, "ngrams": ngrams, "backbone": backbone}
ELSEWHERE = {"sentence"}  # needs a model of another library: eval/test_texts.py
READS = {"clip": (True, True), "table": (False, True), "ngrams": (False, True), "backbone": (True, False)}


def loaded(name: str, folder: Path) -> Encoder:
    """An encoder on the CPU; the model is `any`, or what the function of its name in MODELS writes."""
    model, weights = MODELS[name](folder) if name in MODELS else ("any", None)
    kind: type[Encoder] = ENCODERS[name]
    try:
        return kind(model, weights, "cpu", "float32")
    except DriftlineError as error:
        pytest.fail(f"The encoder {name!r} needs a model: {error} Expected a function that writes one in MODELS.")


def vectors_of_images(encoder: Encoder, n: int = 2) -> Vectors | None:
    """(n, D); None if it does not read images."""
    pixels = rng_for(0, "images").integers(0, 256, (n, 40, 48, 3)).astype(np.uint8)
    try:
        prepared = [encoder.prepare(Image.fromarray(x)) for x in pixels]
    except BadConfig:
        return None
    return encoder.images(torch.stack(prepared))


def vectors_of_texts(encoder: Encoder, texts: list[str]) -> Vectors | None:
    """(N, D); None if it does not read texts."""
    try:
        return encoder.texts(texts)
    except BadConfig:
        return None


@pytest.mark.parametrize("name", [name for name in ENCODERS if name not in ELSEWHERE])
class TestEncoder:
    def test_vectors_are_unit_float32_of_its_width(self, name: str, tmp_path: Path) -> None:
        encoder = loaded(name, tmp_path)
        found = [vectors_of_images(encoder), vectors_of_texts(encoder, TEXTS)]
        reads = tuple(vectors is not None for vectors in found)
        assert any(reads)
        assert reads == READS.get(name, reads)
        for vectors in found:
            if vectors is not None:
                assert (vectors.shape, vectors.dtype) == ((2, encoder.width), np.float32)
                assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
                assert not np.allclose(vectors[0], vectors[1], atol=1e-4), "different inputs"

    def test_an_encoder_loaded_again_gives_the_same_vectors_and_fingerprint(self, name: str, tmp_path: Path) -> None:
        one, two = loaded(name, tmp_path), loaded(name, tmp_path)
        assert one.fingerprint == two.fingerprint != ""
        images, texts = zip(*((vectors_of_images(e), vectors_of_texts(e, TEXTS)) for e in (one, two)), strict=True)
        assert all((a is None and b is None) or np.array_equal(a, b) for a, b in (images, texts))

    def test_a_text_has_one_vector_in_every_batch(self, name: str, tmp_path: Path) -> None:
        encoder = loaded(name, tmp_path)
        both, last = vectors_of_texts(encoder, TEXTS), vectors_of_texts(encoder, TEXTS[1:])
        assert both is last is None or np.allclose(both[1:], last, atol=1e-5)
        assert encoder.truncated("short") == ""


# ---- every registered shift keeps shape and dtype, leaves its input alone and is repeatable; count 0 changes nothing


C = 10


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = rng_for(0, "shifts")
    return rng.integers(0, 256, (30, 12, 12, 3)).astype(np.uint8), np.arange(30, dtype=np.int64) % C


@pytest.mark.parametrize("name", SHIFTS)
class TestShift:
    def test_keeps_shape_and_dtype_and_leaves_the_input_alone(self, name: str) -> None:
        x, y = data()
        before = x.copy(), y.copy()
        x.flags.writeable = y.flags.writeable = False
        shift: Shift = SHIFTS[name]()
        for count in range(4):
            new_x, new_y = shift.apply(x, y, count, C, rng_for(1))
            assert (new_x.shape, new_x.dtype) == (x.shape, x.dtype)
            assert (new_y.shape, new_y.dtype) == (y.shape, y.dtype)
            assert set(new_y.tolist()) <= set(range(C))
        assert (x == before[0]).all()
        assert (y == before[1]).all()

    def test_count_0_is_the_identity(self, name: str) -> None:
        x, y = data()
        new_x, new_y = SHIFTS[name]().apply(x, y, 0, C, rng_for(1))
        assert (new_x == x).all()
        assert (new_y == y).all()

    def test_the_same_generator_gives_the_same_result(self, name: str) -> None:
        x, y = data()
        (a, b), (c, d) = (SHIFTS[name]().apply(x, y, 2, C, rng_for(7)) for _ in range(2))
        assert (a == c).all()
        assert (b == d).all()

    def test_changes_only_what_it_acts_on(self, name: str) -> None:
        x, y = data()
        shift: Shift = SHIFTS[name]()
        assert shift.code == name
        assert shift.acts_on in ORDER
        new_x, new_y = shift.apply(x, y, 1, C, rng_for(1))
        changed = (not (new_x == x).all(), not (new_y == y).all())
        assert changed == {"label": (False, True), "sampling": (False, False)}.get(shift.acts_on, (True, False))

    def test_only_a_shift_of_sampling_has_shares(self, name: str) -> None:
        shift: Shift = SHIFTS[name]()
        shares = shift.shares(1, 2, C, 5)
        assert (shares is not None) == (shift.acts_on == "sampling")
        if shares is not None:
            assert shares.shape == (C, 5)
            assert (shares >= 0).all()
            assert shares.sum() > 0


@pytest.mark.parametrize("name", [name for name in SHIFTS if SHIFTS[name]().by_image])
def test_some_images_at_a_time_give_the_same_as_all_if_it_says_so(name: str) -> None:
    shift, rng, (x, y) = SHIFTS[name](), rng_for(7), data()
    new_x, new_y = shift.apply(x, y, 2, C, rng)
    parts = [shift.apply(x[low : low + 4], y[low : low + 4], 2, C, rng) for low in range(0, len(x), 4)]
    assert (new_x == np.concatenate([part for part, _ in parts])).all()
    assert (new_y == y).all(), "labels are changed by shifts of labels"
    assert rng.bit_generator.state == rng_for(7).bit_generator.state, "it draws no random numbers"


@pytest.mark.parametrize("name", [name for name in SHIFTS if SHIFTS[name]().fractional])
def test_a_fractional_shift_grows(name: str) -> None:
    shift, (x, y) = SHIFTS[name](), data()
    moved = [np.abs(shift.apply(x, y, t, C, rng_for(1))[0].astype(int) - x).mean() for t in (0, 0.5, 1)]
    assert moved[0] == 0 < moved[1]


LAYOUTS = [np.zeros((2, 4, 4, 3), np.float32), np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4, 4), np.uint8)]


@pytest.mark.parametrize("name", [name for name in SHIFTS if SHIFTS[name]().acts_on not in ("label", "sampling")])
@pytest.mark.parametrize("bad", LAYOUTS, ids=["float", "grey", "RGBA"])
def test_shifts_of_images_refuse_other_layouts(name: str, bad: np.ndarray) -> None:
    with pytest.raises(BadArray, match=r"uint8 \(N, H, W, 3\)"):
        SHIFTS[name]().apply(bad, np.zeros(2, np.int64), 1, C, rng_for(1))


# ---- every registered dataset: the same samples each time, each with a label and a number of its own


def imagenet(folder: Path) -> None:
    for side, n in (("train", 8), ("val", 4)):
        for c, name in enumerate(("n01", "n02")):
            (folder / "imagenet" / side / name).mkdir(parents=True, exist_ok=True)
            for i in range(n):
                pixels = rng_for(0, side, c, i).integers(0, 256, (16, 20, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / "imagenet" / side / name / f"{i}.png")


def banking77(folder: Path) -> None:
    (folder / "banking77").mkdir(exist_ok=True)
    for side, n in (("train", 12), ("test", 6)):
        lines = [f"question {i},{('card', 'loan', 'rate')[i % 3]}" for i in range(n)]
        (folder / "banking77" / f"{side}.csv").write_text("\n".join(["text,category", *lines]), encoding="utf-8")


SAMPLES: dict[str, Callable[[Path], None]] = {"imagenet": imagenet, "banking77": banking77}
OF_FILES = {"cifar10", "cifar100", "clinc150"}  # stream_builder/test_datasets.py, test_real_streams.py, test_texts.py


def opened(name: str, folder: Path) -> Dataset:
    """A dataset that needs no file, or whose files the function of its name in SAMPLES writes."""
    if name in SAMPLES:
        SAMPLES[name](folder)
    try:
        return open_dataset(name, Options(folder, size=16))
    except DriftlineError as error:
        pytest.fail(f"The dataset {name!r} needs files: {error} Expected a function that writes them in SAMPLES.")


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in OF_FILES])
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


# ---- every registered distance: a finite number, repeatable, larger for sets that are further apart; inputs stay


def sets(far: float) -> tuple[np.ndarray, np.ndarray]:
    rng = rng_for(0, "sets")
    return rng.normal(size=(60, 5)), rng.normal(size=(40, 5)) + far


@pytest.mark.parametrize("name", DISTANCES)
class TestDistance:
    def test_is_larger_for_sets_that_are_further_apart(self, name: str) -> None:
        near, far = (DISTANCES[name](*sets(far), 0) for far in (0.0, 2.0))
        assert isinstance(near, float)
        assert math.isfinite(near)
        assert near < far

    def test_its_seed_decides_whatever_is_drawn_before(self, name: str) -> None:
        """Same seed: same number, also in another place; no distance of a set to itself beyond that of two halves."""
        first = DISTANCES[name](*sets(1.0), 3)
        between = DISTANCES[name](*sets(2.0), 4)
        assert DISTANCES[name](*sets(1.0), 3) == first < between

    def test_does_not_modify_its_input(self, name: str) -> None:
        a, b = sets(1.0)
        a.flags.writeable = b.flags.writeable = False
        DISTANCES[name](a, b, 0)


# ---- every registered network: blocks that fit each other, weights that a seed repeats and that the scores depend on


IMAGES, FEATURES = (32, 32, 3), (8,)
CLASSES, N = 3, 4


def shape_of(name: str) -> tuple[int, ...]:
    """Of a sample that it takes."""
    return FEATURES if NETS[name](name, CLASSES, FEATURES).features else IMAGES


def network(name: str, seed: int = 0) -> Net:
    return build(name, CLASSES, shape_of(name), np.random.default_rng(seed))


def batch(name: str) -> Any:
    shape = shape_of(name)
    x = torch.rand(N, *shape, generator=torch.Generator().manual_seed(0))
    return x.permute(0, 3, 1, 2) if len(shape) == 3 else x


@pytest.mark.parametrize("name", NETS)
class TestNetwork:
    def test_the_last_block_gives_a_score_for_each_class(self, name: str) -> None:
        net = network(name)
        assert net.names[-1] == HEAD
        scores = net(batch(name))
        assert scores.shape == (N, CLASSES)
        assert torch.isfinite(scores).all()

    def test_a_seed_gives_the_same_weights(self, name: str) -> None:
        one, two, other = network(name), network(name), network(name, seed=1)
        pairs = list(zip(one.parameters(), two.parameters(), strict=True))
        assert all(torch.equal(a, b) and a is not b for a, b in pairs)
        assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))

    def test_every_block_has_weights_that_the_scores_depend_on(self, name: str) -> None:
        net = network(name)
        torch.nn.functional.cross_entropy(net(batch(name)), torch.arange(N) % CLASSES).backward()
        for block in net.names:
            weights = list(net.parts[block].parameters())
            assert weights
            assert all(weight.grad is not None for weight in weights), block

    def test_a_side_module_has_the_shapes_of_its_block(self, name: str) -> None:
        net, x = network(name), batch(name)
        assert set(net.blocks.side) <= set(net.names[:-1])
        for block in net.names[:-1]:
            output = net.block(block, x)
            if block in net.blocks.side:
                assert net.blocks.side[block]()(x).shape == output.shape
            x = output

    def test_other_samples_are_refused(self, name: str) -> None:
        wrong = IMAGES if shape_of(name) == FEATURES else FEATURES
        with pytest.raises(BadConfig, match="takes"):
            build(name, CLASSES, wrong, np.random.default_rng(0))


# ---- every registered sampler: only past positions, never more than asked for, the same for the same generator


LONG, BATCH = 60, 10


def history() -> History:
    n = np.arange(LONG)
    return History([Split(n.astype(np.float32)[:, None], n % 3, n.astype(np.str_))])


def drawn(name: str, n: int, memory: int = 0) -> list[list[int]]:
    """The positions after each batch."""
    samples, positions = history(), []
    sampler: Sampler = SAMPLERS[name](rng_for(0, name), memory)
    for start in range(0, LONG, BATCH):
        past = samples.past(start, start + BATCH)
        sampler.grow(past)
        positions.append(sampler.draw(past, n).tolist())
        assert sampler.stored(past) <= max(memory or past.seen, BATCH)
    return positions


@pytest.mark.parametrize("name", SAMPLERS)
class TestSampler:
    @pytest.mark.parametrize("memory", [0, 15])
    def test_draws_from_the_past_and_no_more_than_asked_for(self, name: str, memory: int) -> None:
        for batch, positions in enumerate(drawn(name, 8, memory)):
            assert 0 < len(positions) <= 8
            assert all(0 <= position < (batch + 1) * BATCH for position in positions)

    def test_the_same_generator_gives_the_same_positions(self, name: str) -> None:
        first = drawn(name, 8)
        assert drawn(name, 8) == first
        assert len(first) == LONG // BATCH

    def test_asking_for_more_than_there_is_gives_what_there_is(self, name: str) -> None:
        assert all(drawn(name, 10 * LONG))


# ---- every registered stage: named as it is registered, after the stages that it reads, with a line about itself


STAGE_ORDER = list(STAGES)


@pytest.mark.parametrize("name", STAGE_ORDER)
def test_a_stage_reads_only_stages_before_it(name: str) -> None:
    assert set(STAGES[name].needs) <= set(STAGE_ORDER[: STAGE_ORDER.index(name)])


@pytest.mark.parametrize("name", STAGE_ORDER)
def test_a_stage_has_its_name_and_says_what_it_does(name: str) -> None:
    assert issubclass(STAGES[name], Stage)
    assert STAGES[name].name == name
    assert STAGES.summary(name)


# ---- every registered platform: all images, the right counts, and nothing that shows a worker the expected answer


CONCEPTS = [Concept(name=name, prompts=(name,)) for name in ("bus", "car")]
ADDRESSES = {f"item{n}": f"https://images.example/item{n}.jpg" for n in range(4)}


def written(name: str, out: Path, gold: dict[str, list[str]], ids: str = "a") -> tuple[Any, dict[str, bytes]]:
    """(counts, name → content) of the files of one platform."""
    batch: dict[str, Any] = {
        "batch": "b1", "after": None, "items": {item: f"{ids}-{item}" for item in ADDRESSES}, "gold": gold,
        "concepts": ["bus", "car"], "workers": 3, "reward_usd": 0.02, "estimate_usd": 0.36,
        "usd_an_hour": 8.0,
    }  # fmt: skip
    counts = PLATFORMS[name](batch, ADDRESSES, CONCEPTS, out)
    return counts, {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_image_is_asked_and_counted(name: str, tmp_path: Path) -> None:
    counts, files = written(name, tmp_path, {})
    assert counts == {"images": 4, "answers": 12}
    assert all(any(address.encode() in content for content in files.values()) for address in ADDRESSES.values())


@pytest.mark.parametrize("name", PLATFORMS)
def test_no_file_depends_on_gold_questions_or_ids(name: str, tmp_path: Path) -> None:
    _, files = written(name, tmp_path / "a", {"item1": ["bus"]})
    assert files == written(name, tmp_path / "b", {"item2": ["car"]}, ids="b")[1]
