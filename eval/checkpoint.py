"""A run's state on disk, so that an interrupted run goes on where it stopped, with the same rows.

A file of torch.save, read with weights_only: reading it never runs code of the file. Objects are of the classes that
the new run has itself, or of our own that hold nothing but data.
"""

import importlib
import io
import pickle
import time
import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import BadInput
from driftline.curate.core.late import torch
from driftline.eval.learner import Task

EVERY = 60.0  # seconds between two states
OURS = tuple(
    f"driftline.eval.{name}."
    for name in (
        "engine", "learners", "memory.knn_index", "memory.samplers", "predictions", "rows",
        "protocols.near_future.loop",
    )
)  # fmt: skip


@dataclass
class Checkpoint:
    """Where one run keeps its state."""

    path: Path
    """of the file, in the run's own folder, whose name is a digest of all settings: a run with other settings has
    another file"""
    last: float = field(default_factory=time.monotonic)
    """when the state was last written, seconds"""
    able: bool = True
    """False after a state that holds something that is no data"""
    kinds: dict[str, type] = field(default_factory=dict)
    """classes that the run had when it began"""

    def load(self, *fresh: Any) -> list[Any] | None:
        """The stored values, or None. fresh: the same values of a run that has just begun; they are not changed.
        Raises BadInput for a file that is no state of such a run."""
        parts = list(_parts_of(fresh))
        self.kinds = {_name(type(part)): type(part) for part in parts}
        if not self.path.is_file():
            return None

        def of_run(weights: dict[str, Any] | None) -> Any:
            if weights is None:
                return next(part for part in parts if isinstance(part, Task))
            shapes = {name: part.shape for name, part in weights.items()}
            modules = (part for part in parts if isinstance(part, torch.nn.Module))
            alike = (m for m in modules if {n: p.shape for n, p in m.state_dict().items()} == shapes)
            module = deepcopy(next(alike))
            module.load_state_dict(weights)
            return module

        try:
            data = self.path.read_bytes()
            allowed = [(of_run, _name(_of_run)) if kind is _of_run else kind for kind in _classes(data, self.kinds)]
            with torch.serialization.safe_globals(allowed):
                values = list(torch.load(io.BytesIO(data), weights_only=True))
            if [type(value) for value in values] != [type(value) for value in fresh]:
                raise TypeError("it is of another kind of run")
        except Exception as error:  # any error that a damaged or prepared file causes
            problem = f"{self.path} is no stored state ({type(error).__name__}: {str(error)[:200]})."
            raise BadInput(problem, "", "Delete it; the run starts again.") from None
        for value, new in zip(values, fresh, strict=True):
            for name in getattr(new, "reaches", ()):  # files and addresses are those of the user, never of a file
                setattr(value, name, getattr(new, name))
        return values

    def keep(self, *state: Any, final: bool = False) -> None:
        """Write the state, if it is time; a finished run needs none. A state that is not all data is not written, which
        is said once."""
        if final:
            self.path.unlink(missing_ok=True)
        elif self.able and time.monotonic() - self.last >= EVERY:
            try:
                file = io.BytesIO()
                torch.save(state, file, SimpleNamespace(__name__=__name__, Pickler=_Pickler))
                _classes(file.getvalue(), self.kinds)
                write_bytes(self.path, file.getvalue())
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                self.able = False
                warnings.warn(f"No state is kept, an interrupted run starts again: {error}.", stacklevel=2)
            self.last = time.monotonic()


class _Pickler(pickle.Pickler):
    """Arrays as tensors, generators and modules as their states; the task stays the new run's."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            return _array, (torch.from_numpy(np.array(value)), isinstance(value, np.generic))
        if isinstance(value, np.ndarray) and value.dtype.kind == "U":
            return _texts, (value.tolist(), value.dtype.str)
        if isinstance(value, np.random.Generator):
            return _generator, (value.bit_generator.state,)
        if isinstance(value, torch.nn.Module):
            return _of_run, (dict(value.state_dict()),)
        return (_of_run, (None,)) if isinstance(value, Task) else NotImplemented


def _of_run(weights: dict[str, Any] | None) -> Any:
    """Name in a file for what `load` puts there: the new run's task, or its module of that shape with these weights."""


def _array(tensor: Any, scalar: bool) -> Any:
    array = tensor.numpy()
    return array[()] if scalar else array


def _texts(values: list[Any], dtype: str) -> Any:
    return np.array(values, dtype)


def _generator(state: dict[str, Any]) -> np.random.Generator:
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = state
    return rng


def _classes(data: bytes, kinds: dict[str, type]) -> list[Any]:
    """The classes and functions that a state names. Raises TypeError for one that neither the run had when it began nor
    is ours and holds data."""
    named: list[Any] = []
    for name in sorted(torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))):
        module, _, attribute = name.rpartition(".")
        kind: Any = kinds.get(name)
        if kind is None and f"{module}.".startswith(OURS):
            kind = getattr(importlib.import_module(module), attribute, None)
            ours = isinstance(kind, type) and _name(kind) == name
            kind = kind if ours and not hasattr(kind, "reaches") else None  # a further learner may reach outside
        elif module == __name__:
            kind = {_name(part): part for part in (_of_run, _array, _texts, _generator)}.get(name)
        if kind is None:
            raise TypeError(f"{name} is no data")
        named.append(kind)
    return named


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _parts_of(values: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """All objects in some values."""
    seen = set() if seen is None else seen
    if id(values) in seen:
        return
    seen.add(id(values))
    if isinstance(values, list | tuple):
        for part in values:
            yield from _parts_of(part, seen)
    elif isinstance(values, dict):
        yield from _parts_of(list(values.values()), seen)
    elif not isinstance(values, type) and hasattr(values, "__dict__"):
        yield values
        if not hasattr(values, "load_state_dict"):  # the inside of a module is its own
            yield from _parts_of(vars(values), seen)
