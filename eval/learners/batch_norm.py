"""Adaptation of a network on images without labels: the statistics of batch normalisation, and TENT."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor.torch_threads import one_thread
from driftline.eval.engine.deep import Deep, planes
from driftline.eval.engine.linear import net_scores, on
from driftline.eval.learner import Array, Guide, Labels, Needs
from driftline.eval.training.sgd_learner import HEADS, NetLearner


@dataclass
class BnStats(NetLearner):
    """A trained network whose batch normalisation takes its statistics from test samples: N / (N + n) times those of
    training plus n / (N + n) times those of the batch of n [Schneider et al. 2020, sec. 2, eq. 3; with N = 0 Nado et
    al. 2020]."""

    net: str = "resnet10t"
    """a timm model with batch normalisation"""
    source: NonNegativeFloat = 0.0
    """N, how many samples the statistics of training count as [Schneider et al. 2020, fig. 2: 8 to 512, for batches
    smaller than that]"""

    needs = Needs(images=True)
    unused = MappingProxyType(dict.fromkeys(("scale", "hidden"), "its network takes images as they are"))
    guide = Guide("adaptation without labels", "Schneider et al. 2020", "a network",
                  "images are darker, noisier or of other cameras at test time")  # fmt: skip

    def reset(self) -> None:
        """New weights. Raises BadConfig for a network without batch normalisation."""
        if self.net in HEADS:
            raise BadConfig(f"net is {self.net!r}.", "Expected a network with batch normalisation, as resnet10t.")
        super().reset()
        self.adapted: Any = None
        if not normalisations(self.head):
            raise BadConfig(
                f"net is {self.net!r}, which has no batch normalisation.", "Expected one, as resnet10t has."
            )

    def learn(self, x: Array, y: Labels) -> None:
        self.adapted = None
        super().learn(x, y)

    def adapt(self, batch: Any) -> dict[str, Any]:
        """Take the statistics of the batch; each batch starts from those of training."""
        self.adapted = self.adapted or self.start()
        with one_thread():
            shown = planes(on(self.inputs(batch.x), self.head))
            facts = self.update(batch.x, shown)
            self.take_statistics(self.adapted, shown)
        return facts

    def start(self) -> Any:
        """What adapts: a copy of the trained network."""
        return cast(Deep, self.head).copy()

    def update(self, x: Array, shown: Any) -> dict[str, Any]:
        """Change weights before the statistics are taken; returns what the record says. x: the batch, shown: as the
        network's input."""
        return {"source": self.source}

    def take_statistics(self, net: Deep, shown: Any) -> None:
        """The statistics of each layer's inputs, in one pass: a layer's inputs are normalised by the new ones below."""
        import torch

        share = self.source / (self.source + len(shown))
        trained = normalisations(self.head)

        def take(layer: Any, inputs: Any) -> None:
            x, of_training = inputs[0].float(), trained[layers.index(layer)]
            means = (x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False))
            for running, old, new in zip(
                (layer.running_mean, layer.running_var), (of_training.running_mean, of_training.running_var), means,
                strict=True,
            ):  # fmt: skip
                running.copy_(share * old + (1 - share) * new)

        layers = normalisations(net)
        hooks = [layer.register_forward_pre_hook(take) for layer in layers]
        net.module.eval()
        try:
            with torch.no_grad():
                net.module(shown)
        finally:
            for hook in hooks:
                hook.remove()

    def answering(self) -> Any:
        """The network that answers."""
        return self.adapted or self.head

    def scores(self, x: Array) -> Array:
        return net_scores(self.answering(), self.inputs(x))


def normalisations(net: Any) -> list[Any]:
    """The layers of batch normalisation, in the module's order."""
    from torch.nn import BatchNorm2d

    return [layer for layer in net.module.modules() if isinstance(layer, BatchNorm2d)]


def entropy(scores: Any) -> Any:
    """(N, C) → (N,)."""
    import torch

    return -(torch.softmax(scores, 1) * torch.log_softmax(scores, 1)).sum(1)


@contextmanager
def batch_statistics(net: Any) -> Iterator[None]:
    """Layers of batch normalisation use the statistics of their batch and keep those that they have. One value a
    channel, as deep layers have of one small image, has no statistics: then those of training count."""
    layers = normalisations(net)
    trained = {layer: (layer.running_mean, layer.running_var) for layer in layers}

    def choose(layer: Any, inputs: Any) -> None:
        alone = inputs[0].numel() == inputs[0].shape[1]
        layer.running_mean, layer.running_var = trained[layer] if alone else (None, None)

    hooks = [layer.register_forward_pre_hook(choose) for layer in layers]
    net.module.eval()
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in layers:
            layer.running_mean, layer.running_var = trained[layer]


@dataclass
class Tent(BnStats):
    """Scale and shift of batch normalisation follow the gradient of the mean entropy of the answers, by Adam, with the
    statistics of the batch [Wang et al. 2021, sec. 3; the authors' code]. The updated network answers for the batch;
    the authors' code takes the answers from before the update."""

    adapt_lr: PositiveFloat = 1e-3
    """learning rate of Adam [sec. 4: 0.001 for CIFAR]"""
    adapt_steps: PositiveInt = 1
    """updates for each batch [the authors' code: 1]"""

    guide = Guide("adaptation without labels", "Wang et al. 2021", "a network",
                  "as bn-stats, and batches of test samples are large")  # fmt: skip

    def start(self) -> Any:
        import torch

        net = super().start()
        moving = [p for layer in normalisations(net) for p in (layer.weight, layer.bias)]
        self.descent = torch.optim.Adam(moving, lr=self.adapt_lr)
        return net

    def update(self, x: Array, shown: Any) -> dict[str, Any]:
        import torch

        with batch_statistics(self.adapted), torch.enable_grad():
            for _ in range(self.adapt_steps):
                loss = entropy(self.adapted.module(shown)).mean()
                self.descent.zero_grad()
                loss.backward()
                self.descent.step()
        return {"entropy": round(float(loss), 4)}
