"""Pre-training's images per second against the barest loop on the same data, device and network.

    python benchmarks/pretrain.py            two minutes on one core

The bare loop has the same two encoders, loss, queue and optimiser, and views that lie ready: no drawing, no gathering,
no shuffled keys, no state on disk. Goal: at least 90 % of its images per second [issue 11]. Also timed: views by
torchvision, an image at a time, as MoCo's reference code makes them.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from driftline.curate.pretrain import RECIPES, Recipe
from driftline.curate.pretrain.moco import Moco, info_nce
from driftline.curate.pretrain.train import ProcessGroup, Training
from driftline.curate.pretrain.views import draw_views, render_views


def updates(recipe: Recipe, device: str) -> tuple[dict[str, Callable[[int], object]], Any]:
    """One update of ours and of the bare loop, by number; and the pixels of a batch."""
    import torch

    x = np.random.default_rng(0).integers(0, 256, (recipe.batch * 4, recipe.room, recipe.room, 3), np.uint8)
    ours, bare = (
        Training(recipe, Moco(recipe, recipe.queue, 0, device), x, device, ProcessGroup(), 0) for _ in range(2)
    )
    numbers = torch.arange(recipe.batch, device=device)
    pixels = ours.images(np.arange(recipe.batch))
    ready = [
        render_views(pixels, draw_views(recipe.batch, recipe.size, recipe.room, np.random.default_rng(i)), recipe.size)
        for i in (0, 1)
    ]
    order = np.random.default_rng(1).permutation(len(x))

    def embedded(network: Any, batch: Any) -> Any:
        parts = [network["head"](network["backbone"](part)) for part in batch.chunk(recipe.groups)]
        return torch.nn.functional.normalize(torch.cat(parts).float(), dim=1)

    def barest(number: int) -> None:
        bare.optimiser.zero_grad(set_to_none=True)
        with bare.cast():
            q = embedded(bare.moco.query, ready[0])
            with torch.no_grad():
                k = embedded(bare.moco.key, ready[1])
            loss = info_nce(q, k, bare.moco.queue, recipe.temperature, numbers[:, None] == bare.moco.owner)
        loss.backward()
        bare.optimiser.step()
        bare.moco.update_key_encoder()
        bare.moco.enqueue(k, numbers)

    return {"driftline": lambda i: ours.update(order[: recipe.batch], 0, i), "bare": barest}, pixels


def main() -> None:
    """Interleave, print medians as JSON; the share is the median of pairs, as a core's speed changes within seconds."""
    import torch
    from PIL import Image
    from torchvision import transforms

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--network", default="resnet10t", help="of timm")
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipe = replace(RECIPES["small"], precision=options.precision, network=options.network)
    ways, pixels = updates(recipe, "cpu")
    theirs = transforms.Compose(
        [
            transforms.RandomResizedCrop(recipe.size, scale=(0.2, 1.0)),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            transforms.RandomGrayscale(p=0.2),
            transforms.RandomApply([transforms.GaussianBlur(9, (0.1, 2.0))], p=0.5),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    images = [Image.fromarray(one) for one in pixels.permute(0, 2, 3, 1).byte().numpy()]
    ways["views, driftline"] = lambda i: [
        render_views(pixels, draw_views(recipe.batch, recipe.size, recipe.room, np.random.default_rng(k)), recipe.size)
        for k in (0, 1)
    ]
    ways["views, torchvision"] = lambda i: [theirs(image) for image in images for _ in range(2)]
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(options.repeats + 1):
        for name, way in list(ways.items())[:: -1 if i % 2 else 1]:
            clock = time.process_time()
            way(i)
            spent[name].append(time.process_time() - clock)
    median = {name: float(np.median(times[1:])) for name, times in spent.items()}
    found = {
        "network": recipe.network,
        "precision": options.precision,
        "images_per_core_second": {name: round(recipe.batch / value, 1) for name, value in median.items()},
        "share_of_bare": round(float(np.median(np.divide(spent["bare"], spent["driftline"])[1:])), 3),
        "views_faster_than_torchvision": round(median["views, torchvision"] / median["views, driftline"], 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
