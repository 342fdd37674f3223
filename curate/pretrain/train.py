"""The loop of pre-training: draws, one pass, one update; kept after every epoch, and goes on from there."""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.atomic_io import fingerprint, read_json, write_bytes, write_json
from curate.core.errors import BadConfig
from curate.core.run_log import RunLog
from curate.core.seeding import rng_for
from curate.encoders import Vectors, unit
from curate.encoders.network import resolve_device
from curate.pretrain import Recipe
from curate.pretrain.gather import Pictures
from curate.pretrain.moco import Moco
from curate.pretrain.probe import Probe
from curate.pretrain.views import draw, plain, view

WEIGHTS, FACTS, STATE = "weights.safetensors", "pretrain.json", "state.pt"


@dataclass(frozen=True)
class Team:
    """This process among those that torchrun started; alone, it is the first of one."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, device: str) -> Team:
        """Meet the others, if there are any."""
        import torch.distributed as dist

        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        return cls(int(os.environ.get("RANK", "0")), size)

    @contextmanager
    def turns(self) -> Iterator[None]:
        """The first process does it, then the others find it done."""
        import torch.distributed as dist

        if self.rank > 0:
            dist.barrier()
        yield
        if self.rank == 0 and self.size > 1:
            dist.barrier()

    def mean(self, parameters: Any) -> None:
        """Gradients become their means over all processes."""
        import torch.distributed as dist

        if self.size > 1:
            for p in parameters:
                dist.all_reduce(p.grad)
                p.grad /= self.size

    def together(self, part: Any) -> Any:
        """Rows of all processes, in order of rank."""
        import torch
        import torch.distributed as dist

        if self.size == 1:
            return part
        parts = [torch.empty_like(part) for _ in range(self.size)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)


def pretrain(
    pictures: Pictures,
    recipe: Recipe,
    out: Path,
    seed: int = 0,
    device: str = "auto",
    run_log: RunLog | None = None,
    probe: Probe | None = None,
    probe_every: int = 5,
) -> dict[str, Any]:
    """Write weights.safetensors (the query encoder, names as in timm) and pretrain.json into `out`; returns the latter.

    An `out` that is finished with the same pictures, recipe and seed is left as it is; one that was interrupted goes
    on after its last whole epoch, with the same numbers. Raises BadConfig for fewer pictures than two batches, and for
    an `out` that was begun with other settings.
    """
    run_log = run_log or RunLog()
    device = resolve_device(device)
    team = Team.join(device)
    n = len(pictures.x)
    if n < 2 * recipe.batch or recipe.batch % (team.size * 2):
        raise BadConfig(
            f"There are {n:,} images, the batch is {recipe.batch}, on {team.size} processes.",
            "Expected at least two batches of images, and a batch that the processes can share.",
            "Set a smaller batch (--set batch=…), or take more images: features of so few rarely help.",
        )
    queue = min(recipe.queue, n // 2 // recipe.batch * recipe.batch)  # an image must not meet its own last key
    identity = {"recipe": asdict(recipe), "seed": seed, "pictures": pictures.sha256}
    key = fingerprint(identity)
    if (out / FACTS).is_file():
        if (done := read_json(out / FACTS))["key"] == key:
            return dict(done)
        raise BadConfig(
            f"{out} was finished with other images, settings or seed.", "Expected the same ones.", "Take another --out."
        )
    work = _Work(recipe, Moco.new(recipe, queue, seed, device), pictures.x, device, team, seed)
    losses, probed, seconds = _resumed(out / STATE, key, work)
    with run_log.progress("pre-training", recipe.epochs * work.batches, "batches") as tick:
        tick(len(losses) * work.batches)
        for epoch in range(len(losses), recipe.epochs):
            clock = time.monotonic()
            losses.append(work.epoch(epoch, tick))
            seconds += time.monotonic() - clock
            if probe is not None and ((epoch + 1) % probe_every == 0 or epoch + 1 == recipe.epochs):
                probed.append((epoch + 1, probe.accuracy(work.features)))
                run_log.write("probe", epoch=epoch + 1, accuracy=probed[-1][1])
            run_log.write("epoch", epoch=epoch + 1, loss=losses[-1], seconds=round(seconds, 1))
            if team.rank == 0 and epoch + 1 < recipe.epochs:
                write_bytes(out / STATE, _bytes(work.state() | {"key": key, "told": [losses, probed, seconds]}))
    facts = identity | {
        "key": key,
        "images": n,
        "dropped": dict(pictures.dropped),
        "queue": queue,
        "batches": work.batches * recipe.epochs,
        "loss": [round(v, 5) for v in losses],
        "probe": probed,
        "images_per_second": round(n * recipe.epochs / seconds, 1) if seconds else None,
        "device": device,
        "processes": team.size,
    }
    if team.rank == 0:
        _finish(out, work.moco, facts)
    return facts


def _finish(out: Path, moco: Moco, facts: dict[str, Any]) -> None:
    from safetensors.torch import save

    weights = {k: v.detach().cpu().contiguous() for k, v in moco.query["backbone"].state_dict().items()}
    write_bytes(out / WEIGHTS, save(weights))
    write_json(out / FACTS, facts)
    (out / STATE).unlink(missing_ok=True)


def _bytes(state: dict[str, Any]) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _resumed(path: Path, key: str, work: _Work) -> tuple[list[float], list[tuple[int, float]], float]:
    """What a state tells; a new beginning where there is none."""
    import torch

    if not path.is_file():
        return [], [], 0.0
    state = torch.load(path, map_location=work.device, weights_only=True)
    if state["key"] != key:
        raise BadConfig(
            f"{path.parent} was begun with other images, settings or seed.",
            "Expected the same ones.",
            "Take another --out, or delete the folder.",
        )
    work.restore(state)
    losses, probed, seconds = state["told"]
    return list(losses), [(int(a), float(b)) for a, b in probed], float(seconds)


class _Work:
    """One process's part: networks, optimiser, images."""

    def __init__(self, recipe: Recipe, moco: Moco, x: Any, device: str, team: Team, seed: int) -> None:
        import torch

        self.recipe, self.moco, self.x, self.device, self.team, self.seed = recipe, moco, x, device, team, seed
        self.batches = len(x) // recipe.batch
        self.weights = list(moco.query.parameters())
        self.rule = torch.optim.SGD(self.weights, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
        half = recipe.precision == "bfloat16" or (recipe.precision == "auto" and device.startswith("cuda"))
        self.cast: Callable[[], Any] = lambda: torch.autocast(
            device.partition(":")[0], dtype=torch.bfloat16, enabled=half
        )

    def epoch(self, number: int, tick: Callable[[int], None]) -> float:
        """One pass over the images, without the last batch that is not full; returns the mean loss."""
        order = rng_for(self.seed, "pretrain", "order", number).permutation(len(self.x))
        self.moco.query.train()
        self.moco.key.train()
        if number == 0:
            self.fill(order)
        total = 0.0
        for i in range(self.batches):
            done = (number * self.batches + i) / (self.recipe.epochs * self.batches)
            for group in self.rule.param_groups:
                group["lr"] = self.recipe.lr * 0.5 * (1 + math.cos(math.pi * done))
            total += self.update(order[i * self.recipe.batch :][: self.recipe.batch], number, i)
            tick(1)
        return total / self.batches

    def fill(self, order: Any) -> None:
        """Keys of views take the place of the queue's random directions before the first update. Those would teach
        that all images are alike: alike, and unlike what is random, is the cheapest way to tell a positive."""
        import torch

        recipe, share = self.recipe, self.recipe.batch // self.team.size
        for i in range(-(-len(self.moco.queue) // recipe.batch)):
            chosen = np.resize(np.roll(order, -i * recipe.batch), recipe.batch)[self.team.rank * share :][:share]
            rng = rng_for(self.seed, "pretrain", "fill", i, self.team.rank)
            drawn = draw(share, recipe.size, recipe.room, rng)
            views = view(self.images(chosen), drawn, recipe.size)
            with torch.no_grad(), self.cast():
                keys = self.moco.keys(views)
            self.moco.enqueue(self.team.together(keys))

    def update(self, chosen: Any, epoch: int, number: int) -> float:
        """One batch. Every process draws for the whole of it and takes its share."""
        import torch

        recipe = self.recipe
        rng = rng_for(self.seed, "pretrain", "draws", epoch, number)
        drawn = [draw(len(chosen), recipe.size, recipe.room, rng) for _ in range(2)]
        share = len(chosen) // self.team.size
        low = self.team.rank * share
        mixed = torch.from_numpy(rng.permutation(share)).to(self.device)
        x = self.images(np.sort(chosen[low : low + share]))
        first, second = (view(x, part.part(low, low + share), recipe.size) for part in drawn)
        self.rule.zero_grad(set_to_none=True)
        with self.cast():
            loss, keys = self.moco.loss(first, second, mixed)
        loss.backward()
        self.team.mean(self.weights)
        self.rule.step()
        self.moco.follow()
        self.moco.enqueue(self.team.together(keys))
        return float(loss.detach())

    def images(self, positions: Any) -> Any:
        """Of the images learned from: see `floats`."""
        return self.floats(self.x[positions])

    def floats(self, x: Any) -> Any:
        """uint8 (n, room, room, 3) → (n, 3, room, room) float32, 0 … 255, on the device."""
        import torch

        pixels = torch.from_numpy(np.ascontiguousarray(x)).to(self.device)
        return pixels.permute(0, 3, 1, 2).contiguous().float()

    def features(self, x: Any) -> Vectors:
        """uint8 (N, room, room, 3) → unit vectors (N, D) of the query encoder."""
        import torch

        self.moco.query.eval()
        out = []
        for low in range(0, len(x), 256):
            floats = self.floats(x[low : low + 256])
            whole = view(floats, plain(len(floats), floats.shape[-1]), self.recipe.size)
            with torch.inference_mode(), self.cast():
                out.append(self.moco.query["backbone"](whole).float().cpu().numpy())
        return unit(np.concatenate(out))

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on; draws come from its number."""
        moco = self.moco
        return {
            "query": moco.query.state_dict(),
            "key_encoder": moco.key.state_dict(),
            "queue": moco.queue,
            "at": moco.at,
            "rule": self.rule.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.moco.query.load_state_dict(state["query"])
        self.moco.key.load_state_dict(state["key_encoder"])
        self.moco.queue.copy_(state["queue"])
        self.moco.at = int(state["at"])
        self.rule.load_state_dict(state["rule"])
