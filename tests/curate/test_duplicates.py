"""Near-duplicates: hashes survive what copies go through, pairs are exact, groups join, the report counts."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from driftline.curate.core.seeding import rng_for
from driftline.curate.images.near_duplicates import (
    copies_by_hash,
    copy_report,
    group_pairs,
    near_copies,
    pairs_by_cosine,
    pairs_by_hash,
    perceptual_hashes,
    thumbnail,
)
from driftline.pipelines.demo.draw import photo


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image.convert("RGB").resize((64, 64), Image.Resampling.BICUBIC))).permute(2, 0, 1)


def distance(a: int, b: int) -> int:
    return (int(a) ^ int(b)).bit_count()


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    return [photo([thing], 0.3, rng_for(i, "copy")) for i, thing in enumerate(["car", "bus", "lamp", "phone"] * 5)]


def test_a_copy_that_was_shrunk_and_compressed_again_keeps_its_hash(pictures: list[Image.Image]) -> None:
    def again(image: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        image.resize((image.width * 2 // 3, image.height * 2 // 3)).save(buffer, "JPEG", quality=60)
        return Image.open(buffer)

    before, after = (
        perceptual_hashes(torch.stack([tensor(p) for p in some])) for some in (pictures, map(again, pictures))
    )
    assert np.mean([distance(a, b) <= 4 for a, b in zip(before, after, strict=True)]) > 0.9
    others = [distance(a, b) for i, a in enumerate(before) for b in before[:i]]
    assert np.mean([d > 10 for d in others]) > 0.9


@pytest.mark.parametrize(
    ("size", "kind"), [((96, 80), "JPEG"), ((130, 127), "JPEG"), ((128, 200), "JPEG"), ((300, 200), "PNG")]
)
def test_a_decoded_image_is_used_only_where_it_gives_the_same_hash(size, kind, pictures):
    buffer = io.BytesIO()
    pictures[0].resize(size).save(buffer, kind)
    with Image.open(buffer) as image:
        decoded = image.convert("RGB")
    assert torch.equal(thumbnail(buffer.getvalue(), decoded), thumbnail(buffer.getvalue()))


@pytest.mark.parametrize("bits", [0, 1, 4, 6])
def test_hashes_that_are_compared_by_parts_give_the_pairs_of_all_against_all(bits, monkeypatch):
    rng = np.random.default_rng(bits)
    of = rng.integers(0, 2**64, 3000, np.uint64)
    of[1000:2000] = of[:1000] & ~np.uint64(0xFF << 20)  # many agree in most of their parts
    for i in range(2000, 3000):
        for b in rng.integers(0, 64, i % 9):
            of[i] = of[i - 1000] ^ (np.uint64(1) << np.uint64(b))
    expected = {tuple(p) for p in pairs_by_hash(of, bits).tolist()}
    monkeypatch.setattr("driftline.curate.images.near_duplicates.FEW_BITS", -1)
    assert {tuple(p) for p in pairs_by_hash(of, bits).tolist()} == expected
    assert bits == 0 or expected


@given(st.lists(st.integers(0, 2**64 - 1), max_size=30), st.integers(0, 12), st.integers(0, 99))
def test_groups_of_hashes_equal_those_of_brute_force(values: list[int], bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    flipped = [v ^ (1 << int(b)) for v in values for b in rng.integers(0, 64, 1)]
    of = np.array(values + flipped + values[:3], np.uint64)
    pairs = [(a, b) for b in range(len(of)) for a in range(b) if distance(of[a], of[b]) <= bits]
    expected = group_pairs(np.array(pairs, np.int64).reshape(-1, 2), len(of))
    assert group_pairs(pairs_by_hash(of, bits), len(of)).tolist() == expected.tolist()


def test_pairs_by_cosine_equal_those_of_brute_force() -> None:
    x = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    scores = x @ x.T
    expected = {(a, b) for a in range(300) for b in range(a + 1, 300) if scores[a, b] >= 0.98}
    assert {tuple(p) for p in pairs_by_cosine(x, 0.98, block=64).tolist()} == expected


def test_groups_join_through_others() -> None:
    assert group_pairs(np.array([[3, 4], [1, 3], [0, 2]]), 6).tolist() == [0, 1, 0, 1, 1, 5]


def test_the_report_counts_groups_across_buckets_and_splits() -> None:
    of = np.array([7, 7, 9, 8, 1 << 40], np.uint64)
    group = near_copies(of, 0)
    found = copy_report(
        group, {"id": list("abcde"), "bucket": [1, 2, 1, 1, 1], "split_0": ["train", "train", "t", "t", "t"]}
    )
    assert found == {
        "images": 5,
        "groups": 1,
        "images_in_groups": 2,
        "groups_across": {"bucket": 1, "split_0": 0},
        "examples": [["a", "b"]],
    }


def test_pictures_of_one_layout_are_near_each_other_and_no_copies() -> None:
    """A hash with one neighbour at 7 bits has a copy; a dozen that are 7 bits from each other have none; 4 bits are
    sure everywhere."""
    rng = rng_for(0, "layout")
    apart = rng.integers(0, 2**63, 40).astype(np.uint64)
    copy = apart[0] ^ np.uint64(0b1111111)
    layout = rng.integers(0, 2**63).astype(np.uint64)
    drawings = layout ^ (np.uint64(0b1111) << (np.arange(12, dtype=np.uint64) * np.uint64(4)))  # 8 bits from each other
    sure = drawings[0] ^ (np.uint64(0b111) << np.uint64(60))
    hashes = np.concatenate([apart, [copy], drawings, [sure]]).astype(np.uint64)
    pairs = {tuple(pair) for pair in copies_by_hash(hashes, 8).tolist()}
    assert pairs == {(0, 40), (41, 53)}
    assert len(pairs_by_hash(hashes, 8)) > 12 * 11 / 2
    assert copies_by_hash(hashes, 4).tolist() == pairs_by_hash(hashes, 4).tolist() == [[41, 53]]
