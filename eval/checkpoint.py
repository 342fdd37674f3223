"""A run's state on disk, so that an interrupted run goes on where it stopped, with the same rows.

A file of safetensors: arrays and tensors, and one text that describes the rest as plain data. Reading it never runs
code of the file: objects are of the classes that the new run has itself, or of our own that hold nothing but data.
"""

from __future__ import annotations

import importlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import BadInput

EVERY = 60.0  # seconds between two states
OURS = tuple(
    f"driftline.eval.{name}."
    for name in (
        "engine", "learners", "memory.knn_index", "memory.samplers", "outcomes", "rows", "protocols.near_future.loop",
    )
)  # fmt: skip
TASK = "driftline.eval.learner:Task"  # never stored: it is the new run's
TEXT = "state"  # name of the array that holds the plain data
KINDS = ("begun", "array", "texts", "tensor", "module", "rng", "list", "tuple", "set", "dict", "counter", "object")
PLAIN = (bool, int, float, str, type(None))


class _CannotKeep(Exception):
    """The state holds something that is no data."""


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
        try:
            return _Reader(self.path, self.kinds, parts).values(fresh)
        except Exception as error:  # any error that a damaged or prepared file causes
            raise BadInput(
                f"{self.path} is no stored state ({type(error).__name__}: {str(error)[:200]}).",
                "",
                "Delete it; the run starts again.",
            ) from None

    def keep(self, *state: Any, final: bool = False) -> None:
        """Write the state, if it is time; a finished run needs none. A state that is not all data is not written, which
        is said once."""
        if final:
            self.path.unlink(missing_ok=True)
        elif self.able and time.monotonic() - self.last >= EVERY:
            try:
                write_bytes(self.path, _Writer(self.kinds).file(state))
            except _CannotKeep as error:
                self.able = False
                warnings.warn(f"No state is kept, an interrupted run starts again: {error}.", stacklevel=2)
            self.last = time.monotonic()


class _Writer:
    """Values → plain data and tensors. Containers and objects are written once; a second one is a reference."""

    def __init__(self, kinds: Mapping[str, type]) -> None:
        self.kinds = kinds
        self.tensors: dict[str, Any] = {}
        self.numbers: dict[int, tuple[int, Any]] = {}  # id → number, and the value, which keeps the id its own

    def file(self, values: Sequence[Any]) -> bytes:
        import torch
        from safetensors.torch import save

        text = json.dumps([self.plain(value) for value in values]).encode()
        return save(self.tensors | {TEXT: torch.frombuffer(bytearray(text), dtype=torch.uint8)})

    def plain(self, value: Any) -> Any:
        """JSON of a value. Raises _CannotKeep."""
        if type(value) in PLAIN:
            return value
        if id(value) in self.numbers:
            return {"same": self.numbers[id(value)][0]}
        number = len(self.numbers)
        self.numbers[id(value)] = number, value
        return {"number": number, **self._described(value)}

    def _described(self, value: Any) -> dict[str, Any]:
        import torch

        kind = type(value)
        if isinstance(value, np.generic):
            return {**self._stored(np.asarray(value)), "scalar": True}
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "U":
                return {"texts": value.ravel().tolist(), "shape": value.shape, "dtype": value.dtype.str}
            return self._stored(value)
        if isinstance(value, torch.nn.Module):
            return {"module": {name: self.plain(part) for name, part in value.state_dict().items()}}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value), "order": _order(value), "device": value.device.type}
        if isinstance(value, np.random.Generator):
            return {"rng": json.loads(json.dumps(value.bit_generator.state, default=int))}
        if kind in (list, tuple):
            return {kind.__name__: [self.plain(part) for part in value]}
        if kind in (dict, Counter):
            pairs = [[self.plain(key), self.plain(part)] for key, part in value.items()]
            return {"counter" if kind is Counter else "dict": pairs}
        if kind in (set, frozenset):
            return {"set": [self.plain(part) for part in sorted(value)]}
        if _name(kind) == TASK:
            return {"begun": TASK}
        if not hasattr(value, "__dict__") or _kind(_name(kind), self.kinds) is not kind:
            raise _CannotKeep(f"{kind.__module__}.{kind.__qualname__} is no data")
        try:
            state = value.__getstate__() if _stores_itself(kind) else vars(value)
        except TypeError as error:
            raise _CannotKeep(str(error)) from None
        return {"object": _name(kind), "vars": {name: self.plain(part) for name, part in state.items()}}

    def _stored(self, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        import torch

        if array.dtype.kind not in "biuf" or array.dtype.byteorder == ">":
            raise _CannotKeep(f"an array of {array.dtype} is no plain data")
        tensor = torch.from_numpy(np.array(array))
        return {"array": self._tensor(tensor), "order": _order(tensor)}

    def _tensor(self, value: Any) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = value.detach().cpu().permute(_order(value)).clone().contiguous()
        return name


class _Reader:
    """The other direction. Raises any error for a file that `_Writer` did not write for a run like the fresh one."""

    def __init__(self, path: Path, kinds: Mapping[str, type], parts: Sequence[Any]) -> None:
        from safetensors.torch import load_file

        self.tensors, self.kinds = load_file(path), kinds
        self.objects: dict[int, Any] = {}
        self.task = next((part for part in parts if _name(type(part)) == TASK), None)
        self.modules = [part for part in parts if hasattr(part, "load_state_dict") and hasattr(part, "state_dict")]

    def values(self, fresh: Sequence[Any]) -> list[Any]:
        described = json.loads(self.tensors[TEXT].numpy().tobytes())
        values = [self.value(part) for part in described]
        if [type(value) for value in values] != [type(value) for value in fresh]:
            raise TypeError("it is of another kind of run")
        for value, new in zip(values, fresh, strict=True):
            for name in getattr(new, "reaches", ()):  # files and addresses are those of the user, never of a file
                setattr(value, name, getattr(new, name))
        return values

    def value(self, described: Any) -> Any:
        if not isinstance(described, dict):
            return described
        if "same" in described:
            return self.objects[described["same"]]
        number = described.pop("number")
        (kind, *_) = described
        if kind not in KINDS:
            raise TypeError(f"a value of the kind {kind!r}")
        value = getattr(self, f"_{kind}")(described, lambda restored: self.objects.setdefault(number, restored))
        self.objects[number] = value
        return value

    def _begun(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        return self.task

    def _array(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        back = np.argsort(described["order"]).astype(int)
        array = np.array(self.tensors[described["array"]].numpy().transpose(back))  # keeps the order of its numbers
        return array[()] if described.get("scalar") else array

    def _texts(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        return np.array(described["texts"], np.dtype(described["dtype"])).reshape(described["shape"])

    def _tensor(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        back = np.argsort(described["order"]).tolist()
        return self.tensors[described["tensor"]].permute(back).to(described["device"])

    def _module(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        """A module of the fresh run with the stored weights: itself, or a copy if it has them already."""
        import copy

        state = {name: self.value(part) for name, part in described["module"].items()}
        shapes = {name: part.shape for name, part in state.items()}
        alike = [m for m in self.modules if {n: p.shape for n, p in m.state_dict().items()} == shapes]
        module = copy.deepcopy(alike[0])
        module.load_state_dict(state)
        return module

    def _rng(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        rng = np.random.Generator(np.random.PCG64())
        state = described["rng"]
        if "s" in state.get("state", {}) or state["bit_generator"] != "PCG64":
            raise TypeError(f"a generator {state['bit_generator']}")
        rng.bit_generator.state = state
        return rng

    def _list(self, described: dict[str, Any], register: Callable[[Any], Any]) -> Any:
        restored: list[Any] = register([])
        restored.extend(self.value(part) for part in described["list"])
        return restored

    def _tuple(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        return tuple(self.value(part) for part in described["tuple"])

    def _set(self, described: dict[str, Any], _: Callable[[Any], Any]) -> Any:
        return {self.value(part) for part in described["set"]}

    def _dict(self, described: dict[str, Any], register: Callable[[Any], Any]) -> Any:
        restored: dict[Any, Any] = register({})
        restored.update((self.value(key), self.value(part)) for key, part in described["dict"])
        return restored

    def _counter(self, described: dict[str, Any], register: Callable[[Any], Any]) -> Any:
        restored: Counter[Any] = register(Counter())
        restored.update({self.value(key): self.value(part) for key, part in described["counter"]})
        return restored

    def _object(self, described: dict[str, Any], register: Callable[[Any], Any]) -> Any:
        kind = _kind(described["object"], self.kinds)
        if kind is None:
            raise TypeError(f"an object of {described['object']}")
        restored = register(object.__new__(kind))
        state = {name: self.value(part) for name, part in described["vars"].items()}
        if _stores_itself(kind):
            restored.__setstate__(state)
        else:
            vars(restored).update(state)
        return restored


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _kind(name: str, kinds: Mapping[str, type]) -> type | None:
    """A class that the run had when it began, or one of ours that holds data; None for others."""
    module, _, attribute = name.partition(":")
    ours = f"{module}.".startswith(OURS)
    kind = kinds.get(name) or (getattr(importlib.import_module(module), attribute, None) if ours else None)
    if not isinstance(kind, type) or _name(kind) != name or any(vars(base).get("__slots__") for base in kind.__mro__):
        return None
    return None if name not in kinds and hasattr(kind, "reaches") else kind  # no further learner: it may reach outside


def _stores_itself(kind: type) -> bool:
    """Whether a class of ours has a state of its own."""
    return hasattr(kind, "__setstate__") and kind.__module__.startswith("driftline.eval.")


def _order(tensor: Any) -> list[int]:
    """Dimensions from the outermost in memory to the innermost: the memory format."""
    return sorted(range(tensor.dim()), key=lambda i: -tensor.stride(i))


def _parts_of(values: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """All objects in some values."""
    seen = set() if seen is None else seen
    if id(values) in seen or type(values) in PLAIN:
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
