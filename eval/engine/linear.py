"""The linear head: softmax regression by mini-batch SGD with momentum, with explicit gradients.

No autograd and no DataLoader: for a 2,048 × 11 head they cost ten times the arithmetic; plain SGD on a CPU runs in
`fused`. One thread: with torch's default, spinning threads on a shared machine made this 24 times slower (measured;
spec of performance).
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import Diverged
from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.eval.engine import fused

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LinearSettings:
    """Settings of a training run; defaults of CLEAR's linear probe [supplement 5; Avalanche baselines]."""

    lr: float = 1.0
    """learning rate"""
    momentum: float = 0.9
    """momentum of SGD"""
    weight_decay: float = 0.0
    """decay of weights, not of biases"""
    batch: int = 256
    """samples per update"""
    epochs: int = 100
    """passes over the data"""
    decay_after: int = 60
    """epochs after which the learning rate is multiplied by `decay`, repeatedly"""
    decay: float = 0.1
    """factor of the learning rate"""
    optimiser: str = "sgd"
    """sgd, or adamw, which decays biases, too"""


Params = list[Any]  # float32 tensors in the order of a network, or gradients of their shapes
Pull = Callable[[Any], Any]  # scores (B, C) → gradient in them (B, C)


class Net(Protocol):
    """What the training loop and the rules need of a network."""

    velocity: Params
    """momentum, in the shapes and order of `params`"""
    half: bool
    """data are kept in bfloat16"""

    @property
    def params(self) -> Params:
        """Parameters, changed in place; the last two are weights (C, …) and bias (C,) of the output layer."""

    def view(self, x: Any) -> Any:
        """A training batch as the network's input: images may be augmented."""

    def scores(self, x: Any) -> Any:
        """x (B, D) → (B, C)."""

    def data_gradient(self, x: Any, y: Any, pull: Pull | None = None) -> Params:
        """Gradient of the mean cross-entropy on x (B, D), y (B,); in the same pass of a loss whose gradient in the
        scores is pull(scores), if there is one."""

    def pulled(self, x: Any, g: Any) -> Params:
        """Gradient of a loss whose gradient in the scores is g (B, C)."""

    def fisher(self, x: Any, y: Any) -> Params:
        """Mean over samples of the squared gradient of one sample's loss."""

    def copy(self) -> "Net":
        """A copy that further training does not touch."""


@dataclass
class Layers:
    """Layers on features, with float32 torch tensors."""

    params: Params
    """weights and bias of each layer, the output layer's last"""
    velocity: Params
    """their momentum"""
    half: bool = False
    """training multiplies in bfloat16 and adds in float32"""

    def copy(self) -> Self:
        return type(self)([p.clone() for p in self.params], [v.clone() for v in self.velocity], self.half)

    @property
    def nbytes(self) -> int:
        """Bytes kept between training runs: weights and biases, without momentum."""
        return sum(int(p.nbytes) for p in self.params)

    def view(self, x: Any) -> Any:
        """Features are used unchanged."""
        return x


class Head(Layers):
    """One linear layer: weights (C, D), bias (C,). Predictions are in float32."""

    @classmethod
    def new(
        cls, n_classes: int, width: int, rng: np.random.Generator, device: str = "cpu", half: bool = False
    ) -> "Head":
        """torch.nn.Linear's initialisation, U(±1/√D), drawn from `rng` on the CPU: the same on every device."""
        params = layer(n_classes, width, rng, device)
        return cls(params, zeros(params), half)

    def scores(self, x: Any) -> Any:
        # Classes first, (C, B): with few classes this order of the products is twice as fast as (B, C).
        weights, bias = self.params
        if x.dtype is torch.bfloat16:  # only in training
            return torch.mm(weights.bfloat16(), x.T).float().add_(bias[:, None]).T
        return torch.addmm(bias[:, None], weights, x.T).T

    def data_gradient(self, x: Any, y: Any, pull: Pull | None = None) -> Params:
        if pull is None:
            x = x.bfloat16() if self.half else x
            if fused.fits([x], self.half, len(self.params[1]), len(x)) and fused.ready(x, y, *self.params):
                return list(fused.gradient(self.params, x, y))
        scores = self.scores(x)
        g = torch.softmax(scores.T, 0)
        g.scatter_add_(0, y[None], g.new_full((1, len(y)), -1))  # a fifth of a small gradient quicker than by index
        g /= len(y)
        return self.pulled(x, g.T if pull is None else g.add_(pull(scores).T).T)

    def pulled(self, x: Any, g: Any) -> Params:
        g = g.T.contiguous()
        return [(g.to(x.dtype) @ x).float(), g.sum(1)]

    def fisher(self, x: Any, y: Any) -> Params:
        """For one sample the gradient is (p − onehot) ⊗ x, so its square is the product of squares: no loop."""
        g = errors(self.scores(x), y) ** 2 / len(y)
        return [g.T @ x**2, g.sum(0)]


def layer(outputs: int, inputs: int, rng: np.random.Generator, device: str) -> Params:
    """Weights (outputs, inputs) and bias (outputs,), U(±1/√inputs)."""
    bound = 1 / np.sqrt(inputs)
    weights = torch.from_numpy(rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32))
    bias = torch.from_numpy(rng.uniform(-bound, bound, outputs).astype(np.float32))
    return [weights.to(device), bias.to(device)]


def zeros(like: Params) -> Params:
    """Zeros of the same shapes."""
    return [torch.zeros_like(p) for p in like]


def errors(scores: Any, y: Any) -> Any:
    """(B, C) softmax minus one-hot: the gradient of each sample's cross-entropy in its scores."""
    g = torch.softmax(scores, 1)
    g[torch.arange(len(y), device=y.device), y] -= 1
    return g


class Rule:
    """Additions of a method to plain SGD; by default none."""

    def pull(self, net: Net, x: Any, rows: npt.NDArray[np.int64] | None = None) -> Pull | None:
        """Gradient in the scores of a further loss on the batch x; None: there is none. rows: its samples, if known"""
        return None

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient on the batch x (B, D), y (B,) → the gradient to descend."""
        return grads

    def moved(self, grads: Params, steps: Params) -> None:
        """Called after each update with the data's gradient and the change of the weights."""


def fit(
    head: Net,
    x: npt.NDArray[Any],
    y: Labels,
    settings: LinearSettings,
    rng: np.random.Generator,
    memory: tuple[npt.NDArray[Any], Labels] | None = None,
    rule: Rule | None = None,
    groups: Sequence[int] = (),
) -> int:
    """Train `head` in place on x (N, D) float32, or (N, H, W, 3) uint8 for a network on images, and y (N,); returns
    the number of gradient steps.

    memory: replayed samples; each step takes `batch` of x and as many of the memory (drawn without repetition until all
    were used, then shuffled again) [Chaudhry et al. 2019; Avalanche's Replay]. groups: sizes of its parts; then x and
    each part have an equal share of `batch`. rule: additions of a method. Raises Diverged if the weights are not
    finite.
    """
    with one_thread(), torch.no_grad():
        both = [(x, y)] if memory is None else [(x, y), memory]
        # In bfloat16 there are half the bytes to gather, too.
        data = [on(inputs, head).bfloat16() if head.half else on(inputs, head) for inputs, _ in both]
        drawn = batches([len(labels) for _, labels in both], settings, rng, groups)
        for velocity in head.velocity:  # start without momentum, like a new optimiser
            velocity.zero_()
        simple = rule is None and settings.optimiser == "sgd" and isinstance(head, Head)
        if simple and fused.fits(data, head.half, len(head.params[1]), epochs=settings.epochs):
            targets = [np.asarray(labels, np.int64) for _, labels in both]
            steps = fused.train(
                head.params, head.velocity, data, targets, drawn, settings.momentum, decay=settings.weight_decay
            )
        else:
            steps = _train(head, data, [on(labels, head) for _, labels in both], drawn, settings, rule)
    if not all(bool(torch.isfinite(p).all()) for p in head.params):
        raise Diverged("The head's weights are not finite.", "", f"Lower lr (it is {settings.lr}).")
    return steps


def batches(
    sizes: Sequence[int], settings: LinearSettings, rng: np.random.Generator, groups: Sequence[int] = ()
) -> Iterator[tuple[float, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Learning rate, rows of the data and rows of the memory of each step. sizes: of the data, and of the memory.
    groups: as in `fit`."""
    parts = groups or sizes[1:]
    shares = [settings.batch] * (1 + len(parts))
    if groups:
        share, more = divmod(settings.batch, len(shares))
        shares = [max(1, share + (i < more)) for i in range(len(shares))]
    starts = np.cumsum([0, *parts]).tolist()
    replayed = [min(share, size) for share, size in zip(shares[1:], parts, strict=True)]
    queues: list[list[int]] = [[] for _ in parts]
    for epoch in range(settings.epochs):
        lr = settings.lr * settings.decay ** (epoch // settings.decay_after)
        order = rng.permutation(sizes[0])
        for low in range(0, sizes[0], shares[0]):
            rows: list[int] = []
            for queue, start, size, n in zip(queues, starts, parts, replayed, strict=False):
                while len(queue) < n:
                    queue += (start + rng.permutation(size)).tolist()
                rows += queue[:n]
                del queue[:n]
            yield lr, order[low : low + shares[0]], np.array(rows, np.int64)


def _train(
    head: Net,
    data: Sequence[Any],
    labels: Sequence[Any],
    drawn: fused.Batches,
    settings: LinearSettings,
    rule: Rule | None,
) -> int:
    """The loop in torch: every network, every rule, every device."""
    # Gathered into one buffer: allocating 2 MB for every batch took half of the time.
    most = sum(min(settings.batch, len(y)) for y in labels)
    buffer = torch.empty((most, *data[0].shape[1:]), device=data[0].device, dtype=data[0].dtype)
    steps = 0
    adam = adamw(head, settings) if settings.optimiser == "adamw" else None
    for lr, *parts in drawn:
        filled, targets = 0, []
        for x, y, part in zip(data, labels, parts, strict=False):
            rows = torch.from_numpy(part).to(y.device)
            torch.index_select(x, 0, rows, out=buffer[filled : filled + len(part)])
            filled += len(part)
            targets.append(y[rows])
        step(head, head.view(buffer[:filled]), torch.cat(targets), lr, settings, rule, descend=adam, rows=parts[0])
        steps += 1
    return steps


def on(array: npt.NDArray[Any], head: Net) -> Any:
    """An array as a tensor on the head's device."""
    return tensor(array, head.params[0].device)


def tensor(array: npt.NDArray[Any], device: Any) -> Any:
    """An array as a tensor; read-only arrays, such as memory-mapped ones, are copied."""
    ready = np.ascontiguousarray(array)
    return (torch.from_numpy if ready.flags.writeable else torch.tensor)(ready).to(device)


def adamw(net: Net, settings: LinearSettings) -> Callable[[Params, float], None]:
    """A function that descends along a gradient, as torch.optim.AdamW does."""
    params = net.params
    here = True if params[0].device.type == "cpu" else None  # one pass is twice as fast; elsewhere torch chooses
    optimiser = torch.optim.AdamW(params, lr=settings.lr, weight_decay=settings.weight_decay, fused=here)

    def descend(grads: Params, lr: float) -> None:
        for group in optimiser.param_groups:
            group["lr"] = lr
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        optimiser.step()

    return descend


def step(
    net: Net, x: Any, y: Any, lr: float, settings: LinearSettings, rule: Rule | None = None,
    descend: Callable[[Params, float], None] | None = None, rows: npt.NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """One update on a batch. descend: another optimiser than SGD. rows: numbers of its samples."""
    pull = None if rule is None else rule.pull(net, x, rows)
    data = net.data_gradient(x, y, pull)
    grads = data if rule is None else rule.gradient(net, data, x, y)
    if descend is None:
        move(net, grads, lr, settings)
        if rule is not None:
            rule.moved(data, [-lr * velocity for velocity in net.velocity])
        return
    before = [] if rule is None else [p.clone() for p in net.params]
    descend(grads, lr)
    if rule is not None:
        rule.moved(data, [p - old for p, old in zip(net.params, before, strict=True)])


def move(net: Net, grads: Params, lr: float, settings: LinearSettings) -> None:
    """Descend along a gradient, with momentum; parameters whose gradient is None stay."""
    for i, (p, velocity) in enumerate(zip(net.params, net.velocity, strict=True)):
        if grads[i] is None:  # frozen
            continue
        decay = settings.weight_decay if p.ndim > 1 else 0.0  # of weights, not of biases
        if fused.descend(p, velocity, grads[i], lr, settings.momentum, decay):
            continue
        g = grads[i].add(p, alpha=decay) if decay else grads[i]  # a new tensor: rules see the gradient unchanged
        velocity.mul_(settings.momentum).add_(g)
        p.add_(velocity, alpha=-lr)


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """torch's generator with a seed from `rng`; its state is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        yield


def grown(head: Net, more: int) -> Net:
    """A head with `more` classes, whose weights and biases are zero."""
    out = head.copy()
    out.params[-2:] = [torch.cat([p, p.new_zeros(more, *p.shape[1:])]) for p in out.params[-2:]]
    out.velocity[-2:] = [torch.cat([v, v.new_zeros(more, *v.shape[1:])]) for v in out.velocity[-2:]]
    return out


def net_scores(net: Net, x: npt.NDArray[Any], length: float = 1.0) -> Floats:
    """x (N, D), or images → scores (N, C). length: divisor of the inputs, which are read where they lie: instead of
    them, the weights of the first layer are divided."""
    with one_thread(), torch.inference_mode():
        if length != 1.0:
            net = net.copy()
            net.params[0] /= length
        with warnings.catch_warnings(action="ignore"):  # torch's: the array is read-only. Nothing writes to it
            inputs = torch.from_numpy(np.ascontiguousarray(x)).to(net.params[0].device)
        return np.asarray(net.scores(inputs).float().cpu().numpy())
