"""Pre-training: epochs, updates, state after every epoch from which an interrupted training continues."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from safetensors.torch import save
from torch import Tensor

from driftline.curate.core.atomic_io import fingerprint, read_json, write_bytes, write_json, writing
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders.backbone import resolve_device
from driftline.curate.encoders.weights import write_seen
from driftline.curate.pretrain import Recipe
from driftline.curate.pretrain.moco import Moco
from driftline.curate.pretrain.pool import ImageArray
from driftline.curate.pretrain.views import draw_views, render_views

Positions = npt.NDArray[np.int64]
WEIGHTS, FACTS, STATE = "weights.safetensors", "pretrain.json", "state.pt"


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that torchrun started; without torchrun, one."""

    rank: int = 0
    """number of this process"""
    size: int = 1
    """number of processes"""

    @classmethod
    def join(cls, device: str) -> "ProcessGroup":
        """Connect to the other processes, if there are any."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        return cls(int(os.environ.get("RANK", "0")), size)

    @contextmanager
    def first_then_others(self) -> Iterator[None]:
        """Run the block in the first process, then in the others, which find its files."""
        if self.rank > 0:
            dist.barrier()
        yield
        if self.rank == 0 and self.size > 1:
            dist.barrier()

    def average_gradients(self, parameters: Any) -> None:
        """Replace gradients by their means over all processes."""
        if self.size > 1:
            for p in parameters:
                dist.all_reduce(p.grad)
                p.grad /= self.size

    def all_gather(self, part: Tensor) -> Tensor:
        """The rows of all processes, in order of rank."""
        if self.size == 1:
            return part
        parts = [torch.empty_like(part) for _ in range(self.size)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)


def pretrain(
    images: ImageArray, recipe: Recipe, out: Path, seed: int = 0, device: str = "auto", run_log: RunLog | None = None
) -> dict[str, Any]:
    """Train, and write weights.safetensors (query encoder, names as in timm), training_data.yaml (what they have seen)
    and pretrain.json, which is returned.

    If `out` is finished with the same images, recipe and seed, nothing is done; if it was interrupted, training
    continues after the last complete epoch with the same numbers. Raises BadConfig for fewer images than two batches,
    for bfloat16 on a CPU, and for an `out` of other images or settings.
    """
    run_log = run_log or RunLog()
    device = resolve_device(device)
    group = ProcessGroup.join(device)
    n = len(images.x)
    if n < 2 * recipe.batch or recipe.batch % (group.size * 2):
        raise BadConfig(
            f"There are {n:,} images, the batch is {recipe.batch}, on {group.size} processes.",
            "Expected at least two batches of images, and a batch that the processes can share equally.",
            "Set a smaller batch (--set batch=…), or use more images: features of so few images rarely help.",
        )
    # at most half of the images, so that few have two keys in it
    queue = min(recipe.queue, n // 2 // recipe.batch * recipe.batch)
    identity = {"recipe": asdict(recipe), "seed": seed, "pictures": images.sha256, "negatives": "other images"}
    key = fingerprint(identity)
    if (out / FACTS).is_file():
        if (done := read_json(out / FACTS))["key"] == key:
            return dict(done)
        raise BadConfig(
            f"{out} was finished with other images, settings or seed.", "Expected the same ones.", "Set another --out."
        )
    # oneDNN's bfloat16 convolutions give NaN at random on processors with AMX, and torch's own are slow.
    if recipe.precision == "bfloat16" and device == "cpu":
        problem = "precision is bfloat16 on a CPU, where pre-training takes many times as long as in float32."
        raise BadConfig(problem, "Expected float32 or auto.", "Leave precision out, or train on a GPU.")
    training = Training(recipe, Moco(recipe, queue, seed, device), images.x, device, group, seed)
    losses, seconds = _resume(out / STATE, key, training)
    with run_log.progress("pre-training", recipe.epochs * training.batches, "batches") as tick:
        tick(len(losses) * training.batches)
        for epoch in range(len(losses), recipe.epochs):
            started = time.monotonic()
            losses.append(training.epoch(epoch, tick))
            seconds += time.monotonic() - started
            run_log.write("epoch", epoch=epoch + 1, loss=losses[-1], seconds=round(seconds, 1))
            if group.rank == 0 and epoch + 1 < recipe.epochs:
                with writing(out / STATE) as file:
                    torch.save(training.state() | {"key": key, "told": [losses, seconds]}, file)
    facts = identity | {
        "key": key,
        "images": n,
        "dropped": dict(images.dropped),
        "tests": images.tests,
        "trained_until": images.seen.trained_until,
        "queue": queue,
        "batches": training.batches * recipe.epochs,
        "loss": [round(v, 5) for v in losses],
        "images_per_second": round(n * recipe.epochs / seconds, 1) if seconds else None,
        "device": device,
        "processes": group.size,
    }
    if group.rank == 0:
        write_seen(out, images.seen)
        _finish(out, training.moco, facts)
    return facts


def _finish(out: Path, moco: Moco, facts: dict[str, Any]) -> None:
    weights = {k: v.detach().cpu().contiguous() for k, v in moco.query["backbone"].state_dict().items()}
    write_bytes(out / WEIGHTS, save(weights))
    write_json(out / FACTS, facts)
    (out / STATE).unlink(missing_ok=True)


def _resume(path: Path, key: str, training: "Training") -> tuple[list[float], float]:
    """(losses, seconds) of the state file, if there is one; restores `training` from it."""
    if not path.is_file():
        return [], 0.0
    state = torch.load(path, map_location=training.device, weights_only=True)
    if state["key"] != key:
        raise BadConfig(
            f"{path.parent} was started with other images, settings or seed.",
            "Expected the same ones.",
            "Set another --out, or delete the folder.",
        )
    training.restore(state)
    losses, seconds = state["told"]
    return list(losses), float(seconds)


class Training:
    """The training of one process: networks, optimiser, images."""

    def __init__(self, recipe: Recipe, moco: Moco, x: Any, device: str, group: ProcessGroup, seed: int) -> None:
        self.recipe, self.moco, self.x, self.device, self.group, self.seed = recipe, moco, x, device, group, seed
        self.batches = len(x) // recipe.batch
        self.weights = list(moco.query.parameters())
        self.optimiser = torch.optim.SGD(self.weights, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
        half = recipe.precision == "bfloat16" or (recipe.precision == "auto" and device.startswith("cuda"))
        self.cast: Callable[[], Any] = lambda: torch.autocast(
            device.partition(":")[0], dtype=torch.bfloat16, enabled=half
        )

    def epoch(self, number: int, tick: Callable[[int], None]) -> float:
        """One pass over the images without a last incomplete batch; returns the mean loss."""
        order = rng_for(self.seed, "pretrain", "order", number).permutation(len(self.x))
        self.moco.query.train()
        self.moco.key.train()
        if number == 0:
            self.fill_queue(order)
        total = 0.0
        for i in range(self.batches):
            done = (number * self.batches + i) / (self.recipe.epochs * self.batches)
            for parameters in self.optimiser.param_groups:
                parameters["lr"] = self.recipe.lr * 0.5 * (1 + math.cos(math.pi * done))
            total += self.update(order[i * self.recipe.batch :][: self.recipe.batch], number, i)
            tick(1)
        return total / self.batches

    def fill_queue(self, order: Positions) -> None:
        """Replace the random vectors of the queue by keys of views before the first update.

        With random negatives, the encoder would learn to map all images to one point, which is far from random vectors.
        """
        recipe, share = self.recipe, self.recipe.batch // self.group.size
        for i in range(-(-len(self.moco.queue) // recipe.batch)):
            batch = np.roll(order, -i * recipe.batch)[: recipe.batch]
            chosen = batch[self.group.rank * share :][:share]
            rng = rng_for(self.seed, "pretrain", "fill", i, self.group.rank)
            parameters = draw_views(share, recipe.size, recipe.room, rng)
            views = render_views(self.images(chosen), parameters, recipe.size)
            with torch.no_grad(), self.cast():
                keys = self.moco.keys(views)
            self.moco.enqueue(self.group.all_gather(keys), self.numbers(batch))

    def update(self, chosen: Positions, epoch: int, number: int) -> float:
        """One batch; returns its loss. Every process draws the views of the complete batch and uses its share."""
        recipe = self.recipe
        rng = rng_for(self.seed, "pretrain", "draws", epoch, number)
        parameters = [draw_views(len(chosen), recipe.size, recipe.room, rng) for _ in range(2)]
        share = len(chosen) // self.group.size
        low = self.group.rank * share
        order = self.numbers(rng.permutation(share))
        chosen = np.sort(chosen.reshape(self.group.size, share), 1).ravel()
        x = self.images(chosen[low : low + share])
        first, second = (render_views(x, p.part(low, low + share), recipe.size) for p in parameters)
        self.optimiser.zero_grad(set_to_none=True)
        with self.cast():
            loss, keys = self.moco.loss(first, second, order, self.numbers(chosen[low : low + share]))
        loss.backward()
        self.group.average_gradients(self.weights)
        self.optimiser.step()
        self.moco.update_key_encoder()
        self.moco.enqueue(self.group.all_gather(keys), self.numbers(chosen))
        return float(loss.detach())

    def numbers(self, positions: Positions) -> Tensor:
        """Positions as int64 on the device."""
        return torch.from_numpy(np.asarray(positions, np.int64)).to(self.device)

    def images(self, positions: Positions) -> Tensor:
        """Some of the training images (n, 3, room, room) float32, 0 … 255, on the device."""
        pixels = torch.from_numpy(np.ascontiguousarray(self.x[positions])).to(self.device)
        return pixels.transpose(2, 3).contiguous().float().transpose(1, 2)  # channels within rows, as views want them

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on; its random numbers depend on its number only."""
        moco = self.moco
        return {
            "query": moco.query.state_dict(),
            "key_encoder": moco.key.state_dict(),
            "queue": moco.queue,
            "owner": moco.owner,
            "at": moco.at,
            "rule": self.optimiser.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.moco.query.load_state_dict(state["query"])
        self.moco.key.load_state_dict(state["key_encoder"])
        self.moco.queue.copy_(state["queue"])
        self.moco.owner.copy_(state["owner"])
        self.moco.at = int(state["at"])
        self.optimiser.load_state_dict(state["rule"])
