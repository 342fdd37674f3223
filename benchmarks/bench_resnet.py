"""ResNet-18 on images: augmentation of whole batches against PIL, epochs against torchvision's way with fused SGD.

    python benchmarks/bench_resnet.py [--side 128] [--images 192]

One thread, same images, same run; CPU seconds. Augmentation is compared on images of 64 and of `side` pixels, an
epoch on those of `side` pixels. torchvision draws one change for all images of a batch, so that images which each have
their own go through PIL one by one. An epoch in bfloat16 has the faster of two peers: float32, and autocast.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import torch
from peers import Pictures, product_rate, seconds
from torchvision import models, transforms

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.augment import KINDS
from driftline.eval.engine.deep import MEAN, STD, Deep
from driftline.eval.engine.fused import has_half
from driftline.eval.engine.linear import LinearSettings, fit

CLASSES, BATCH = 11, 64


def pictures(n: int, side: int, rng: np.random.Generator) -> tuple[Pictures, np.ndarray, np.ndarray]:
    """The user's data, and the same as arrays."""
    x, y = rng.integers(0, 256, (n, side, side, 3)).astype(np.uint8), rng.integers(0, CLASSES, n)
    change = transforms.Compose(
        [
            transforms.RandomCrop(side, padding=side // 8),
            transforms.RandomRotation(10),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    return Pictures(x, y, change), x, y


def augmentation(theirs: Pictures, resident: torch.Tensor, rng: np.random.Generator) -> tuple[float, float]:
    """Seconds for all images: one by one through PIL, and in batches."""
    net = Deep.new("resnet18", CLASSES, KINDS, rng, "cpu", False)

    def one_by_one() -> None:
        for i in range(len(theirs)):
            theirs[i]

    def in_batches() -> None:
        for part in resident.split(BATCH):
            net.view(part)

    in_batches()
    return seconds(one_by_one), seconds(in_batches)


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--images", type=int, default=192)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = rng_for(0, "resnet")
    found: dict[str, float] = {}
    for side in sorted({64, given.side}):
        theirs, x, y = pictures(given.images, side, rng)
        by_pil, by_batch = augmentation(theirs, torch.from_numpy(x), rng)
        found[f"pil_us_{side}"], found[f"batch_us_{side}"] = (1e6 * s / given.images for s in (by_pil, by_batch))
        found[f"augmentation_{side}"] = by_pil / by_batch

    user = models.resnet18(num_classes=CLASSES)

    def users_epoch(half: bool = False) -> None:
        optimiser = torch.optim.SGD(user.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5, fused=True)
        for bx, by in torch.utils.data.DataLoader(theirs, BATCH, shuffle=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = torch.nn.functional.cross_entropy(user(bx), by)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    peers = []
    for half in {False, has_half()}:
        users_epoch(half)
        peers.append(seconds(lambda half=half: users_epoch(half)))  # type: ignore[misc]
    settings = LinearSettings(lr=0.01, weight_decay=1e-5, batch=BATCH, epochs=1, decay_after=30)
    for name, mixed in (("float32", False), ("bfloat16", True)):
        net = Deep.new("resnet18", CLASSES, KINDS, rng, "cpu", mixed)
        fit(net, x, y, settings, rng)
        users = min(peers) if mixed else peers[0]
        found[f"epoch_{name}"] = users / seconds(lambda net=net: fit(net, x, y, settings, rng))  # type: ignore[misc]
    found["loop_ms_an_image"] = 1e3 * peers[0] / given.images
    found["sgemm_gflops"] = product_rate(torch.float32) / 1e9
    print(json.dumps({k: round(v, 3) for k, v in found.items()}, indent=1))


if __name__ == "__main__":
    main()
