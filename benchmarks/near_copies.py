"""How many copies the perceptual hash finds, and how many pairs of different pictures it takes for copies, by bits.

    python benchmarks/near_copies.py [--data ../shared/data] [--most 1500]

Every picture of three collections (Flickr photos of COCO, photographs of the FSA, watercolours of the USDA) is copied
in six ways. Recall: share of copies within so many bits of their original. Pairs: of different files of a collection
within so many bits, which are false unless the collection has copies itself; per thousand pictures. "rule": both of
`copies_by_hash`, up to 8 bits.
"""

import argparse
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from driftline.curate.core.seeding import rng_for
from driftline.curate.images.near_duplicates import Hashes, copies_by_hash, hashes_of, pairs_by_hash

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
COLLECTIONS = {"coco": "coco_subset_256.zip", "fsac": "fsac_thumbs.zip", "usda": "usda_pomological.zip"}
BITS = (2, 4, 6, 8, 10, 12)
FAR = 8  # bits of "rule"


def cropped(image: Image.Image, share: float) -> Image.Image:
    """Without `share` of the width and of the height, half of it at each side."""
    width, height = image.size
    x, y = round(width * share / 2), round(height * share / 2)
    return image.crop((x, y, width - x, height - y))


COPIES: dict[str, Callable[[Image.Image], tuple[Image.Image, int]]] = {  # picture → copy and JPEG quality
    "half the size": lambda image: (image.resize((max(1, image.width // 2), max(1, image.height // 2))), 90),
    "quality 30": lambda image: (image, 30),
    "lighter by a tenth": lambda image: (Image.eval(image, lambda v: min(255, round(1.1 * v))), 90),
    "crop of 2 %": lambda image: (cropped(image, 0.02), 90),
    "crop of 5 %": lambda image: (cropped(image, 0.05), 90),
    "mirror": lambda image: (ImageOps.mirror(image), 90),
}


def encoded(image: Image.Image, quality: int) -> bytes:
    """As JPEG."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def measured(path: Path, most: int) -> dict[str, object]:
    """Recall by kind of copy and bits, and pairs among the originals by bits. most: pictures that are drawn."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(n for n in archive.namelist() if n.lower().endswith((".jpg", ".jpeg", ".png")))
        names = [names[i] for i in np.sort(rng_for(0, "near-duplicates").permutation(len(names))[:most])]
        pictures = [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in names]
    originals = hashes_of(encoded(picture, 95) for picture in pictures)
    shares: dict[str, Any] = {"pictures": len(names)}
    for kind, copy in COPIES.items():
        copies = hashes_of(encoded(*copy(picture)) for picture in pictures)
        apart = np.bitwise_count(originals ^ copies)
        shares[kind] = {str(bits): round(float((apart <= bits).mean()), 3) for bits in BITS}
        shares[kind]["rule"] = by_rule(originals, copies)
    pairs = {str(bits): len(pairs_by_hash(originals, bits)) for bits in BITS}
    pairs["rule"] = len(copies_by_hash(originals, FAR))
    return shares | {"pairs per thousand": {bits: round(1000 * n / len(names), 2) for bits, n in pairs.items()}}


def by_rule(originals: Hashes, copies: Hashes) -> float:
    """Recall of a release's own rule, where every tenth picture has a copy."""
    some = np.arange(0, len(originals), 10)
    linked = {tuple(pair) for pair in copies_by_hash(np.concatenate([originals, copies[some]]), FAR).tolist()}
    return round(float(np.mean([(k, len(originals) + i) in linked for i, k in enumerate(some.tolist())])), 3)


def main() -> None:
    """As JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--most", type=int, default=1500)
    args = parser.parse_args()
    found = {name: measured(args.data / name / file, args.most) for name, file in COLLECTIONS.items()}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
