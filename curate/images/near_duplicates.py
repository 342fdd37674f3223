"""Near-duplicates: found by perceptual hashes and embedding cosines, grouped and reported.

The hash is the usual pHash of 64 bits: luminance, 32 × 32 by area, discrete cosine transform, its 8 × 8 lowest
frequencies compared with their median. Hashes of copies that were resized or compressed again differ in a few bits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.late import Image, faiss, sparse, torch
from driftline.curate.foreign.images import as_rgb, open_image

Hashes = npt.NDArray[np.uint64]
Pairs = npt.NDArray[np.int64]
SIDE, LOW = 32, 8
BLOCK = 1024  # images that are hashed at once
THUMB = 64  # edge in pixels of the image that is hashed
QUERIES = 4096  # hashes per search
COSINES = np.cos(np.pi * (2 * np.arange(SIDE) + 1) * np.arange(LOW)[:, None] / (2 * SIDE))  # of a DCT
SURE_BITS, CROWD = 4, 2  # see `copies_by_hash`
FEW_BITS = 6  # with more bits the parts of a hash are too short to be selective


def perceptual_hashes(batch: "torch.Tensor") -> Hashes:
    """uint8 torch tensor (N, 3, H, W) → (N,) uint64."""
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    luma = (batch.float() * weights).sum(1, keepdim=True)
    small = torch.nn.functional.adaptive_avg_pool2d(luma, SIDE)[:, 0].double().numpy()
    low = (COSINES @ small @ COSINES.T)[:, :LOW, :LOW].reshape(len(small), LOW * LOW)
    bits = low > np.median(low, axis=1, keepdims=True)
    powers = np.uint64(1) << np.arange(LOW * LOW, dtype=np.uint64)
    return np.asarray((bits * powers).sum(1, dtype=np.uint64), np.uint64)


def thumbnail(data: bytes, decoded: "Image.Image | None" = None) -> "torch.Tensor":
    """The image, squeezed to a (3, THUMB, THUMB) uint8 torch tensor, as input of `perceptual_hashes`.

    decoded: the image in RGB, where it is at hand; it is used where it is what would be decoded here. JPEG decoders
    give a small image at little cost. Every hash must use this function: other decoding gives other bits.
    """
    if decoded is None or min(decoded.size) >= 2 * THUMB:  # others are decoded as they are
        with open_image(data, "An image") as image:
            whole = image.size
            image.draft("RGB", (THUMB, THUMB))
            if decoded is None or image.size != whole:  # drafted smaller
                decoded = as_rgb(image)
    small = decoded.resize((THUMB, THUMB), Image.Resampling.BOX)
    return torch.from_numpy(np.array(small)).permute(2, 0, 1)


def hashes_of(images: Iterable[bytes]) -> Hashes:
    """(N,) perceptual hashes of encoded images."""
    small, hashes = map(thumbnail, images), [np.zeros(0, np.uint64)]
    while block := list(islice(small, BLOCK)):
        hashes.append(perceptual_hashes(torch.stack(block)))
    return np.concatenate(hashes)


def pairs_by_hash(hashes: Hashes, bits: int) -> Pairs:
    """Pairs (P, 2), smaller index first, that link all hashes that differ in at most `bits`. Exact.

    Equal hashes are chained, so that 1,000 copies of one image give 999 pairs and not half a million.
    """
    values, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    between = first[_pairs(values, bits)]
    order = np.argsort(inverse, kind="stable")
    same = inverse[order][1:] == inverse[order][:-1]
    chained = np.stack([order[:-1][same], order[1:][same]], 1)
    return np.sort(np.concatenate([between, chained]).astype(np.int64), axis=1)


def copies_by_hash(hashes: Hashes, bits: int) -> Pairs:
    """Pairs (P, 2) of near-duplicates: that differ in at most `bits`, beyond SURE_BITS only where neither is as near to
    more than CROWD others. Pictures of one layout, as drawings on white paper, are near each other by the dozen and no
    copies (measured: benchmarks/near_copies.py). SURE_BITS is the default of releases: each false pair joins the groups
    of two uploaders, and what is joined cannot be divided between training and tests."""
    pairs = pairs_by_hash(hashes, bits)
    far = np.bitwise_count(hashes[pairs[:, 0]] ^ hashes[pairs[:, 1]]) > SURE_BITS
    crowded = np.bincount(pairs[far].ravel(), minlength=len(hashes)) > CROWD
    return pairs[~far | ~crowded[pairs].any(1)]


def _pairs(values: Hashes, bits: int) -> Pairs:
    """Pairs (P, 2) of different hashes that differ in at most `bits`."""
    return _pairs_by_parts(values, bits) if bits <= FEW_BITS else _pairs_by_all(values, bits)


def _pairs_by_all(values: Hashes, bits: int) -> Pairs:
    """Compare every hash with every other."""
    codes = np.ascontiguousarray(values.view(np.uint8).reshape(-1, 8))
    index = faiss.IndexBinaryFlat(64)
    index.add(codes)
    pairs = [np.zeros((0, 2), np.int64)]
    for low in range(0, len(codes), QUERIES):
        limits, _, near = index.range_search(codes[low : low + QUERIES], bits + 1)  # faiss: strictly below
        left = np.repeat(np.arange(low, low + len(limits) - 1), np.diff(limits).astype(np.int64))
        pairs.append(np.stack([left, near], 1)[left < near])
    return np.concatenate(pairs)


def _pairs_by_parts(values: Hashes, bits: int) -> Pairs:
    """Multi-index hashing [Norouzi et al. 2012]: split each hash into bits + 1 parts; two hashes that differ in at most
    `bits` agree in at least one part. Per part the hashes are sorted, so that equal parts are adjacent, and each hash
    is compared with its successors at distance 1, 2, … while their parts are equal."""
    edges = np.linspace(0, 64, bits + 2).astype(int)
    pairs = [np.zeros((0, 2), np.int64)]
    for low, high in pairwise(edges.tolist()):
        part = (values >> np.uint64(low)) & np.uint64((1 << (high - low)) - 1)
        order = np.argsort(part, kind="stable")
        hashed, parts = values[order], part[order]
        left = np.arange(len(values))
        for step in range(1, len(values)):
            left = left[left < len(values) - step]
            left = left[parts[left] == parts[left + step]]
            if not len(left):
                break
            near = left[np.bitwise_count(hashed[left] ^ hashed[left + step]) <= bits]
            if len(near):
                pairs.append(np.sort(np.stack([order[near], order[near + step]], 1), axis=1))
    return np.unique(np.concatenate(pairs), axis=0)


def near_stored(new: Hashes, stored: Hashes, bits: int) -> npt.NDArray[np.bool_]:
    """(N,) which of N new hashes differ in at most `bits` bits from one of M stored ones. Exact."""
    values, number = np.unique(np.concatenate([new, stored]), return_inverse=True)
    is_stored = np.zeros(len(values), bool)
    is_stored[number[len(new) :]] = True
    near, pairs = is_stored.copy(), _pairs(values, bits)
    for one, other in (pairs.T, pairs.T[::-1]):
        near[one[is_stored[other]]] = True
    return near[number[: len(new)]]


def pairs_by_cosine(vectors: npt.NDArray[np.float32], least: float, block: int = 2048) -> Pairs:
    """All pairs (P, 2), smaller index first, of unit vectors (N, D) with at least this cosine. Exact, N² work."""
    pairs = [np.zeros((0, 2), np.int64)]
    for low in range(0, len(vectors), block):
        scores = vectors[low : low + block].astype(np.float32) @ vectors[low:].astype(np.float32).T
        left, right = np.nonzero(scores >= least)
        pairs.append(np.stack([left, right], 1)[left < right] + low)
    return np.concatenate(pairs)


def group_pairs(pairs: Pairs, n: int) -> npt.NDArray[np.int64]:
    """(n,) int64 group of each item: the smallest index that it is linked with, directly or through others."""
    graph = sparse.coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    labels = sparse.csgraph.connected_components(graph, directed=False)[1]
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(first[group], np.int64)


def near_copies(hashes: Hashes, bits: int) -> npt.NDArray[np.int64]:
    """(N,) hashes → (N,) group of each image, of `copies_by_hash`."""
    return group_pairs(copies_by_hash(hashes, bits), len(hashes))


def copy_report(group: npt.NDArray[np.int64], columns: Mapping[str, Sequence[Any]], most: int = 50) -> dict[str, Any]:
    """Counts of near-duplicates: images, groups, images in groups, and how many groups hold several values of a column.

    group: (n,) from `near_copies`. columns: name → n values ("id", "bucket", "class", "split_0", …). examples: the ids
    of the first `most` groups.
    """
    sizes = Counter(group.tolist())
    several = {g for g, size in sizes.items() if size > 1}
    members: dict[int, list[int]] = {}
    for i, g in enumerate(group.tolist()):
        if g in several:
            members.setdefault(g, []).append(i)
    across = {
        name: sum(len({values[i] for i in rows}) > 1 for rows in members.values())
        for name, values in columns.items()
        if name != "id"
    }
    examples = [[columns["id"][i] for i in rows] for rows in members.values()][:most]
    return {
        "images": len(group),
        "groups": len(members),
        "images_in_groups": sum(map(len, members.values())),
        "groups_across": across,
        "examples": examples,
    }
