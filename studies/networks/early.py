"""Train the network whose features the demo evaluates: `python studies/networks/early.py [OUT]`.

It takes some minutes on two cores.

It saw photos of 2004 only, the first year of the world, as the networks of a decade ago saw only photos of their time.
The photos come from a world with another seed, so that they contain no photo of the demo. The folder has the files
that `driftline models train --recipe` writes and its backbones read.
"""

import io
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from driftline.curate.core.atomic_io import write_bytes, write_json
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.pretrain.small_clip import flip_and_shift
from driftline.curate.pretrain.views import ViewParameters, render_views
from driftline.pipelines.demo.draw import CONCEPTS, SCENES, jpeg, photo
from driftline.pipelines.demo.world import END, START

SEED = 90_211  # the demo's worlds use seeds below 90,000
NETWORK, EDGE = "test_resnet", 64
PHOTOS, EPOCHS, BATCH, RATE = 4_000, 20, 128, 3e-3
UNTIL = datetime(2005, 1, 1, tzinfo=UTC)


def unchanged(n: int, room: int) -> ViewParameters:
    """Views of complete images as they are."""
    zero, one = np.zeros(n), np.ones(n)
    same = np.broadcast_to(np.eye(3), (n, 3, 3))
    return ViewParameters(zero, zero, one * room, one * room, flip=zero, sigma=zero, colours=same, contrast=one)


def render(run_log: RunLog) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Photos of one thing or scene each, uint8 (N, EDGE, EDGE, 3), and its number (N,)."""
    names = [*CONCEPTS, *SCENES]
    newest = (UNTIL - START) / (END - START)
    pixels, labels = np.empty((PHOTOS, EDGE, EDGE, 3), np.uint8), np.empty(PHOTOS, np.int64)
    with run_log.progress("render", PHOTOS, "photos") as tick:
        for i in range(PHOTOS):
            rng = rng_for(SEED, "photo", i)
            labels[i] = rng.integers(len(names))
            image = photo([names[labels[i]]], newest * float(rng.random()), rng)
            with Image.open(io.BytesIO(jpeg(image))) as stored:
                pixels[i] = np.asarray(stored.resize((EDGE, EDGE), Image.Resampling.BILINEAR))
            tick(1)
    return pixels, labels


def train(
    pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], out: Path, run_log: RunLog, seed: int, epochs: int
) -> None:
    """Train with labels (AdamW, one-cycle schedule, flips and shifts), save without the last layer.

    pixels: (N, EDGE, EDGE, 3). labels: (N,), from 0 on.
    """
    import timm
    import torch
    from safetensors.torch import save
    from torch.nn import functional

    rng = rng_for(seed, "training")
    torch.manual_seed(int(rng.integers(2**31)))
    network: Any = timm.create_model(NETWORK, num_classes=int(labels.max()) + 1)
    optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=0.05)
    steps = len(pixels) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=epochs * steps, pct_start=0.1)
    with run_log.progress("train", epochs * steps, "steps") as tick:
        for epoch in range(epochs):
            order = rng.permutation(len(pixels))
            total = 0.0
            for start in range(0, steps * BATCH, BATCH):
                chosen = order[start : start + BATCH]
                x = torch.from_numpy(flip_and_shift(pixels[chosen], rng)).permute(0, 3, 1, 2).float()
                logits = network(render_views(x, unchanged(BATCH, EDGE), EDGE))
                loss = functional.cross_entropy(logits, torch.from_numpy(labels[chosen]), label_smoothing=0.1)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
                total += float(loss.detach())
                tick(1)
            run_log.say(f"epoch {epoch + 1}: loss {total / steps:.3f}")
    network.reset_classifier(0)
    state = {k: v.half() if v.dtype == torch.float32 else v for k, v in network.state_dict().items()}
    write_bytes(out / "weights.safetensors", save({k: v.contiguous() for k, v in state.items()}))
    write_json(
        out / "pretrain.json", {"recipe": {"network": NETWORK, "size": EDGE}, "images": len(pixels), "seed": seed}
    )


def main(out: Path) -> None:
    """Render, train."""
    run_log = RunLog()
    pixels, labels = render(run_log)
    train(pixels, labels, out, run_log, SEED, EPOCHS)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "pipelines" / "demo" / "early")
