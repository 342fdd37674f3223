"""Stream, Step, Split: the one object that every evaluation family walks. The only door for `eval`.

On disk a stream is a folder:

    stream.json                     name, classes, steps, sizes, content hash
    step_00000/train_x.npy …        one set of arrays per step and split: x, y, ids, time (optional)

Arrays are memory-mapped, so that opening costs the same for a thousand samples and for 39 million.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from curate.ground.errors import BadArray, MissingFile, Tampered, Unfit
from curate.ground.files import fingerprint, read_json, write_array, write_bytes, write_json
from stream_builder.lazy import Encoded
from stream_builder.lazy import join as join_encoded

if TYPE_CHECKING:
    from stream_builder.blind import Curve

FORMAT = 1
SPLITS = ("train", "val", "test")
ROOM = "step_{:05d}"  # a step's folder
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Samples in an order that has meaning.

    x: (N, ...) float16/float32 features, (N, H, W, 3) uint8 images or (N,) texts; anything that can be sliced, as
    `Encoded` can.
    y: (N,) int64 labels. ids: (N,) text. time: (N,) int64 seconds UTC, or None.
    """

    x: Any
    y: npt.NDArray[np.int64]
    ids: Array = field(default_factory=lambda: np.zeros(0, "U1"))
    time: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def part(self, start: int, stop: int) -> Split:
        """Samples [start, stop); images that are not decoded yet stay so."""
        return Split(
            pick(self.x, slice(start, stop)),
            self.y[start:stop],
            self.ids[start:stop],
            None if self.time is None else self.time[start:stop],
        )

    def take(self, positions: Array) -> Split:
        """The samples at `positions`, in that order; images that are not decoded yet stay so."""
        return Split(
            pick(self.x, positions),
            self.y[positions],
            self.ids[positions],
            None if self.time is None else self.time[positions],
        )


def pick(x: Any, positions: Any) -> Any:
    """Samples of an array, or of images that are not decoded yet."""
    return x.select(positions) if isinstance(x, Encoded) else x[positions]


def join(splits: Sequence[Split]) -> Split:
    """Splits one after the other."""
    if len(splits) == 1:
        return splits[0]
    times = [s.time for s in splits]
    encoded = [s.x for s in splits if isinstance(s.x, Encoded)]
    return Split(
        join_encoded(encoded) if len(encoded) == len(splits) else np.concatenate([s.x for s in splits]),
        np.concatenate([s.y for s in splits]),
        np.concatenate([s.ids for s in splits]),
        np.concatenate(times) if all(t is not None for t in times) else None,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Step:
    """One time step. splits: any subset of "train", "val", "test". unlabelled: further samples of that time (N, ...),
    of which nobody said what they show, or None."""

    index: int
    name: str
    splits: Mapping[str, Split]
    unlabelled: Any = None

    def __getitem__(self, split: str) -> Split:
        """Raises Unfit where the step has no such split."""
        if split not in self.splits:
            raise Unfit(
                f"Step {self.name!r} has no {split} split.",
                f"It has {', '.join(self.splits) or 'none'}.",
                "Make the stream with one.",
            )
        return self.splits[split]

    def visible(self) -> Step:
        """What a learner may see: train and val, never test."""
        return replace(self, splits={k: v for k, v in self.splits.items() if k != "test"})

    def past(self) -> Step:
        """The whole step as training data, for protocols in which yesterday's test is today's training."""
        return replace(self, splits={"train": self.everything()})

    def everything(self) -> Split:
        """All samples of the step, split after split; in time order where times are known."""
        whole = join([self.splits[s] for s in SPLITS if s in self.splits])
        if whole.time is None:
            return whole
        return whole.take(np.argsort(whole.time, kind="stable"))


@dataclass(frozen=True)
class Stream:
    """steps: in time order. classes: names; the index is the label. prior: unlabelled samples from before the
    first step (N, ...), or None; each step may have more of its own. sha256: hash of the content; equal streams have
    equal hashes. oracle: data of the last step's distribution, as many as the whole sequence has, for an upper bound;
    no learner but that one sees them."""

    name: str
    steps: Sequence[Step]
    classes: Sequence[str]
    prior: Any = None
    sha256: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    oracle: Step | None = None

    def flat(self, split: str = "train") -> Split:
        """All steps' samples of one split, in time order."""
        return join([step[split] for step in self.steps])

    def blind(self) -> Curve:
        """What labels alone give away of later ones, over shifts, in order of time: see `stream_builder.blind`."""
        from stream_builder.blind import curve_of

        splits = [step["train"] for step in self.steps]
        y = np.concatenate([np.asarray(s.y, np.int64) for s in splits])
        times = [s.time for s in splits if s.time is not None]
        return curve_of(y[np.argsort(np.concatenate(times), kind="stable")] if len(times) == len(splits) else y)

    def repetition(self) -> dict[int, float]:
        """Lag → how much more often than by chance a training label comes again so many samples later."""
        from stream_builder.blind import autocorrelation

        return autocorrelation(np.concatenate([np.asarray(step["train"].y, np.int64) for step in self.steps]))

    def drift(self) -> list[float]:
        """Sliced Wasserstein distance of each step's training data to the last step's test data: see
        `stream_builder.measure`. A few hundred samples of each, and pixels of pictures, are looked at."""
        from stream_builder.measure import distances, thinned

        return distances(thinned(self), ["sliced"])["sliced"]

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return next(tuple(s.x.shape[1:]) for step in self.steps for s in step.splits.values())

    def save(self, folder: Path, facts: Mapping[str, Any] | None = None) -> Stream:
        """Write the stream into a new folder; returns it with its hash. `stream.json` is written last."""
        _check_steps([(s.index, s.name) for s in self.steps], str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stream.json").unlink(missing_ok=True)
        sizes: list[dict[str, Any]] = []
        for step in self._saved():
            base = folder / ROOM.format(step.index)
            about: dict[str, Any] = {"index": step.index, "name": step.name, "splits": {}}
            for name, split in step.splits.items():
                _write_x(split.x, base / name, folder)
                write_array(base / f"{name}_y.npy", split.y.astype(np.int64))
                write_array(base / f"{name}_ids.npy", np.asarray(split.ids, dtype=np.str_))
                if split.time is not None:
                    write_array(base / f"{name}_time.npy", split.time.astype(np.int64))
                about["splits"][name] = {
                    "n": len(split),
                    "time": split.time is not None,
                    "sha256": _hash(split),
                }
                if isinstance(split.x, Encoded):
                    about["splits"][name]["encoded"] = split.x.size
            if step.unlabelled is not None:
                about["unlabelled"] = _save_bare(step.unlabelled, base / "unlabelled", folder)
            sizes.append(about)
        head = {
            "format": FORMAT,
            "name": self.name,
            "classes": list(self.classes),
            "steps": sizes[: len(self.steps)],
            "prior": None if self.prior is None else _save_bare(self.prior, folder / "prior", folder),
            "facts": dict(facts or self.facts),
            **({} if self.oracle is None else {"oracle": sizes[-1]}),
        }
        head["sha256"] = fingerprint({k: v for k, v in head.items() if k not in ("facts", "name")})
        write_json(folder / "stream.json", head)
        return Stream.load(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Stream:
        """Open a stream folder; arrays are memory-mapped.

        Raises MissingFile, or Tampered for a shard that is missing or has another length than stream.json says.
        """
        folder = Path(folder)
        if not (folder / "stream.json").is_file():
            raise MissingFile(f"{folder} is no stream: it has no stream.json.", "", "Make one with driftline stream.")
        head = read_json(folder / "stream.json")
        _check_steps([(about["index"], about["name"]) for about in head["steps"]], str(folder / "stream.json"))
        steps = []
        for about in (*head["steps"], *([head["oracle"]] if "oracle" in head else [])):
            base = folder / ROOM.format(about["index"])
            splits = {
                name: Split(
                    _open_x(base / name, size, folder),
                    _open(base / f"{name}_y.npy", size["n"]),
                    _open(base / f"{name}_ids.npy", size["n"]),
                    _open(base / f"{name}_time.npy", size["n"]) if size["time"] else None,
                )
                for name, size in about["splits"].items()
            }
            bare = _open_x(base / "unlabelled", about["unlabelled"], folder) if "unlabelled" in about else None
            steps.append(Step(about["index"], about["name"], splits, bare))
        prior = None if head["prior"] is None else _open_x(folder / "prior", head["prior"], folder)
        oracle = steps.pop() if "oracle" in head else None
        return cls(head["name"], steps, head["classes"], prior, head["sha256"], head["facts"], oracle)

    def _saved(self) -> list[Step]:
        """The steps, and what the oracle sees, numbered as one more."""
        return [*self.steps, *([] if self.oracle is None else [self.oracle])]

    def verify(self, folder: Path) -> None:
        """Hash every array again. Raises Tampered naming the first step and split that differs."""
        head = read_json(folder / "stream.json")
        told = [*head["steps"], *([head["oracle"]] if "oracle" in head else [])]
        bare = [
            (f"step {s.name!r}", a.get("unlabelled"), s.unlabelled) for a, s in zip(told, self._saved(), strict=True)
        ]
        for what, size, x in (*bare, ("the prior", head["prior"], self.prior)):
            if size is not None and _hash_x(x) != size["sha256"]:
                raise Tampered(f"Unlabelled samples of {what} in {folder} were changed.", "", "Make the stream again.")
        for about, step in zip(told, self._saved(), strict=True):
            for name, size in about["splits"].items():
                if _hash(step.splits[name]) != size["sha256"]:
                    raise Tampered(
                        f"Step {step.name!r}, split {name}, of {folder} was changed.",
                        "",
                        "Make the stream again.",
                    )


def _open(path: Path, n: int) -> Array:
    if not path.is_file():
        raise Tampered(f"The stream's file {path} is missing.", "", "Make the stream again.")
    array: Array = np.load(path, mmap_mode="r")
    if len(array) != n:
        raise Tampered(f"{path} has {len(array)} samples, stream.json says {n}.", "", "Make the stream again.")
    return array


def _check_steps(named: Sequence[tuple[int, str]], what: str) -> None:
    """Raise BadArray where two steps have one number or one name."""
    for position, kind in enumerate(("number", "name")):
        values = [pair[position] for pair in named]
        if twice := [v for v in values if values.count(v) > 1]:
            raise BadArray(f"{what}: two steps have the {kind} {twice[0]!r}.", "Expected each step once.")


def _write_x(x: Any, stem: Path, folder: Path) -> None:
    """An array as it is; encoded images as their places in files, which come along (as links where that can be)."""
    if not isinstance(x, Encoded):
        write_array(stem.with_name(f"{stem.name}_x.npy"), x)
        return
    names = []
    for file in x.files:
        name = f"{fingerprint(str(file.resolve()))[:12]}-{file.name}"
        _bring(file, folder / "files" / name)
        names.append(name)
    write_json(stem.with_name(f"{stem.name}_x.json"), {"files": names, "size": x.size, "strict": x.strict})
    write_array(stem.with_name(f"{stem.name}_where.npy"), x.where)


def _bring(file: Path, place: Path) -> None:
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place)
    except OSError:  # another file system
        write_bytes(place, file.read_bytes())


def _open_x(stem: Path, about: Mapping[str, Any], folder: Path) -> Any:
    if "encoded" not in about:
        return _open(stem.with_name(f"{stem.name}_x.npy"), about["n"])
    told = read_json(stem.with_name(f"{stem.name}_x.json"))
    files = tuple(folder / "files" / name for name in told["files"])
    if lost := [f for f in files if f.name.count("/") or not f.is_file()]:
        raise Tampered(f"The stream's file {lost[0]} is missing.", "", "Make the stream again.")
    where = _open(stem.with_name(f"{stem.name}_where.npy"), about["n"])
    return Encoded(files, where, told["size"], told["strict"])


def _save_bare(x: Any, stem: Path, folder: Path) -> dict[str, Any]:
    """Samples without labels; what stream.json says of them."""
    _write_x(x, stem, folder)
    return {"n": len(x), "sha256": _hash_x(x), **({"encoded": x.size} if isinstance(x, Encoded) else {})}


def _hash(split: Split) -> str:
    digest = hashlib.sha256()
    _take(digest, split.x)
    _take(digest, split.y.astype(np.int64))
    if split.time is not None:
        _take(digest, split.time.astype(np.int64))
    digest.update("\n".join(str(i) for i in split.ids).encode())
    return digest.hexdigest()


def _hash_x(x: Any) -> str:
    digest = hashlib.sha256()
    _take(digest, x)
    return digest.hexdigest()


def _take(digest: Any, x: Any, rows: int = 65_536) -> None:
    """Bring a digest up to date with an array, or with images that are not decoded yet."""
    if isinstance(x, Encoded):
        digest.update(x.sha256().encode())
        return
    digest.update(f"{x.dtype.str}{x.shape}".encode())
    for start in range(0, len(x), rows):
        digest.update(np.ascontiguousarray(x[start : start + rows]).tobytes())


def check(x: Array, y: Array, n_classes: int, what: str) -> None:
    """Refuse arrays that no learner could take, naming the first bad index. Raises BadArray."""
    if y.ndim != 1 or len(x) != len(y):
        raise BadArray(f"{what}: x has {len(x)} samples and y has shape {y.shape}.", "Expected y of shape (N,).")
    if y.dtype.kind not in "iu":
        raise BadArray(f"{what}: y has dtype {y.dtype}.", "Expected integers from 0.")
    bad = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(bad):
        raise BadArray(f"{what}: label {y[bad[0]]} at index {bad[0]}.", f"Expected 0 … {n_classes - 1}.")
    if x.dtype.kind == "U":
        if x.ndim != 1:
            raise BadArray(f"{what}: texts of shape {x.shape}.", "Expected one text a sample, (N,).")
    elif x.dtype == np.uint8:
        if x.ndim != 4 or x.shape[-1] != 3:
            raise BadArray(
                f"{what}: uint8 x of shape {x.shape}.",
                "Expected images (N, H, W, 3).",
                "Convert grey or RGBA images to RGB.",
            )
    elif x.dtype in (np.float16, np.float32):
        for start in range(0, len(x), 65_536):
            finite = np.isfinite(x[start : start + 65_536]).reshape(len(x[start : start + 65_536]), -1).all(1)
            if not finite.all():
                raise BadArray(
                    f"{what}: x at index {start + int(np.argmin(finite))} holds NaN or infinity.",
                    "Expected finite numbers.",
                )
        if x.ndim < 2:
            raise BadArray(f"{what}: x has shape {x.shape}.", "Expected (N, D) features.")
    else:
        raise BadArray(
            f"{what}: x has dtype {x.dtype}.",
            "Expected float16 or float32 features, uint8 images (N, H, W, 3), or texts (N,).",
        )
