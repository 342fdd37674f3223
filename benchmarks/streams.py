"""Streams: composing against whole splits in NumPy, images of a tar against webdataset, W2 against POT, opening.

    python benchmarks/streams.py [compose] [tars] [w2] [open] [--share 1] [--folder F]

One JSON line a part; every figure is a ratio to a peer or a limit in the same run.
"""

import argparse
import io
import json
import resource
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from driftline.curate.core.atomic_io import fingerprint
from driftline.stream_builder.builders.sampling import Composition
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.lazy_images import LazyImages, tar_members
from driftline.stream_builder.measures.shift_distance import wasserstein2
from driftline.stream_builder.shifts.grammar import PAPER
from driftline.stream_builder.stream import Split, Step, Stream

OPENED = 39_000_000  # samples of CLOC


def best(work: Callable[[], Any], repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the quickest of some runs."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def cifar_like(n: int = 50_000) -> Dataset:
    """Images of CIFAR's size and number: smooth noise."""
    rng = np.random.default_rng(0)

    def side(rows: int) -> Samples:
        small = rng.integers(0, 256, (rows, 8, 8, 3), np.uint8)
        return Samples(np.repeat(np.repeat(small, 4, 1), 4, 2), np.arange(rows) % 10, np.arange(rows))

    return Dataset("cifar-like", side(n), side(10_000), [str(c) for c in range(10)])


def rows_of(split: Split) -> np.ndarray[Any, Any]:
    """Rows of the dataset's side that a split has: the numbers of its ids."""
    return np.array([int(id_.rpartition("-")[2]) for id_ in split.ids.tolist()])


def one_by_one(dataset: Dataset, stream: Stream, sequence: str) -> list[np.ndarray[Any, Any]]:
    """The twin: every sample as a PIL image through PIL's and torchvision's transforms, one at a time, with the
    stream's own draws. Rotation and tint accumulate as the paper has them; noise is drawn anew for each sample."""
    import torch
    from torchvision.transforms.functional import InterpolationMode, pil_to_tensor, rotate, to_pil_image

    def noisy(image: Image.Image) -> Image.Image:
        tensor = pil_to_tensor(image).to(torch.int16)
        return to_pil_image((tensor + torch.randint(-3, 3, tensor.shape)).clamp(0, 255).to(torch.uint8))

    out = []
    letters = sequence.split(":")
    for t, step in enumerate(stream.steps):
        so_far = letters[:t]
        for name, split in step.splits.items():
            source = dataset.test if name == "test" else dataset.train
            made = []
            for i, y in zip((int(i.partition("-")[2]) for i in split.ids), split.y.tolist(), strict=True):
                image = Image.fromarray(source.x[i])
                for _ in range(so_far.count("C")):
                    image = noisy(image)
                if angle := 30 * so_far.count("R"):
                    image = rotate(image, angle, InterpolationMode.NEAREST)
                if turn := 30 * so_far.count("r"):
                    image = rotate(image, turn if y % 2 == 0 else -turn, InterpolationMode.NEAREST)
                if tint := 30 * so_far.count("T"):
                    red, green, blue = image.split()
                    image = Image.merge("RGB", (red.point(lambda v, by=tint: v + by), green, blue))
                for flip in range(so_far.count("L")):
                    y = 9 - y if flip % 2 == 0 else (y + 2) % 10
                made.append(np.asarray(image))
            out.append(np.stack(made))
    return out


def whole_splits(dataset: Dataset, stream: Stream, sequence: str) -> list[np.ndarray[Any, Any]]:
    """The peer: whole splits in NumPy, as a user who knows it writes them. Draws by class for each step, and ids as
    text, of which only the time counts: the pixels are those of the stream's own draws."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(32), np.arange(32), indexing="ij"), -1).reshape(-1, 2) - 15.5

    @cache
    def source(degrees: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
        at = np.rint((grid @ np.array([[cos, -sin], [sin, cos]])).astype(np.float32) + 15.5).astype(int)
        outside = ((at < 0) | (at > 31)).any(1)
        return np.where(outside, 0, at[:, 0] * 32 + at[:, 1]), outside

    def turned(x: np.ndarray[Any, Any], degrees: float) -> np.ndarray[Any, Any]:
        places, outside = source(degrees)
        out = x.reshape(len(x), -1, 3)[:, places]
        out[:, outside] = 0
        return out.reshape(x.shape)

    def drawn(y: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
        each = [rng.permutation(np.flatnonzero(y == c))[: n // 10] for c in range(10)]
        return rng.permutation(np.concatenate(each)).astype(np.str_)

    out = []
    letters = sequence.split(":")
    for t, step in enumerate(stream.steps):
        so_far = letters[:t]
        for name, split in step.splits.items():
            samples = dataset.test if name == "test" else dataset.train
            drawn(samples.y, len(split))
            x, y = samples.x[rows_of(split)], split.y
            for _ in range(so_far.count("C")):
                x = np.clip(x + rng.integers(-3, 3, x.shape, np.int16), 0, 255).astype(np.uint8)
            if angle := 30 * so_far.count("R"):
                x = turned(x, angle)
            if turn := 30 * so_far.count("r"):
                even, either = y % 2 == 0, np.empty_like(x)
                either[even], either[~even] = turned(x[even], turn), turned(x[~even], -turn)
                x = either
            if tint := 30 * so_far.count("T"):
                x[..., 0] = np.minimum(x[..., 0].astype(np.int16) + tint, 255)
            out.append(x)
    return out


def composed(share: float) -> dict[str, Any]:
    """20,000 + 5,000 samples of each of the paper's sequences, in CPU seconds: one worker against one loop over splits,
    interleaved, the best of five, and a loop over images once. No side makes the oracle."""
    dataset, tests = cifar_like(), int(5000 * share)
    independent = Composition(overlap="independent")
    sizes = tuple(int(n * share) for n in PAPER)
    told: dict[str, Any] = {}
    for name, sequence in (("RCL", "R:C:L"), ("CLR", "C:L:R"), ("TTT", "T:T:T"), ("rrr", "r:r:r")):
        made = partial(compose, dataset, sequence, sizes, tests, 0, independent, oracle=False)
        stream = made()
        splits = [split for step in stream.steps for split in step.splits.values()]
        peer = partial(whole_splits, dataset, stream, sequence)
        if "C" not in sequence:
            same = [(np.asarray(s.x) == x).all() for s, x in zip(splits, peer(), strict=True)]
            assert all(same), "not the peer's pixels"
        pairs = [[best(way, 1, time.process_time) for way in (made, peer)] for _ in range(5)]
        ours, theirs = np.min(pairs, axis=0).tolist()
        slow = best(partial(one_by_one, dataset, stream, sequence), 1, time.process_time)
        if "T" in sequence:
            twin = one_by_one(dataset, stream, sequence)
            assert all((np.asarray(s.x) == x).all() for s, x in zip(splits, twin, strict=True)), "not the twin's pixels"
        told[name] = {"ours_s": round(ours, 3), "two_workers_wall_s": round(best(partial(made, workers=2)), 3),
                      "numpy_s": round(theirs, 3), "image_by_image_s": round(slow, 2),
                      "times_faster": round(theirs / ours, 2)}  # fmt: skip
    turned = compose(dataset, "R", sizes[:2], tests, 0, independent, oracle=False)
    twin = one_by_one(dataset, turned, "R")
    splits = [split for step in turned.steps for split in step.splits.values()]
    differ = np.mean([(np.asarray(s.x) != x).any(-1).mean() for s, x in zip(splits[2:], twin[2:], strict=True)])
    total = {key: sum(v[key] for v in told.values()) for key in ("ours_s", "numpy_s", "image_by_image_s")}
    told["times_faster_than_numpy"] = round(total["numpy_s"] / total["ours_s"], 2)
    told["times_faster_than_image_by_image"] = round(total["image_by_image_s"] / total["ours_s"], 1)
    return told | {"pixels_of_R_that_differ": round(float(differ), 5)}


def tars(folder: Path, images: int, size: int = 224) -> dict[str, Any]:
    """JPEG of 500 × 375 in a tar, in order, decoded and cut to 224: ours and webdataset's."""
    import torch
    import webdataset
    from PIL import ImageOps

    rng = np.random.default_rng(0)
    path = folder / "images.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(images):
            buffer = io.BytesIO()
            coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
            coarse.resize((500, 375), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
            for name, data in ((f"{i:06d}.jpg", buffer.getvalue()), (f"{i:06d}.cls", b"0")):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    rows = [(0, offset, length) for name, offset, length in tar_members(path) if name.endswith(".jpg")]
    x = LazyImages((path,), np.array(rows, np.int64), size)

    def ours() -> None:
        for low in range(0, images, 64):
            torch.from_numpy(x[low : low + 64]).permute(0, 3, 1, 2).float()

    def fitted(sample: tuple[Any, int]) -> tuple[torch.Tensor, int]:
        with Image.open(io.BytesIO(sample[0])) as image:
            image.draft("RGB", (size, size))
            cut = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(cut)).permute(2, 0, 1).float(), int(sample[1])

    def theirs() -> None:
        data = webdataset.WebDataset(str(path), shardshuffle=False).to_tuple("jpg", "cls").map(fitted).batched(64)
        for _ in webdataset.WebLoader(data, batch_size=None, num_workers=0):
            pass

    mine, other = best(ours, 3), best(theirs, 3)
    return {"images_s": round(images / mine), "webdataset_images_s": round(images / other),
            "ratio": round(other / mine, 3)}  # fmt: skip


def transport(share: float) -> dict[str, Any]:
    """6,000 × 5,000 samples in 100 dimensions, exact."""
    import ot

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(int(6000 * share), 100)), rng.normal(size=(int(5000 * share), 100)) + 0.2

    def pots() -> float:
        weights = [np.full(len(p), 1 / len(p)) for p in (a, b)]
        return float(np.sqrt(ot.emd2(*weights, ot.dist(a, b), numItermax=20_000_000)))

    values = wasserstein2(a, b), pots()
    assert values[0] == values[1]
    ours, theirs = best(lambda: wasserstein2(a, b), 2), best(pots, 2)
    return {"ours_s": round(ours, 2), "pot_s": round(theirs, 2), "ratio": round(ours / theirs, 3)}


def opened(folder: Path) -> dict[str, Any]:
    """A stream of CLOC's length: files without content, as large as it would be."""
    one = Split(np.zeros((1, 16), np.float16), np.zeros(1, np.int64), np.zeros(1, "<U10"), np.zeros(1, np.int64))
    head = Stream("cloc", [Step(0, "0", {"train": one})], [str(c) for c in range(713)])
    root = folder / "cloc"
    head.save(root)
    facts = json.loads((root / "stream.json").read_text())
    n = OPENED
    step = root / "step_00000"
    for name, dtype, shape in (("x", np.float16, (n, 16)), ("y", np.int64, (n,)), ("ids", "<U10", (n,)),
                               ("time", np.int64, (n,))):  # fmt: skip
        np.lib.format.open_memmap(step / f"train_{name}.npy", "w+", np.dtype(dtype), shape).flush()
    facts["steps"][0]["splits"]["train"]["n"] = n
    del facts["digest"]
    facts["digest"] = fingerprint(facts)
    (root / "stream.json").write_text(json.dumps(facts))
    seconds = best(lambda: Stream.load(root))
    split = Stream.load(root).steps[0]["train"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = time.perf_counter()
    seen = 0
    for low in range(0, 4_000_000, 4096):
        part = split.part(low, low + 4096)
        seen += len(np.asarray(part.x))
    took = time.perf_counter() - clock
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return {"samples": n, "open_s": round(seconds, 4), "read": seen, "read_s": round(took, 2),
            "memory_grew_mb": grown}  # fmt: skip


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["compose", "tars", "w2", "open"])
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of samples")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        work = {
            "compose": lambda: composed(given.share),
            "tars": lambda: tars(Path(name), int(2000 * given.share)),
            "w2": lambda: transport(given.share),
            "open": lambda: opened(Path(name)),
        }
        for part in given.parts:
            print(json.dumps({"part": part, **work[part]()}), flush=True)


if __name__ == "__main__":
    main()
