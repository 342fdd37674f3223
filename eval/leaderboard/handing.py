"""A submission that gets a stream step by step: its process holds nothing but what it was handed so far.

Our process keeps the stream and runs the protocol. It sends the training samples of a step, or the samples of a test
without labels, when their turn comes, and reads one label and one confidence for each sample of a test. The code runs
`Enclosed`, one process for each seed, all of them started before the stream is read.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from driftline.curate.core.errors import BadInput
from driftline.curate.core.system.enclosure import Bounds, Enclosed
from driftline.eval.leaderboard.served import DONE, served
from driftline.eval.learner import Array, Labels, Learner, Needs, Task
from driftline.stream_builder.step import Split, Step

PLAIN = ("n_classes", "x_shape", "steps", "classes", "seed")  # of a task: what clear-iid discloses


class Submission(Learner):
    """Stands for the learner of a submission. A class of its own for each: see `handed`."""

    needs = Needs(texts=True)
    processes: ClassVar[list[Enclosed]]
    begun: ClassVar[int] = 0

    @classmethod
    def end(cls) -> None:
        """Kill its processes."""
        for code in cls.processes:
            code.close()

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """In the next process, which has seen nothing. Raises BadInput if the submission fails, here and below."""
        self.code = self.processes[self.begun].__enter__()
        type(self).begun += 1
        plain = {name: value for name, value in asdict(task).items() if name in PLAIN}
        self._ask(len(DONE), "begin", task=plain, rng=rng.bit_generator.state)

    def learn(self, x: Array, y: Labels) -> None:
        self.learn_step(Step(0, "", {"train": Split(x, y)}))

    def learn_step(self, step: Step) -> None:
        """Its training samples, and those without labels."""
        train, more = step["train"], [] if step.unlabelled is None else [np.asarray(step.unlabelled)]
        self._ask(len(DONE), "learn", np.asarray(train.x), train.y, *more, index=step.index, name=step.name)

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """Labels, and confidences where all of them are known."""
        data = self._ask(16 * len(x), "predict", np.asarray(x))
        labels, sure = np.frombuffer(data[: 8 * len(x)], "<i8"), np.frombuffer(data[8 * len(x) :], "<f8")
        return labels if np.isnan(sure).any() else (labels, sure)

    def _ask(self, size: int, what: str, *arrays: Array, **facts: Any) -> bytes:
        """The answer, of so many bytes."""
        parts = [_packed(array) for array in arrays]
        line = json.dumps({"what": what, "sizes": list(map(len, parts)), **facts}, default=int)
        try:
            self.code.send(b"".join([line.encode(), b"\n", *parts]))
            data = self.code.receive(size)
        except BrokenPipeError:
            data = b""
        if len(data) == size:
            return data
        self.code.close()
        late = f" after {self.code.bounds.seconds:g} seconds" if self.code.late else ""
        raise BadInput(f"The submission ended{late}; it printed {self.code.output}.", "Expected answers.")


def handed(folder: Path, times: int, bounds: Bounds) -> type[Submission]:
    """The learner of `submission.py` in a folder, which can begin so many times. Raises NotEnclosed."""
    processes = [Enclosed(partial(served, folder), bounds, [folder], anywhere=True) for _ in range(times)]
    return type("Submission", (Submission,), {"processes": processes})


def _packed(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
