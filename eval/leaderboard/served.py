"""The side of a submission that is handed a stream (`handing`): what its process does."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from driftline.curate.core.errors import BadInput
from driftline.eval.abilities import learn_step
from driftline.eval.answers import sure_answers
from driftline.eval.learner import Array, Learner, Task
from driftline.stream_builder.step import Split, Step

DONE = b"\1"


def served(folder: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    """Load the submission, and answer as long as somebody asks."""
    learner = _loaded(folder)
    while line := requests.readline():
        asked = json.loads(line)
        arrays = [np.load(io.BytesIO(requests.read(size)), allow_pickle=False) for size in asked["sizes"]]
        answers.write(_answered(learner, asked, arrays))
        answers.flush()


def _answered(learner: Learner, asked: dict[str, Any], arrays: Sequence[Array]) -> bytes:
    if asked["what"] == "predict":
        labels, sure, _ = sure_answers(learner, arrays[0], n := len(arrays[0]))
        confidence = np.full(n, np.nan) if sure is None else sure
        return labels.astype("<i8").tobytes() + np.asarray(confidence).astype("<f8").tobytes()
    if asked["what"] == "begin":
        kind = getattr(np.random, asked["rng"]["bit_generator"])()
        kind.state = asked["rng"]
        task: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in asked["task"].items()}
        learner.begin(Task(**task), np.random.Generator(kind))
    else:
        x, y, *more = arrays
        learn_step(learner, Step(asked["index"], asked["name"], {"train": Split(x, y)}, *more))
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
