"""A stream on disk:

    stream.json                     name, classes, steps, sizes, content hash; written last
    step_00000/train_x.npy …        one set of arrays per step and split: x, y, ids, time (optional)

Arrays are memory-mapped, so that opening costs the same for a thousand samples and for 39 million.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.core.atomic_io import fingerprint, read_json, write_array, write_bytes, write_json
from curate.core.errors import IntegrityError, MissingFile
from curate.core.formats import check_format
from stream_builder.lazy_images import Encoded
from stream_builder.step import Array, Split, Step
from stream_builder.validate import check_steps

if TYPE_CHECKING:
    from stream_builder.stream import Stream

FORMAT = 1
STEP_FOLDER = "step_{:05d}"


def write(stream: Stream, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write a stream into a new folder; `stream.json` is written last."""
    check_steps([(s.index, s.name) for s in stream.steps], str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stream.json").unlink(missing_ok=True)
    sizes: list[dict[str, Any]] = []
    for step in _stored_steps(stream):
        base = folder / STEP_FOLDER.format(step.index)
        about: dict[str, Any] = {"index": step.index, "name": step.name, "splits": {}}
        for name, split in step.splits.items():
            _write_x(split.x, base / name, folder)
            write_array(base / f"{name}_y.npy", split.y.astype(np.int64))
            write_array(base / f"{name}_ids.npy", np.asarray(split.ids, dtype=np.str_))
            if split.time is not None:
                write_array(base / f"{name}_time.npy", split.time.astype(np.int64))
            about["splits"][name] = {"n": len(split), "time": split.time is not None, "sha256": _hash(split)}
            if isinstance(split.x, Encoded):
                about["splits"][name]["encoded"] = split.x.size
        if step.unlabelled is not None:
            about["unlabelled"] = _write_unlabelled(step.unlabelled, base / "unlabelled", folder)
        sizes.append(about)
    head = {
        "format": FORMAT,
        "name": stream.name,
        "classes": list(stream.classes),
        "steps": sizes[: len(stream.steps)],
        "prior": None if stream.prior is None else _write_unlabelled(stream.prior, folder / "prior", folder),
        "facts": dict(facts),
        **({} if stream.oracle is None else {"oracle": sizes[-1]}),
    }
    head["sha256"] = fingerprint({k: v for k, v in head.items() if k not in ("facts", "name")})
    write_json(folder / "stream.json", head)


def read(folder: Path) -> dict[str, Any]:
    """The fields of the stream in a folder; arrays are memory-mapped.

    Raises MissingFile, or IntegrityError for a shard that is missing or has another length than stream.json says.
    """
    if not (folder / "stream.json").is_file():
        raise MissingFile(f"{folder} is no stream: it has no stream.json.", "", "Make one with driftline stream.")
    head = read_json(folder / "stream.json")
    check_format(folder / "stream.json", head.get("format"), FORMAT, "Make the stream again.")
    check_steps([(about["index"], about["name"]) for about in head["steps"]], str(folder / "stream.json"))
    steps = []
    for about in _described_steps(head):
        base = folder / STEP_FOLDER.format(about["index"])
        splits = {
            name: Split(
                _open_x(base / name, size, folder),
                _open(base / f"{name}_y.npy", size["n"]),
                _open(base / f"{name}_ids.npy", size["n"]),
                _open(base / f"{name}_time.npy", size["n"]) if size["time"] else None,
            )
            for name, size in about["splits"].items()
        }
        unlabelled = _open_x(base / "unlabelled", about["unlabelled"], folder) if "unlabelled" in about else None
        steps.append(Step(about["index"], about["name"], splits, unlabelled))
    oracle = steps.pop() if "oracle" in head else None
    return {
        "name": head["name"],
        "steps": steps,
        "classes": head["classes"],
        "prior": None if head["prior"] is None else _open_x(folder / "prior", head["prior"], folder),
        "sha256": head["sha256"],
        "facts": head["facts"],
        "oracle": oracle,
    }


def verify(stream: Stream, folder: Path) -> None:
    """Hash every array again. Raises IntegrityError naming the first step and split that differs."""
    head = read_json(folder / "stream.json")
    described = list(zip(_described_steps(head), _stored_steps(stream), strict=True))
    unlabelled = [(f"step {step.name!r}", about.get("unlabelled"), step.unlabelled) for about, step in described]
    for what, size, x in (*unlabelled, ("the prior", head["prior"], stream.prior)):
        if size is not None and _hash_x(x) != size["sha256"]:
            raise IntegrityError(
                f"Unlabelled samples of {what} in {folder} were changed.", "", "Make the stream again."
            )
    for about, step in described:
        for name, size in about["splits"].items():
            if _hash(step.splits[name]) != size["sha256"]:
                raise IntegrityError(
                    f"Step {step.name!r}, split {name}, of {folder} was changed.", "", "Make the stream again."
                )


def _stored_steps(stream: Stream) -> list[Step]:
    """The steps, and what the oracle sees, numbered as one more."""
    return [*stream.steps, *([] if stream.oracle is None else [stream.oracle])]


def _described_steps(head: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The same, as stream.json describes them."""
    return [*head["steps"], *([head["oracle"]] if "oracle" in head else [])]


def _open(path: Path, n: int) -> Array:
    if not path.is_file():
        raise IntegrityError(f"The stream's file {path} is missing.", "", "Make the stream again.")
    array: Array = np.load(path, mmap_mode="r")
    if len(array) != n:
        raise IntegrityError(f"{path} has {len(array)} samples, stream.json says {n}.", "", "Make the stream again.")
    return array


def _write_x(x: Any, stem: Path, folder: Path) -> None:
    """An array as it is; encoded images as their places in files, which come along (as links where that can be)."""
    if not isinstance(x, Encoded):
        write_array(stem.with_name(f"{stem.name}_x.npy"), x)
        return
    names = []
    for file in x.files:
        name = f"{fingerprint(str(file.resolve()))[:12]}-{file.name}"
        _link_or_copy(file, folder / "files" / name)
        names.append(name)
    write_json(stem.with_name(f"{stem.name}_x.json"), {"files": names, "size": x.size, "strict": x.strict})
    write_array(stem.with_name(f"{stem.name}_where.npy"), x.where)


def _link_or_copy(file: Path, place: Path) -> None:
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
        raise IntegrityError(f"The stream's file {lost[0]} is missing.", "", "Make the stream again.")
    where = _open(stem.with_name(f"{stem.name}_where.npy"), about["n"])
    return Encoded(files, where, told["size"], told["strict"])


def _write_unlabelled(x: Any, stem: Path, folder: Path) -> dict[str, Any]:
    """Samples without labels; what stream.json says of them."""
    _write_x(x, stem, folder)
    return {"n": len(x), "sha256": _hash_x(x), **({"encoded": x.size} if isinstance(x, Encoded) else {})}


def _hash(split: Split) -> str:
    digest = hashlib.sha256()
    _update(digest, split.x)
    _update(digest, split.y.astype(np.int64))
    if split.time is not None:
        _update(digest, split.time.astype(np.int64))
    digest.update("\n".join(str(i) for i in split.ids).encode())
    return digest.hexdigest()


def _hash_x(x: Any) -> str:
    digest = hashlib.sha256()
    _update(digest, x)
    return digest.hexdigest()


def _update(digest: Any, x: Any, rows: int = 65_536) -> None:
    """Bring a digest up to date with an array, or with images that are not decoded yet."""
    if isinstance(x, Encoded):
        digest.update(x.sha256().encode())
        return
    digest.update(f"{x.dtype.str}{x.shape}".encode())
    for start in range(0, len(x), rows):
        digest.update(np.ascontiguousarray(x[start : start + rows]).tobytes())
