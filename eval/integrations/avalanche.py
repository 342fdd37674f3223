"""An Avalanche strategy as a learner (extra `avalanche`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.eval.engine.seeded import seeded
from driftline.eval.integrations.torch import tensor_of
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.training.budget import Budget


@dataclass
class Avalanche(Learner):
    """An Avalanche strategy (extra `avalanche`)."""

    name: str
    """name in the results"""
    strategy: Callable[[Task], Any]
    """task → a strategy, with its own epochs and batches"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new strategy."""
        self.rng, self.task, self.gradient_steps = rng, task, 0
        with seeded(rng):
            self.model = self.strategy(task)
        self.cost, self.budget = task.cost_of(self.model.train_mb_size), Budget(task)

    def learn(self, x: Array, y: Labels) -> None:
        """Learn the batch as one experience; under a budget, for as many whole epochs as it pays for."""
        import torch
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import as_taskaware_classification_dataset, make_avalanche_dataset
        from avalanche.benchmarks.utils.data_attribute import DataAttribute

        epochs = self.budget.take(self.cost * -(-len(y) // self.model.train_mb_size))
        if epochs == 0:
            return
        self.model.train_epochs = epochs or self.model.train_epochs
        labels = y.tolist()
        tensors = torch.utils.data.TensorDataset(tensor_of(np.asarray(x)), torch.tensor(labels))
        attributes = [DataAttribute(labels, "targets"), DataAttribute([0] * len(labels), "targets_task_labels", True)]
        data = as_taskaware_classification_dataset(make_avalanche_dataset(tensors, data_attributes=attributes))
        benchmark = benchmark_from_datasets(train=[data])
        (experience,) = benchmark.train_stream
        experience.current_experience = int(self.model.clock.train_exp_counter)
        with seeded(self.rng):
            self.model.train(experience)
        self.gradient_steps = int(self.model.clock.train_iterations)

    def scores(self, x: Array) -> Array:
        """The model's outputs (N, C)."""
        import torch

        self.model.model.eval()
        with torch.inference_mode():
            return np.asarray(self.model.model(tensor_of(x)).numpy())

    def stored_bytes(self) -> int:
        """Bytes of the model; memories of plug-ins are not included."""
        return sum(t.nbytes for t in self.model.model.state_dict().values())

    def settings(self) -> dict[str, Any]:
        """Its name."""
        return {"strategy": self.name}
