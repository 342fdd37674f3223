"""One fit: Adam from given weights on given data, the best epoch by validation accuracy, early stopping, resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from curate.core.errors import Diverged
from curate.core.seeding import rng_for
from eval.finetuning.objectives import OBJECTIVES
from eval.finetuning.regularisers import Pull
from eval.finetuning.samples import Samples, batches, shown
from eval.nets.chain import Net, weights_of

CHUNK = 1000  # images evaluated at once
RECOMPILED = 256  # kinds of parts, batches and modes


@dataclass(frozen=True)
class Hyper:
    """A point of the grid. decay: factor of Σ‖W‖² (not halved) in the loss. adjacent: of ‖Δ‖² to the model of the time
    before, where a method has that."""

    lr: float = 1e-3
    decay: float = 1e-4
    dropout: float = 0.0
    adjacent: float = 0.0


@dataclass(frozen=True)
class Rule:
    """How every fit of a run is done. epochs: at most. patience: epochs in a row without more validation accuracy than
    the epoch before (stop "previous", as the paper's code) or than the best ("best"). augment: of training batches.
    normalise: else pixels are 0 … 255. half: bfloat16 products. still: frozen parts keep their statistics. whole:
    Fisher information of whole batches."""

    epochs: int = 100
    batch: int = 100
    patience: int = 6
    stop: str = "previous"
    augment: tuple[str, ...] = ()
    normalise: bool = False
    half: bool = False
    still: bool = False
    whole: bool = True


@dataclass(frozen=True)
class Fitted:
    """The best epoch's weights (the network's state, by name), and how it came to them. curve: validation accuracy
    before the first and after each epoch. steps: updates of the weights. seconds: of one core, where that was kept."""

    state: dict[str, Any]
    accuracy: float
    best_epoch: int
    curve: list[float]
    steps: int
    hyper: Hyper
    seconds: float = 0.0


@dataclass
class Fit:
    """A fit that can be stopped after any epoch. net: begins with its present weights, and is changed; only what
    `net.only` left trainable learns. train: one entry a domain, as the objective takes them. val: tested with the last
    time's model. seed: decides order, augmentation and dropout. pulls_of: the network → its pulls."""

    net: Net
    train: Sequence[Samples]
    val: Samples
    hyper: Hyper
    rule: Rule
    seed: int
    objective: str = "erm"
    pulls_of: Callable[[Net], Sequence[Pull]] = lambda net: ()
    decays: str = "l2"  # what `hyper.decay` is a factor of: Σw² ("l2"), Σ|w| ("l1"), or of the pulls alone ("pulls")
    compiled: bool = False  # blocks by torch.compile: equal to rounding
    epoch: int = 0
    steps: int = 0
    curve: list[float] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    best_epoch: int = 0
    over: bool = False

    def __post_init__(self) -> None:
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
        self.pulls = list(self.pulls_of(self.net))
        if self.decays == "l1":
            zeros = [(p, torch.zeros_like(p)) for p in weights_of(self.net) if p.requires_grad]
            self.pulls.append(Pull(zeros, self.hyper.decay, l1=True))
        self._judge()

    def run(self, until: int | None = None) -> Fit:
        """Epochs up to `until`, or to the end. Raises Diverged when a loss is not finite."""
        until = self.rule.epochs if until is None else min(until, self.rule.epochs)
        while self.epoch < until and not self.over:
            self._epoch()
            self.epoch += 1
            self._judge()
        self.over = self.over or self.epoch >= self.rule.epochs
        return self

    def result(self) -> Fitted:
        """The best epoch so far."""
        accuracy = self.curve[self.best_epoch]
        return Fitted(self.best, accuracy, self.best_epoch, list(self.curve), self.steps, self.hyper)

    def keep(self) -> dict[str, Any]:
        """Everything that `take` needs to go on with the same bits."""
        return {
            "net": {k: v.clone() for k, v in self.net.state_dict().items()},
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.bit_generator.state,
            **{name: getattr(self, name) for name in ("epoch", "steps", "curve", "best", "best_epoch", "over")},
        }

    def take(self, kept: dict[str, Any]) -> None:
        """Go on from what `keep` gave."""
        self.net.load_state_dict(kept["net"])
        self.optimiser.load_state_dict(kept["optimiser"])
        self.rng.bit_generator.state = kept["rng"]
        for name in ("epoch", "steps", "curve", "best", "best_epoch", "over"):
            setattr(self, name, kept[name])

    def _mask(self, x: Any, p: float) -> Any:
        """Zeros with probability p (in 256ths), else 1/(1 − p); drawn on the CPU, the same on every device."""
        drawn = np.frombuffer(self.rng.bytes(x.numel()), np.uint8)
        kept = torch.from_numpy(drawn >= round(256 * p)).to(x.device).to(x.dtype).div_(1 - p)
        if x.dim() != 4:
            return kept.view(x.shape)
        n, channels, height, width = x.shape
        return kept.view(n, height, width, channels).permute(0, 3, 1, 2)

    def _epoch(self) -> None:
        net, rule = self.net.train(), self.rule
        loss_of = OBJECTIVES[self.objective]
        total = torch.zeros((), device=self.train[0].y.device)
        for step in batches([len(domain) for domain in self.train], rule.batch, self.rng):
            domains = []
            for domain, rows in zip(self.train, step, strict=True):
                at = torch.from_numpy(rows).to(domain.y.device)
                x = shown(domain.x[at], rule.normalise, rule.half, rule.augment, self.rng)
                domains.append((x, domain.y[at], None if domain.weight is None else domain.weight[at]))
            with torch.enable_grad():
                with torch.autocast(domains[0][1].device.type, torch.bfloat16, enabled=rule.half):
                    loss = loss_of(net, domains, self.rng)
                self.optimiser.zero_grad()
                loss.backward()
            for pull in self.pulls:
                pull.add()
            self.optimiser.step()
            total += loss.detach()
            self.steps += 1
        if not torch.isfinite(total):
            raise Diverged(
                f"The loss is no number after epoch {self.epoch + 1} with {self.hyper}.",
                "",
                "Lower the learning rate.",
            )

    def _judge(self) -> None:
        accuracy = accuracy_of(self.net, self.val, self.rule)
        self.curve.append(accuracy)
        if len(self.curve) == 1 or accuracy > self.curve[self.best_epoch]:
            self.best_epoch = len(self.curve) - 1
            self.best = {k: v.clone() for k, v in self.net.state_dict().items()}
        self.over = self.over or stops(self.curve, self.rule)


def _compile(net: Net) -> None:
    """Each part by itself: dropout's masks are drawn between them, by numpy. Torch counts all parts of all networks
    against one limit, above which it silently does without."""
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, RECOMPILED)
    for part in net.each():
        part.compile(dynamic=False)


def stops(curve: Sequence[float], rule: Rule) -> bool:
    """Whether the last `patience` epochs brought nothing more than the one before each, or than the best before them.

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


def scores_of(net: Net, x: Any, rule: Rule, time: int = -1) -> Any:
    """(N, C) float32 in eval mode, in chunks."""
    net.eval()
    found = []
    with torch.no_grad():
        for low in range(0, len(x), CHUNK):
            part = shown(x[low : low + CHUNK], rule.normalise, rule.half)
            with torch.autocast(part.device.type, torch.bfloat16, enabled=rule.half):
                found.append(net(part, time).float())
    return torch.cat(found)


def accuracy_of(net: Net, data: Samples, rule: Rule, time: int = -1) -> float:
    """Share of right answers."""
    return float((scores_of(net, data.x, rule, time).argmax(1) == data.y).float().mean())
