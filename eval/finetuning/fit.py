"""A fit: Adam from given weights on given data, best epoch by validation accuracy, early stopping."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from driftline.curate.core.errors import Diverged
from driftline.curate.core.seeding import rng_for
from driftline.eval.finetuning.modes import OBJECTIVES, Hyper, Rule
from driftline.eval.finetuning.objectives import Pull, Samples, batches, joint, shown
from driftline.eval.nets.chain import Net, weights_of

CHUNK = 1000  # images evaluated at once
RECOMPILED = 256  # variants of parts, batches and modes that torch may compile


@dataclass(frozen=True)
class Fitted:
    """Result of a fit."""

    state: dict[str, Any]
    """weights of the best epoch: the network's state, by name"""
    accuracy: float
    best_epoch: int
    """its number; 0: before the first epoch"""
    curve: list[float]
    """validation accuracy before the first and after each epoch"""
    steps: int
    hyper: Hyper
    seconds: float = 0.0
    """time on one core, if it was stored"""


@dataclass
class Fit:
    """A fit, epoch after epoch."""

    net: Net
    """starts with its current weights and is changed; only trainable parts learn (see `net.only`)"""
    train: Sequence[Samples]
    """training data, one entry per domain of the objective"""
    val: Samples
    """validation data, tested with the model of the last time"""
    hyper: Hyper
    rule: Rule
    seed: int
    """of order, augmentation and dropout"""
    objective: str = "erm"
    """name in OBJECTIVES, or joint"""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """further arguments of the objective"""
    pulls_of: Callable[[Net], Sequence[Pull]] = lambda net: ()
    """the network → its pulls"""
    renews: bool = False
    """whether the pulls are computed again before each epoch"""
    decays: str = "l2"
    """`hyper.decay` is a factor of Σw² (l2), of Σ|w| (l1), or of the pulls only (pulls)"""
    compiled: bool = False
    """blocks by torch.compile: equal up to rounding"""

    def __post_init__(self) -> None:
        self.epoch = self.steps = self.best_epoch = 0  # epochs and updates of the weights so far
        self.curve: list[float] = []  # validation accuracy before the first and after each epoch
        self.best: dict[str, Any] = {}  # the network's state at the best epoch
        self.rng = rng_for(self.seed, "fit")
        self.net.still, self.net.dropout, self.net.masks = self.rule.still, self.hyper.dropout, self._mask
        self.net.to(memory_format=torch.channels_last)
        if self.compiled:
            _compile(self.net)
        params = [p for p in self.net.parameters() if p.requires_grad]
        decayed = {id(p) for p in weights_of(self.net)} if self.decays == "l2" else set()
        groups = [
            {"params": [p for p in params if id(p) in decayed], "weight_decay": 2 * self.hyper.decay},
            {"params": [p for p in params if id(p) not in decayed], "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.Adam([g for g in groups if g["params"]], lr=self.hyper.lr, fused=True)
        self.pulls = self._pulls()
        self._judge()

    def _pulls(self) -> list[Pull]:
        pulls = list(self.pulls_of(self.net))
        if self.decays == "l1":
            zeros = [(p, torch.zeros_like(p)) for p in weights_of(self.net) if p.requires_grad]
            pulls.append(Pull(zeros, self.hyper.decay, l1=True))
        return pulls

    def run(self) -> "Fit":
        """Run all epochs. Raises Diverged if a loss is not finite."""
        while self.epoch < self.rule.epochs and not stops(self.curve, self.rule):
            self._epoch()
            self.epoch += 1
            self._judge()
        return self

    def result(self) -> Fitted:
        """The best epoch so far."""
        accuracy = self.curve[self.best_epoch]
        return Fitted(self.best, accuracy, self.best_epoch, list(self.curve), self.steps, self.hyper)

    def _mask(self, x: Any, p: float) -> Any:
        """Zeros with probability p (in units of 1/256), else 1/(1 − p); drawn on the CPU, the same on every device."""
        drawn = np.frombuffer(self.rng.bytes(x.numel()), np.uint8)
        mask = torch.from_numpy(drawn >= round(256 * p)).to(x.device).to(x.dtype).div_(1 - p)
        if x.dim() != 4:
            return mask.view(x.shape)
        n, channels, height, width = x.shape
        return mask.view(n, height, width, channels).permute(0, 3, 1, 2)

    def _epoch(self) -> None:
        if self.renews and self.epoch:
            self.pulls = self._pulls()
        net, rule = self.net.train(), self.rule
        loss_of = joint if self.objective == "joint" else OBJECTIVES.resolve(self.objective)
        total = torch.zeros((), device=self.train[0].y.device)
        for step in batches([len(domain) for domain in self.train], rule.batch, self.rng):
            domains = []
            for domain, rows in zip(self.train, step, strict=True):
                index = torch.from_numpy(rows).to(domain.y.device)
                x = shown(domain.x[index], rule.normalise, rule.half, rule.augment, self.rng)
                domains.append((x, domain.y[index], None if domain.weight is None else domain.weight[index]))
            with torch.enable_grad():
                with torch.autocast(domains[0][1].device.type, torch.bfloat16, enabled=rule.half):
                    loss = loss_of(net, domains, self.rng, **self.terms)
                self.optimiser.zero_grad()
                loss.backward()
            for pull in self.pulls:
                pull.add()
            self.optimiser.step()
            total += loss.detach()
            self.steps += 1
        if not torch.isfinite(total):
            problem = f"The loss is not finite after epoch {self.epoch + 1} with {self.hyper}."
            raise Diverged(problem, "", "Lower the learning rate.")

    def _judge(self) -> None:
        accuracy = accuracy_of(self.net, self.val, self.rule)
        self.curve.append(accuracy)
        if len(self.curve) == 1 or accuracy > self.curve[self.best_epoch]:
            self.best_epoch = len(self.curve) - 1
            self.best = {k: v.clone() for k, v in self.net.state_dict().items()}


def _compile(net: Net) -> None:
    """Compile each part separately: dropout masks are drawn between them, by numpy. Torch counts all parts of all
    networks against one limit, above which it silently stops compiling."""
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, RECOMPILED)
    for part in net.each():
        part.compile(dynamic=False)


def stops(curve: Sequence[float], rule: Rule) -> bool:
    """Whether each of the last `patience` epochs failed to improve over the one before, or over the best before them.

    >>> stops([0.5, 0.4, 0.3], Rule(patience=2)), stops([0.5, 0.4, 0.45], Rule(patience=2))
    (True, False)
    >>> stops([0.5, 0.4, 0.45], Rule(patience=2, stop="best"))
    True
    """
    if len(curve) <= rule.patience:
        return False
    tail = range(len(curve) - rule.patience, len(curve))
    if rule.stop == "previous":
        return all(curve[i] <= curve[i - 1] for i in tail)
    return max(curve[-rule.patience :]) <= max(curve[: -rule.patience])


def scores_of(net: Net, x: Any, rule: Rule) -> Any:
    """(N, C) float32 in eval mode, in chunks."""
    net.eval()
    scores = []
    with torch.no_grad():
        for low in range(0, len(x), CHUNK):
            part = shown(x[low : low + CHUNK], rule.normalise, rule.half)
            with torch.autocast(part.device.type, torch.bfloat16, enabled=rule.half):
                scores.append(net(part).float())
    return torch.cat(scores)


def accuracy_of(net: Net, data: Samples, rule: Rule) -> float:
    """Share of correct predictions."""
    return float((scores_of(net, data.x, rule).argmax(1) == data.y).float().mean())
