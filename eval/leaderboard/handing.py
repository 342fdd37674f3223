"""A submission that gets a stream step by step: its process holds nothing but what it was handed so far.

Our process keeps the stream and runs the protocol. It sends the training samples of a step, or the samples of a test
without labels, when their turn comes, and reads one label and one confidence for each sample of a test. The code runs
`Enclosed`, one process for each seed, all of them started before the stream is read.
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from driftline.curate.core.errors import BadInput
from driftline.curate.core.system.enclosure import Bounds, Enclosed
from driftline.eval.abilities import learn_step
from driftline.eval.answers import sure_answers
from driftline.eval.learner import Array, Labels, Learner, Needs, Task
from driftline.stream_builder.step import Split, Step

PLAIN = ("n_classes", "x_shape", "steps", "classes", "seed")  # of a task: what clear-iid discloses
DONE = b"\1"


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
        """A batch."""
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
    processes = [Enclosed(partial(_served, folder), bounds, [folder], anywhere=True) for _ in range(times)]
    return type("Submission", (Submission,), {"processes": processes})


def _served(folder: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    """The submission's side."""
    learner = _loaded(folder)
    while line := requests.readline():
        asked = json.loads(line)
        arrays = [np.load(io.BytesIO(requests.read(size)), allow_pickle=False) for size in asked["sizes"]]
        answers.write(_answered(learner, asked, arrays))
        answers.flush()


def _answered(learner: Learner, asked: dict[str, Any], arrays: Sequence[Array]) -> bytes:
    if asked["what"] == "predict":
        labels, sure, _ = sure_answers(learner, arrays[0], n := len(arrays[0]))
        known = np.full(n, np.nan) if sure is None else sure
        return labels.astype("<i8").tobytes() + np.asarray(known).astype("<f8").tobytes()
    if asked["what"] == "begin":
        kind = getattr(np.random, asked["rng"]["bit_generator"])()
        kind.state = asked["rng"]
        task = {name: tuple(value) if isinstance(value, list) else value for name, value in asked["task"].items()}
        learner.begin(Task(**task), np.random.Generator(kind))
    else:
        unlabelled = arrays[2] if len(arrays) == 3 else None
        learn_step(learner, Step(asked["index"], asked["name"], {"train": Split(*arrays[:2])}, unlabelled))
    return DONE


def _loaded(folder: Path) -> Learner:
    """What `make_learner()` of submission.py returns. Raises BadInput if it is no learner."""
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("submission", folder / "submission.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    learner = module.make_learner()
    if not isinstance(learner, Learner):
        raise BadInput(f"make_learner() returned {type(learner).__name__}.", "Expected a driftline.ext.Learner.")
    return learner


def _packed(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
