"""L2P: prompts of a pool, chosen for each image, before the tokens of a frozen vision transformer [Wang 2022]."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor.torch_threads import one_thread
from driftline.eval.engine.deep import check_model, load_weights, planes
from driftline.eval.engine.seeded import seeded
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.training.budget import Budget, batches_of
from driftline.eval.training.sgd_learner import Device, place

CHUNK = 256  # images predicted at once


@dataclass
class L2p(Learner):
    """A pool of prompts with keys: the prompts whose keys are nearest to an image's class token, by cosine, go before
    its tokens; the mean of their outputs is classified. Prompts, keys and the classifier learn; the transformer is
    frozen [Wang et al. 2022, "Learning to prompt", sec. 4, eq. 2-5]. Defaults as the PyTorch code that reproduces it,
    JH-LEE-KR/l2p-pytorch, has for CIFAR-100.

    The prompts of an image are its own, as in the paper; that code takes those that most images of a batch chose, and
    leaves classes of other tasks out of the loss. Here all classes come in every step.
    """

    net: str = "vit_tiny_patch16_224"
    """a vision transformer of timm with a class token; made for the size of the stream's images"""
    weights: str = ""
    """checkpoint of the transformer, instead of random weights"""
    pool: PositiveInt = 10
    """M, prompts"""
    length: PositiveInt = 5
    """L_p, tokens of a prompt"""
    chosen: PositiveInt = 5
    """N, prompts for each image"""
    pull: NonNegativeFloat = 0.1
    """λ, weight of the cosines of chosen keys [eq. 5]; that code: 0.1, the paper: 0.5"""
    lr: PositiveFloat = 0.03
    """learning rate of Adam for 256 images in a batch; of a batch of n, n / 256 of it"""
    epochs: PositiveInt = 5
    """passes over the data of a step"""
    batch: PositiveInt = 16
    """images per update"""
    correct_lr: PositiveFloat = 0.05
    """learning rate of the one step of SGD on a correction"""
    device: Device = "cpu"
    """cpu, cuda or auto"""

    needs = Needs(images=True)
    reaches = MappingProxyType({"weights": "a file"})
    budgeted = ("epochs",)
    of_corrections = ("correct_lr",)
    guide = Guide("adapters and language models", "Wang et al. 2022, L2P", "a network",
                  "a frozen vision transformer, and no sample is stored")  # fmt: skip

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new pool and classifier. Raises BadConfig for another network, and for more chosen prompts than the pool
        has."""
        import timm
        import torch

        if self.chosen > self.pool:
            raise BadConfig(
                f"chosen is {self.chosen}, pool is {self.pool}.", "Expected at most as many as the pool has."
            )
        check_model(self.net)
        self.task, self.rng, self.gradient_steps, self.place = task, rng, 0, place(self.device)
        self.cost = 4 / 3 * task.cost_of(self.batch)  # the query is a forward pass of its own
        self.budget = Budget(task)
        with seeded(rng):
            vit: Any = None
            with suppress(TypeError, AssertionError):  # it is no vision transformer, or patches do not fit
                vit = timm.create_model(self.net, num_classes=0, img_size=task.x_shape[:2])
            if getattr(vit, "cls_token", None) is None or not hasattr(vit, "blocks"):
                raise BadConfig(f"net is {self.net!r}.", "Expected a vision transformer of timm with a class token.")
            width = int(vit.embed_dim)
            self.prompts = torch.rand(self.pool, self.length, width)
            self.keys = torch.rand(self.pool, width)
            self.classifier: Any = torch.nn.Linear(width, task.n_classes)
        if self.weights:
            load_weights(vit, Path(self.weights))
        self.vit: Any = vit.to(self.place).eval().requires_grad_(False)
        self.classifier.to(self.place)
        self.prompts, self.keys = (t.to(self.place).requires_grad_() for t in (self.prompts, self.keys))

    def learned(self) -> list[Any]:
        """Prompts, keys, weights and biases of the classifier."""
        return [self.prompts, self.keys, *self.classifier.parameters()]

    def forward(self, x: Array) -> tuple[Any, Any]:
        """uint8 images (n, H, W, 3) → scores (n, C), and the mean over images of the sum of cosines of chosen keys."""
        import torch
        from torch.nn.functional import normalize

        shown = planes(torch.from_numpy(np.array(x)).to(self.place))
        with torch.no_grad():
            tokens = self.vit.norm_pre(self.vit._pos_embed(self.vit.patch_embed(shown)))
            query = normalize(self._through(tokens)[:, 0], dim=1)
        cosines = query @ normalize(self.keys, dim=1).T
        values, places = cosines.topk(self.chosen, dim=1)
        before = self.prompts[places].flatten(1, 2)
        outputs = self._through(torch.cat([before, tokens], 1))[:, : before.shape[1]]
        return self.classifier(outputs.mean(1)), values.sum(1).mean()

    def _through(self, tokens: Any) -> Any:
        return self.vit.norm(self.vit.blocks(tokens))

    def _step(self, optimiser: Any, x: Array, y: Labels) -> None:
        import torch

        with torch.enable_grad():
            scores, cosines = self.forward(x)
            labels = torch.from_numpy(np.array(y, np.int64)).to(self.place)
            loss = torch.nn.functional.cross_entropy(scores, labels) - self.pull * cosines
            optimiser.zero_grad()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learned(), 1.0)
        optimiser.step()
        self.gradient_steps += 1

    def learn(self, x: Array, y: Labels) -> None:
        import torch

        optimiser = torch.optim.Adam(self.learned(), lr=self.lr * self.batch / 256)
        with one_thread():
            for rows in batches_of(len(y), self.batch, self.epochs, self.rng, self.budget.take(self.cost)):
                self._step(optimiser, np.asarray(x)[rows], np.asarray(y)[rows])

    def correct(self, x: Array, y: Labels) -> None:
        """One step of SGD."""
        import torch

        with one_thread():
            self._step(torch.optim.SGD(self.learned(), self.correct_lr), x, y)

    def scores(self, x: Array) -> Array:
        import torch

        with one_thread(), torch.inference_mode():
            parts = [self.forward(np.asarray(x[low : low + CHUNK]))[0] for low in range(0, len(x), CHUNK)]
            return torch.cat(parts).cpu().numpy() if parts else np.zeros((0, self.task.n_classes), np.float32)

    def stored_bytes(self) -> int:
        """What learns; the frozen transformer is not counted."""
        return sum(int(p.nbytes) for p in self.learned())

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Every step's data, `epochs` times."""
        return float(self.epochs * sum(sizes))
