"""A stream on disk.

    stream.json                     name, classes, steps, sizes, content hash, its own digest; written last
    verified.json                   sizes and times of all files when their content was last verified
    step_00000/train_x.npy …        arrays of each step and split: x, y, ids; time, group, test_in, label_time if known
    class_texts/x.npy, y.npy, prompts.npy   vectors of texts about the classes, if there are any
    step_00000/train_x.json …       lazy images instead of x: names in files/, and train_where.npy with locations

Arrays are memory-mapped, so opening takes the same time for a thousand samples and for 39 million.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core import atomic_io as io
from driftline.curate.core.atomic_io import fingerprint, write_array, write_json
from driftline.curate.core.errors import BadArray, BadConfig, DriftlineError, IntegrityError, MissingFile
from driftline.curate.core.files import stamp_of
from driftline.curate.core.outputs import ELSEWHERE
from driftline.curate.foreign.arrays import open_array
from driftline.curate.foreign.documents import Schema, read_document
from driftline.curate.foreign.names import inside
from driftline.stream_builder.class_texts import ClassTexts
from driftline.stream_builder.lazy_images import LazyImages
from driftline.stream_builder.step import OPTIONAL, Array, Split, Step

FORMAT = 1
KINDS = {"time": np.int64, "group": np.int64, "test_in": np.bool_, "label_time": np.int64}  # of optional columns
VERIFIED = "verified.json"
STEP_FOLDER = "step_{:05d}"
FILES = "files"  # folder of what lazy images are decoded from
AGAIN = "Create the stream again."


class Lazy(Schema):
    """NAME_x.json: which files hold the images."""

    files: list[str]
    size: int


def described(stream: Any) -> dict[str, Any]:
    """What stream.json says of a Stream, its content hash included, which is the same in memory and on disk."""
    records = [_record(step) for step in _stored_steps(stream)]
    head: dict[str, Any] = {
        "format": FORMAT,
        "name": stream.name,
        "classes": list(stream.classes),
        "steps": records[: len(stream.steps)],
        "prior": None if stream.unlabelled is None else _record_of_unlabelled(stream.unlabelled),
        "facts": dict(stream.facts),
    }
    if stream.oracle is not None:
        head["oracle"] = records[-1]
    if (texts := stream.class_texts) is not None:
        head["class_texts"] = {"n": len(texts.y), "sha256": _hash_texts(texts), "encoder": texts.encoder}
    hashed = {key: value for key, value in head.items() if key not in ("facts", "name")}
    return head | {"sha256": fingerprint(hashed)}


def _record(step: Step) -> dict[str, Any]:
    """Name, sizes and hashes of a step."""
    splits = {
        kind: {"n": len(split), "time": False, **dict.fromkeys(split.columns(), True), "sha256": _hash(split)}
        | _encoded(split.x)
        for kind, split in step.splits.items()
    }
    unlabelled = {} if step.unlabelled is None else {"unlabelled": _record_of_unlabelled(step.unlabelled)}
    return {"index": step.index, "name": step.name, "splits": splits, **unlabelled}


def _record_of_unlabelled(x: Any) -> dict[str, Any]:
    return {"n": len(x), "sha256": _hash_x(x), **_encoded(x)}


def _encoded(x: Any) -> dict[str, int]:
    return {"encoded": x.size} if isinstance(x, LazyImages) else {}


def write(folder: Path, stream: Any) -> None:
    """Write a Stream into a new folder; `stream.json` is written last. Raises BadArray for two steps of one number or
    name; BadConfig if the folder holds another stream, or somebody's stream.json; BadInput if a newer driftline wrote
    it. A damaged stream may be written again."""
    for kind, values in (("number", [s.index for s in stream.steps]), ("name", [s.name for s in stream.steps])):
        if repeated := [value for value in values if values.count(value) > 1]:
            raise BadArray(f"{folder}: two steps have the {kind} {repeated[0]!r}.", "Expected different ones.")
    head = described(stream)
    _check_kept(folder, head["sha256"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stream.json").unlink(missing_ok=True)
    io.sweep(folder)
    files = folder / FILES
    there = _plain_files(files)
    for step in _stored_steps(stream):
        step_folder = folder / STEP_FOLDER.format(step.index)
        for kind, split in step.splits.items():
            _write_x(split.x, step_folder / kind, files, there)
            write_array(step_folder / f"{kind}_y.npy", split.y.astype(np.int64))
            write_array(step_folder / f"{kind}_ids.npy", np.asarray(split.ids, dtype=np.str_))
            for name, column in split.columns().items():
                write_array(step_folder / f"{kind}_{name}.npy", column.astype(KINDS[name]))
        if step.unlabelled is not None:
            _write_x(step.unlabelled, step_folder / "unlabelled", files, there)
    if stream.unlabelled is not None:
        _write_x(stream.unlabelled, folder / "unlabelled", files, there)
    for name in ("x", "y", "prompts") if stream.class_texts is not None else ():
        write_array(folder / "class_texts" / f"{name}.npy", getattr(stream.class_texts, name))
    write_json(folder / "stream.json", head | {"digest": fingerprint(head)})


def _check_kept(folder: Path, sha256: str) -> None:
    """Raise BadConfig and BadInput as `write` does. sha256: of the stream that is to be written."""
    path = folder / "stream.json"
    if not path.exists():
        return
    try:
        head = _head(folder)
    except DriftlineError as error:
        if error.way_out == io.UPGRADE:
            raise
        if not any(folder.glob("step_*")):
            raise BadConfig(f"{folder} has a file {path.name} that is no stream's.", "", ELSEWHERE) from None
        return
    if head["sha256"] != sha256:
        what = f"{folder} holds another stream: {head['name']}, {len(head['steps'])} steps."
        raise BadConfig(what, "", "Set another --out, or delete the folder.")


def read(folder: Path) -> dict[str, Any]:
    """The fields of the stream in a folder; arrays are memory-mapped.

    Raises MissingFile, or IntegrityError for an array that is missing or has another length than stream.json says.
    """
    if not (folder / "stream.json").is_file():
        way_out = "Create one with driftline stream."
        raise MissingFile(f"{folder} is not a stream: it has no stream.json.", "", way_out)
    head = _head(folder)
    steps = []
    files = folder / FILES
    plain = _plain_files(files)
    for record in _recorded_steps(head):
        step_folder = folder / STEP_FOLDER.format(record["index"])
        splits = {
            name: Split(
                _open_x(step_folder / name, size, files, plain),
                open_array(step_folder / f"{name}_y.npy", "i", (size["n"],), AGAIN),
                open_array(step_folder / f"{name}_ids.npy", "U", (size["n"],), AGAIN),
                **_columns(step_folder, name, size),
            )
            for name, size in record["splits"].items()
        }
        unlabelled = None
        if "unlabelled" in record:
            unlabelled = _open_x(step_folder / "unlabelled", record["unlabelled"], files, plain)
        steps.append(Step(record["index"], record["name"], splits, unlabelled))
    oracle = steps.pop() if "oracle" in head else None
    unlabelled_past = None if head["prior"] is None else _open_x(folder / "unlabelled", head["prior"], files, plain)
    texts = _open_texts(head, folder / "class_texts")
    return {key: head[key] for key in ("name", "classes", "sha256", "facts")} | {
        "steps": steps, "unlabelled": unlabelled_past, "oracle": oracle, "class_texts": texts
    }  # fmt: skip


def verify(folder: Path, stream: Any) -> None:
    """Hash every array of the Stream again. Raises IntegrityError naming the first step and split that differs."""
    head = _head(folder)
    pairs = list(zip(_recorded_steps(head), _stored_steps(stream), strict=True))
    unlabelled = [(f"step {step.name!r}", record.get("unlabelled"), step.unlabelled) for record, step in pairs]
    for what, size, x in (*unlabelled, ("the unlabelled past", head["prior"], stream.unlabelled)):
        if size is not None and _hash_x(x) != size["sha256"]:
            raise IntegrityError(f"Unlabelled samples of {what} in {folder} were changed.", "", AGAIN)
    texts = stream.class_texts
    if texts is not None and _hash_texts(texts) != head["class_texts"]["sha256"]:
        raise IntegrityError(f"The class texts of {folder} were changed.", "", AGAIN)
    for record, step in pairs:
        for name, size in record["splits"].items():
            try:
                same = _hash(step.splits[name]) == size["sha256"]
            except ValueError:  # ids that are no text
                same = False
            if not same:
                raise IntegrityError(f"Step {step.name!r}, split {name}, of {folder} was changed.", "", AGAIN)


def verify_once(folder: Path, verify_all: Callable[[], None]) -> None:
    """Call `verify_all`, unless the sizes and times of all files are those of the last call that found no fault."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != VERIFIED)
    marks = {path.relative_to(folder).as_posix(): stamp_of(path.stat()) for path in paths}
    now, seal = fingerprint(marks), folder / VERIFIED
    with suppress(DriftlineError, OSError):  # a damaged memory is none
        if io.read_json(seal) == {"format": FORMAT, "files": now}:
            return
    verify_all()
    with suppress(OSError):  # a folder that cannot be written is verified each time
        write_json(seal, {"format": FORMAT, "files": now})


def _stored_steps(stream: Any) -> list[Step]:
    """The steps; the oracle's data is stored as one more step."""
    return [*stream.steps, *([] if stream.oracle is None else [stream.oracle])]


def _recorded_steps(head: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Their records in stream.json."""
    return [*head["steps"], *([head["oracle"]] if "oracle" in head else [])]


def _head(folder: Path) -> dict[str, Any]:
    """stream.json. Raises BadInput and IntegrityError naming the file."""
    path = folder / "stream.json"
    head = read_document(path, Schema, AGAIN)
    io.check_format(path, head.get("format"), FORMAT, AGAIN)
    if head.pop("digest", "") != fingerprint(head):
        raise IntegrityError(f"{path} was changed after it was written.", "Its digest differs.", AGAIN)
    return head


def _columns(step_folder: Path, split: str, size: Mapping[str, Any]) -> dict[str, Any]:
    """The optional columns that a split has."""
    shapes = {name: (size["n"], None) if name == "test_in" else (size["n"],) for name in OPTIONAL if size.get(name)}
    return {
        name: open_array(step_folder / f"{split}_{name}.npy", np.dtype(KINDS[name]).kind, shape, AGAIN)
        for name, shape in shapes.items()
    }


def _write_x(x: Any, stem: Path, folder: Path, there: set[str]) -> None:
    """Write an array; of lazy images, write the locations and copy the files into `folder` (as hard links if possible).

    there: names of the files that the folder has, extended here.
    """
    if not isinstance(x, LazyImages):
        write_array(stem.with_name(f"{stem.name}_x.npy"), x)
        return
    names = _stored_files(x.files, folder, there)
    write_json(stem.with_name(f"{stem.name}_x.json"), {"files": names, "size": x.size})
    write_array(stem.with_name(f"{stem.name}_where.npy"), x.locations)


def _stored_files(files: Sequence[Path], folder: Path, there: set[str]) -> list[str]:
    """Link or copy files into `folder`; returns their names there. there: names that it has, extended here. A dataset
    may have a file for each image."""
    if files:
        folder.mkdir(parents=True, exist_ok=True)
    real: dict[str, str] = {}  # folder → without links
    names = []
    for file in files:
        parent, _, base = os.fspath(file).rpartition(os.sep)
        if parent not in real:
            real[parent] = os.path.realpath(parent)
        place = f"{real[parent]}{os.sep}{base}"
        place = os.path.realpath(place) if os.path.islink(place) else place
        name = f"{fingerprint(place)[:12]}-{base}"
        if name not in there:
            target = f"{folder}{os.sep}{name}"
            try:
                os.link(place, target)
            except OSError:  # another file system
                io.write_bytes(Path(target), file.read_bytes())
            there.add(name)
        names.append(name)
    return names


def _open_x(stem: Path, size: Mapping[str, Any], folder: Path, plain: Collection[str]) -> Any:
    """Samples of a split. plain: files known to be in `folder`. Raises IntegrityError for another that is missing, or a
    link that leaves the folder."""
    if "encoded" not in size:
        return _samples(stem.with_name(f"{stem.name}_x.npy"), size["n"])
    source = stem.with_name(f"{stem.name}_x.json")
    lazy = read_document(source, Lazy, AGAIN)
    files = tuple(folder / name if name in plain else inside(folder, name, source) for name in lazy["files"])
    if missing := [file for file in files if file.name not in plain and not file.is_file()]:
        raise IntegrityError(f"The stream's file {missing[0]} is missing.", "", AGAIN)
    locations = open_array(stem.with_name(f"{stem.name}_where.npy"), "i", (size["n"], 3), AGAIN)
    return LazyImages(files, locations, lazy["size"])


def _plain_files(folder: Path) -> set[str]:
    """Names of the files in a folder that are no links."""
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}


def _samples(path: Path, n: int) -> Array:
    """Features, images or texts. Raises IntegrityError for arrays that are none of these."""
    array = open_array(path, "fuU", (n, -1), AGAIN)
    kinds = {"f": array.ndim > 1 and array.dtype.itemsize in (2, 4), "U": array.ndim == 1}
    if not kinds.get(array.dtype.kind, array.dtype == np.uint8 and array.ndim == 4):
        raise IntegrityError(f"{path} has dtype {array.dtype} and shape {array.shape}.", "Expected samples.", AGAIN)
    return array


def _open_texts(head: Mapping[str, Any], folder: Path) -> ClassTexts | None:
    """The class texts, if there are any."""
    if (record := head.get("class_texts")) is None:
        return None
    x = open_array(folder / "x.npy", "f", (record["n"], None), AGAIN)
    y, prompts = (
        open_array(folder / f"{n}.npy", kind, (record["n"],), AGAIN) for n, kind in (("y", "i"), ("prompts", "U"))
    )
    return ClassTexts(np.asarray(x), np.asarray(y, np.int64), np.asarray(prompts), record["encoder"])


def _hash_texts(texts: ClassTexts) -> str:
    return _hash_x(texts.x, texts.y, text="\n".join([texts.encoder, *texts.prompts.tolist()]))


def _hash(split: Split) -> str:
    columns: list[Array] = [column.astype(KINDS[name]) for name, column in split.columns().items()]
    return _hash_x(split.x, split.y.astype(np.int64), *columns, text="\n".join(str(i) for i in split.ids))


def _hash_x(*arrays: Any, text: str = "") -> str:
    digest = hashlib.sha256()
    for x in arrays:
        _update(digest, x)
    digest.update(text.encode())
    return digest.hexdigest()


def _update(digest: Any, x: Any, rows: int = 65_536) -> None:
    """Add an array to a digest, in blocks of `rows`; of lazy images, their stored bytes."""
    if isinstance(x, LazyImages):
        digest.update(x.sha256().encode())
        return
    digest.update(f"{x.dtype.str}{x.shape}".encode())
    for start in range(0, len(x), rows):
        digest.update(np.ascontiguousarray(x[start : start + rows]).tobytes())
