"""Our learners against Avalanche's strategies: how far apart the accuracy matrices of each pair are.

    python studies/cross_table.py [--seeds 5] [--markdown]

The stream (vectors of Gaussian classes) drifts, its label space grows, and steps lack classes, so that the methods end
far from each other. Settings of each pair are the same, and strong enough for the method to matter. The distance is
the mean over cells of the difference between two mean accuracy matrices, in points. One JSON object: `distances` (row:
ours, column: Avalanche's), `noise` (between two halves of Avalanche's own seeds), and `nearest`: for how many methods
the diagonal is the smallest of its row and of its column. `--markdown` prints a table (docs/studies/avalanche.md).

In two respects Avalanche 0.6 is put right to what it was in CLEAR's runs (0.1): SI copies its record of old weights,
which is the live weights on a CPU, so that it would be plain finetuning; and every step starts without momentum.
"""

import argparse
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from driftline.curate.core.seeding import rng_for
from driftline.eval.integrations import Avalanche
from driftline.eval.learner import Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

LR, BATCH, EPOCHS, N = 0.1, 32, 16, 160
MORE_SEEDS = {"GDumb": 4}  # times as many: runs on a small memory differ most, and take least
CLASSES = ((0, 1, 2), (3, 4), (5, 0), (1, 2), (3, 4, 5))  # of each step
Floats = npt.NDArray[np.float64]
Make = Callable[[], Learner]
Table = dict[str, dict[str, float]]


def stream(classes: Sequence[Sequence[int]] = CLASSES, n: int = N, width: int = 8) -> Stream:
    """Gaussian classes whose means move every step; tests hold every class in every step."""
    rng = rng_for(0, "cross table")
    count = 1 + max(max(step) for step in classes)
    means, way = rng.normal(0, 1.5, (count, width)), rng.normal(0, 0.4, (count, width))
    steps = []
    for t, present in enumerate(classes):
        splits = {}
        for name, size, labels in (("train", n, np.array(present)), ("test", 120, np.arange(count))):
            y = labels[np.arange(size) % len(labels)].astype(np.int64)
            x = ((means + t * way)[y] + rng.normal(0, 1.5, (size, width))).astype(np.float32)
            splits[name] = Split(x, y, np.array([f"{t}-{name}-{i}" for i in range(size)]))
        steps.append(Step(t, str(t), splits))
    return Stream("cross table", steps, [f"class {c}" for c in range(count)])


def theirs(kind: str, **more: Any) -> Make:
    """An Avalanche strategy on a linear head."""

    def strategy(task: Task) -> Any:
        import avalanche.training.supervised as strategies
        from avalanche.evaluation.metrics import accuracy_metrics
        from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin

        class NoMomentum(SupervisedPlugin):  # type: ignore[misc]
            """Every step starts like a new optimiser."""

            def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
                strategy.optimizer.state.clear()

        model = torch.nn.Sequential()
        model.add_module("classifier", torch.nn.Linear(task.x_shape[0], task.n_classes))
        return getattr(strategies, kind)(
            model=model, optimizer=torch.optim.SGD(model.parameters(), LR, momentum=0.9),
            criterion=torch.nn.CrossEntropyLoss(), train_mb_size=BATCH, train_epochs=EPOCHS,
            evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]), plugins=[NoMomentum()], **more,
        )  # fmt: skip

    return lambda: Avalanche(kind, strategy)


def ours(name: str, **more: Any) -> Make:
    """A learner with the same settings."""
    return lambda: LEARNERS[name](lr=LR, batch=BATCH, epochs=EPOCHS, decay_after=EPOCHS, scale="none", **more)


PAIRS: dict[str, tuple[Make, Make]] = {
    "Naive": (ours("finetune"), theirs("Naive")),
    "EWC": (
        ours("ewc", variant="reference", strength=60.0),
        theirs("EWC", ewc_lambda=60.0, mode="online", decay_factor=0.1),
    ),
    "SI": (ours("si", variant="reference", strength=3000.0), theirs("SynapticIntelligence", si_lambda=3000.0)),
    "LwF": (ours("lwf", weight=2.0, ramp=5), theirs("LwF", alpha=[0.0, 0.5, 1.0, 1.5, 2.0], temperature=1.0)),
    "CWR*": (ours("cwr"), theirs("CWRStar", cwr_layer_name="classifier")),
    "GDumb": (ours("gdumb", memory=30), theirs("GDumb", mem_size=30)),
    "ER": (ours("er", memory=120), theirs("Replay", mem_size=120)),
    "A-GEM": (ours("agem", variant="reference", memory=N, sample=N), theirs("AGEM", patterns_per_exp=N, sample_size=N)),
    "Cumulative": (ours("cumulative"), theirs("Cumulative")),
}


@contextmanager
def working_si() -> Iterator[None]:
    """Avalanche's SI with copies of the old weights, which on a CPU are views of the live ones."""
    from avalanche.training.plugins import SynapticIntelligencePlugin as Plugin

    def extract_weights(model: Any, target: Any, excluded: Any) -> None:
        with torch.no_grad():
            for name, param in Plugin.allowed_parameters(model, excluded):
                target[name].data = param.detach().cpu().flatten().clone()

    with patch.object(Plugin, "extract_weights", staticmethod(extract_weights)):
        yield


def matrices(make: Make, data: Stream, seeds: Sequence[int]) -> Floats:
    """(seeds, T, T) accuracies, in points."""
    with working_si():
        return np.array([
            100 * np.array(evaluate(data, "clear-iid", [make()], seeds=[seed])["results"][0]["matrix"])
            for seed in seeds
        ])  # fmt: skip


def distance(a: Floats, b: Floats) -> float:
    """Mean over cells of the difference of mean matrices."""
    return float(np.abs(a.mean(0) - b.mean(0)).mean())


def distances(n: int) -> tuple[Table, dict[str, float]]:
    """Ours → Avalanche's → points, over n seeds; and by strategy, how far its even seeds are from its odd ones."""
    data, seeds = stream(), {name: range(n * MORE_SEEDS.get(name, 1)) for name in PAIRS}
    mine = {name: matrices(make, data, seeds[name]) for name, (make, _) in PAIRS.items()}
    other = {name: matrices(make, data, seeds[name]) for name, (_, make) in PAIRS.items()}
    found = {a: {b: distance(x, y) for b, y in other.items()} for a, x in mine.items()}
    return found, {name: distance(x[::2], x[1::2]) for name, x in other.items()}


def nearest(found: Table) -> list[str]:
    """Methods whose distance is the smallest of its row and of its column."""
    return [a for a in found if found[a][a] < min(d for b in found if b != a for d in (found[a][b], found[b][a]))]


def main() -> None:
    """One JSON object, or the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="at least 2")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    found, noise = distances(given.seeds)
    if given.markdown:
        print(f"| ours | {' | '.join(PAIRS)} |\n|{'---|' * (len(PAIRS) + 1)}")
        for a, row in found.items():
            print(f"| {a} | {' | '.join(f'**{d:.1f}**' if a == b else f'{d:.1f}' for b, d in row.items())} |")
        print(f"| *seeds* | {' | '.join(f'{d:.1f}' for d in noise.values())} |")
    else:
        print(json.dumps({"distances": found, "noise": noise, "nearest": len(nearest(found))}))


if __name__ == "__main__":
    main()
