"""What `evaluate` takes, in the forms that people write it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.eval.learner import Learner
from driftline.stream_builder.stream import Stream


def stream_of(stream: Any, hashed: bool = False) -> Stream:
    """A stream, or that of a folder. hashed: of one in memory hash the content, so that stored rows are its own. Raises
    BadConfig for anything else."""
    if isinstance(stream, str | Path):
        return Stream.load(stream)
    if not isinstance(stream, Stream):
        expected = "Expected a Stream, or the folder of one; dl.from_arrays and dl.from_table make one of data."
        raise BadConfig(f"The stream is a {type(stream).__name__}.", expected)
    return stream.hashed() if hashed else stream


def several(learners: Any) -> list[Any]:
    """One learner, or each of several."""
    alone = isinstance(learners, str | Learner | type) or hasattr(learners, "fit") or not isinstance(learners, Iterable)
    return [learners] if alone else list(learners)


def numbers_of(seeds: Any) -> list[int]:
    """0 … seeds - 1 for a number. Raises BadConfig for anything else than whole numbers."""

    def whole(number: Any) -> bool:
        return bool(isinstance(number, int | np.integer) and not isinstance(number, bool) and number >= 0)

    each = isinstance(seeds, Iterable) and not isinstance(seeds, str)
    numbers = list(range(seeds)) if whole(seeds) else list(seeds) if each else []
    if not numbers or not all(map(whole, numbers)):
        raise BadConfig(f"seeds is {seeds!r}.", "Expected how many, from 1, or a list of whole numbers from 0.")
    return [int(number) for number in numbers]
