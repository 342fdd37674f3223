"""Seq-to-Final: epochs against torchvision's way with fused Adam, and what the reference's way of working costs.

    python benchmarks/seq_to_final.py [--images 1200] [--networks conv-1,res-4] [--compile]

One thread, same images, same run, CPU seconds, medians of three. An epoch with augmentation is compared with the loop
for each network (in bfloat16 with the faster of it in float32 and under autocast), a whole method with the reference's
way, which is counted in parts: its epoch (float32, four evaluation passes) against ours, and fits that
methods share. Beside them, what the reference took itself, on another machine.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from peers import Pictures, product_rate, seconds
from torch import nn
from torchvision import models, transforms

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine import fused
from driftline.eval.engine.deep import MEAN, STD
from driftline.eval.finetuning.fit import Fit, scores_of
from driftline.eval.finetuning.modes import Hyper, Rule
from driftline.eval.finetuning.objectives import Samples
from driftline.eval.nets import build
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

CLASSES, BATCH, SIDE = 10, 100, 32
HALF = {"float32": False, "bfloat16": True} if fused.has_half() else {"float32": False}  # else minutes
REFERENCE_EPOCH = 5.0  # CPU-s: Conv-1, 3,200 + 800 images, one thread [spec, section 5; another machine]


def plain_conv_1() -> nn.Module:
    """Conv-1 of torch's own layers."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(64, 512, 3, 2, 1, bias=False), nn.BatchNorm2d(512), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, CLASSES),
    )  # fmt: skip


PEERS: dict[str, Callable[[], nn.Module]] = {
    "conv-1": plain_conv_1,
    "res-4": lambda: models.resnet18(num_classes=CLASSES),
}


def resident(n: int, seed: int, device: str = "cpu") -> Samples:
    """Random images; the arithmetic does not mind."""
    rng = rng_for(seed, "seq-to-final bench")
    x = torch.from_numpy(rng.integers(0, 256, (n, SIDE, SIDE, 3)).astype(np.uint8)).to(device)
    return Samples(x, torch.from_numpy(rng.integers(0, CLASSES, n)).to(device), f"{seed}-{n}")


def users_epoch(net: nn.Module, data: Samples, half: bool = False) -> Callable[[], None]:
    """PIL images one by one, torchvision's transforms, DataLoader, fused Adam. half: under autocast to bfloat16."""
    change = transforms.Compose(
        [
            transforms.RandomCrop(SIDE, padding=SIDE // 8),
            transforms.RandomHorizontalFlip(),
            transforms.RandomRotation(10),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    loader = torch.utils.data.DataLoader(Pictures(data.x.numpy(), data.y.numpy(), change), BATCH, shuffle=True)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def epoch() -> None:
        net.train()
        for x, y in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = nn.functional.cross_entropy(net(x), y)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return epoch


def references_epoch(net: nn.Module, train: Samples, val: Samples) -> Callable[[], None]:
    """The reference's way: raw float32 pixels in a DataLoader, L2 by autograd, then loss and accuracy on train and
    validation data in a pass of their own each [spec, section 3, common; section 6]."""
    sides = [
        torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(one.x.permute(0, 3, 1, 2).float().contiguous(), one.y), BATCH, shuffle=True
        )
        for one in (train, val)
    ]
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    decayed = [p for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear) for p in m.parameters()]

    def epoch() -> None:
        net.train()
        for x, y in sides[0]:
            loss = nn.functional.cross_entropy(net(x), y) + 1e-4 * sum((p**2).sum() for p in decayed)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        net.eval()
        with torch.no_grad():
            for loader in sides:
                sum(float(nn.functional.cross_entropy(net(x), y)) for x, y in loader)
                sum(int((net(x).argmax(1) == y).sum()) for x, y in loader)

    return epoch


def ours(
    name: str, train: Samples, val: Samples, half: bool, augment: bool, compiled: bool = False
) -> Callable[[], None]:
    """One epoch of a fit, its evaluation included."""
    net = build(name, CLASSES, (SIDE, SIDE, 3), rng_for(0)).to(train.y.device)
    kinds = ("flip", "crop", "rotate") if augment else ()
    rule = Rule(epochs=10**6, patience=10**6, augment=kinds, normalise=augment, half=half)
    fit = Fit(net, [train], val, Hyper(), rule, 0, compiled=compiled)

    def epoch() -> None:
        fit.rule = replace(rule, epochs=fit.epoch + 1)
        fit.run()

    return epoch


def shared() -> float:
    """Fits that FT, LP-FT and ST-B ask for with the paper's grids, for each that is done when they share a store (on
    features, one epoch: the counts are what matters)."""
    rng = rng_for(2)
    splits = {
        name: Split(rng.normal(size=(30, 8)).astype(np.float32), np.arange(30) % 3) for name in ("train", "val", "test")
    }
    stream = Stream("toy", [Step(t, str(t), splits) for t in range(3)], ["a", "b", "c"], sha256="toy")
    settings = {"network": "mlp", "budget": "paper", "fidelity": "paper-code", "epochs": 1}
    with TemporaryDirectory() as folder:
        results = evaluate(stream, "seq-to-final", ["ft", "lp-ft", "st-b"], settings=settings, out=Path(folder))[
            "results"
        ]
    asked, found = (sum(r["learner_facts"][name] for r in results) for name in ("fits", "found"))
    return asked / (asked - found)


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--networks", default="conv-1,res-4")
    parser.add_argument("--compile", action="store_true", help="also what torch.compile does to our epoch")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, few = resident(given.images, 0), resident(BATCH, 1)
    found: dict[str, float] = {"sgemm_gflops": product_rate(torch.float32) / 1e9}
    found["bfloat16_gflops"] = product_rate(torch.bfloat16) / 1e9 if fused.has_half() else 0.0
    names = given.networks.split(",")
    for name in names:
        kinds = {"user": users_epoch(PEERS[name](), data)}
        if fused.has_half():
            kinds["user_half"] = users_epoch(PEERS[name](), data, half=True)
        kinds |= {told: ours(name, data, few, h, augment=True) for told, h in HALF.items()}
        if given.compile:
            kinds |= {f"{told}_compiled": ours(name, data, few, h, True, compiled=True) for told, h in HALF.items()}
        for one in kinds.values():
            one()
        taken = {kind: seconds(one) for kind, one in kinds.items()}
        found[f"{name}_user_s_20k"] = taken["user"] * 20_000 / given.images
        for told in HALF:
            found[f"{name}_{told}_s_20k"] = taken[told] * 20_000 / given.images
            peer = min(taken["user"], taken.get("user_half", taken["user"])) if HALF[told] else taken["user"]
            found[f"{name}_{told}"] = peer / taken[told]
            if given.compile:
                found[f"{name}_{told}_compiled"] = taken[told] / taken[f"{told}_compiled"]
    for told in HALF:
        found[f"tuned_epoch_{told}"] = min(found[f"{name}_{told}"] for name in names)
    if fused.kind() == "amx":
        found["tuned_epoch_amx"] = found["tuned_epoch_bfloat16"]
    train, val = resident(given.images * 4 // 5, 2), resident(given.images // 5, 3)
    epochs = {
        "reference": references_epoch(plain_conv_1(), train, val),
        "ours": ours("conv-1", train, val, fused.has_half(), False),
    }
    for one in epochs.values():
        one()
    taken = {kind: seconds(one) for kind, one in epochs.items()}
    found["conv-1_reference_epoch_s"] = taken["reference"] * 4000 / given.images
    found["conv-1_our_epoch_s"] = taken["ours"] * 4000 / given.images
    found["part_epoch"] = taken["reference"] / taken["ours"]
    found["part_shared_fits"] = shared()
    found["method"] = found["part_epoch"]  # a whole grid, nothing shared
    found["method_shared"] = found["part_epoch"] * found["part_shared_fits"]
    found["against_the_references_own_epoch"] = REFERENCE_EPOCH / found["conv-1_our_epoch_s"]
    found["predictions_that_bfloat16_changes"] = changed(train) if fused.has_half() else 0.0
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=1))


def changed(data: Samples) -> float:
    """Share of predictions of one trained network that differ between float32 and bfloat16."""
    fit = Fit(build("conv-1", CLASSES, (SIDE, SIDE, 3), rng_for(0)), [data], data, Hyper(), Rule(epochs=2), 0).run()
    answers = [scores_of(fit.net, data.x, Rule(half=half)).argmax(1) for half in (False, True)]
    return float((answers[0] != answers[1]).float().mean())


if __name__ == "__main__":
    main()
