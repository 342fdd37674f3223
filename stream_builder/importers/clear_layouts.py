"""CLEAR's two layouts on disk, and what they have in common: one `Part` for each bucket and side.

Old (clear10_neurips2021, clear100_cvpr2022, and our own export): lists of files, five published splits.
New (clear10, clear100): the folders train/ and test/, each with the metadata of every image.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadInput, IntegrityError, MissingFile
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.foreign.documents import read_text
from driftline.curate.foreign.names import inside, is_count
from driftline.stream_builder.importers.pickles import read_tensors
from driftline.stream_builder.stream import Array

AGAIN = "Download and unpack it again."
CLEAR10 = [
    "BACKGROUND", "baseball", "bus", "camera", "cosplay", "dress", "hockey", "laptop", "racing", "soccer", "sweater",
]  # fmt: skip


@dataclass
class Part:
    """Labelled samples of one bucket, in the order of their files."""

    bucket: str
    """name of the bucket"""
    source: Path
    """the file that lists them, for messages"""
    paths: list[str] = field(default_factory=list)
    """image files, relative to `root`"""
    root: Path = Path()
    """folder that the paths are relative to"""
    y: list[int] = field(default_factory=list)
    """labels"""
    is_test: bool | None = None
    """side of all samples; None: see `test_in`"""
    time: list[int | None] = field(default_factory=list)
    """upload times, seconds UTC, or None where unknown"""
    user: list[str] = field(default_factory=list)
    """uploaders, or "" where unknown"""
    test_in: npt.NDArray[np.bool_] | None = None
    """(N, K) True where a sample is a test sample of split k; None: no such splits"""
    vectors: Array | None = None
    """(N, D) float32 features, if asked for"""

    @property
    def ids(self) -> list[str]:
        """Photo ids: the names of the files without their endings."""
        return [path.rpartition("/")[2].rpartition(".")[0] for path in self.paths]


def is_old(folder: Path) -> bool:
    """Whether a folder has the old layout. Raises MissingFile for neither."""
    if (folder / "training_folder").is_dir():
        return True
    if any((folder / side / "labeled_metadata.json").is_file() for side in ("train", "test")):
        return False
    zips = sorted(folder.glob("*.zip")) if folder.is_dir() else []
    expected = "Expected CLEAR's training_folder/ (old layout), or train/ and test/ with labeled_metadata.json (new)."
    if not folder.exists():
        raise MissingFile(f"There is no folder {folder}.", expected)
    if zips or folder.suffix == ".zip":
        raise MissingFile(
            f"{zips[0] if zips else folder} is not unpacked.", expected, "Unpack it, and name its folder."
        )
    if (folder / "labeled_metadata.json").is_file():
        raise MissingFile(f"{folder} is one part of CLEAR.", expected, f"Name the folder above it, {folder.parent}.")
    raise MissingFile(f"{folder} does not hold CLEAR.", expected, AGAIN)


def class_names(path: Path) -> list[str]:
    """The classes of a class_names.txt. Raises BadInput for an empty or repeated name, and for CLEAR-10's names in
    another order than published: every label would be wrong."""
    names = read_text(path, AGAIN).rstrip("\n").split("\n")
    if len(set(names)) != len(names) or "" in names:
        raise BadInput(f"{path} has an empty or repeated name.", "Expected one class a line.", AGAIN)
    if set(names) == set(CLEAR10) and names != CLEAR10:
        wrong = next(i for i, (name, published) in enumerate(zip(names, CLEAR10, strict=True)) if name != published)
        raise BadInput(
            f"{path}: class {wrong} is {names[wrong]!r}.",
            f"CLEAR-10 publishes {CLEAR10[wrong]!r} there: labels would not be those of the paper.",
            AGAIN,
        )
    return names


def read_old(folder: Path, features: str | None) -> tuple[list[Part], list[str], list[str]]:
    """Parts, classes, names of the published splits. features: name of a folder in training_folder/features."""
    training = folder / "training_folder"
    classes = class_names(folder / "class_names.txt")
    buckets = read_json(training / "bucket_indices.json")
    if not isinstance(buckets, list) or not buckets or not all(isinstance(b, str | int) for b in buckets):
        raise BadInput(f"{training / 'bucket_indices.json'} is no list of buckets.", "", AGAIN)
    metadata = _metadata(folder, None)
    splits = sorted(p.name for p in training.glob("testset_ratio_*/split_*") if p.is_dir())
    ratio = next(training.glob("testset_ratio_*"), training)
    parts = []
    for bucket in map(str, buckets):
        lists = inside(training / "filelists", bucket, training / "bucket_indices.json")
        part = Part(bucket, lists / "all.txt", root=folder)
        part.paths, part.y = _listed(part.source, len(classes))
        for path, y in zip(part.paths, part.y, strict=True):
            place = path.split("/")
            if place[0] == "labeled_images" and len(place) == 4 and place[1] != bucket:
                raise IntegrityError(
                    f"{part.source} lists {path}, which is in bucket {place[1]}.",
                    f"Expected images of bucket {bucket} only.",
                    AGAIN,
                )
            if place[-2:-1] and place[-2] in classes and classes.index(place[-2]) != y:
                raise IntegrityError(
                    f"{part.source} gives {path} the label {y}, which is {classes[y]!r}.",
                    f"Expected {classes.index(place[-2])}: class_names.txt has another order than the lists.",
                    AGAIN,
                )
        _describe(part, metadata.get(bucket, {}))
        if splits:
            part.test_in = np.stack([_sides(part, ratio / name / bucket) for name in splits], 1)
        if features is not None:
            part.vectors = _old_vectors(training / "features", features, part)
        parts.append(part)
    return parts, classes, splits


def _listed(path: Path, n_classes: int) -> tuple[list[str], list[int]]:
    """The paths and labels of a list of files."""
    paths, labels = [], []
    for number, line in enumerate(read_text(path, AGAIN).splitlines(), 1):
        name, _, label = line.strip().rpartition(" ")
        if not name or not is_count(label) or int(label) >= n_classes:
            raise BadInput(
                f"{path}, line {number}: {line[:100]!r}.", f"Expected a path and 0 … {n_classes - 1}.", AGAIN
            )
        paths.append(name)
        labels.append(int(label))
    if not paths:
        raise BadInput(f"{path} is empty.", "Expected a path and a label a line.", AGAIN)
    return paths, labels


def _sides(part: Part, folder: Path) -> npt.NDArray[np.bool_]:
    """(N,) True for the test samples of a split."""
    lines = {side: read_text(folder / f"{side}.txt", AGAIN).splitlines() for side in ("train", "test")}
    listed = {side: {line.rpartition(" ")[0] for line in of_side if line} for side, of_side in lines.items()}
    if listed["train"] & listed["test"] or listed["train"] | listed["test"] != set(part.paths):
        raise IntegrityError(
            f"{folder} does not list the images of {part.source}, each in training or test.",
            "Expected lists of the same version.",
            AGAIN,
        )
    return np.array([path in listed["test"] for path in part.paths], bool)


def _old_vectors(folder: Path, name: str, part: Part) -> Array:
    """Features of a bucket, in the order of its list."""
    path = _feature_folder(folder, name) / part.bucket / "all.pth"
    content = read_tensors(path, AGAIN)
    pair = isinstance(content, list | tuple) and len(content) == 2
    vectors = _rows(content[0], path) if pair else np.zeros((0, 0), np.float32)
    if len(vectors) != len(part.y) or list(np.asarray(content[1]).tolist()) != part.y:
        raise IntegrityError(
            f"{path} does not have the {len(part.y)} labels of {part.source}.", "Expected files of one version.", AGAIN
        )
    return vectors


def _feature_folder(folder: Path, name: str) -> Path:
    """Raises MissingFile naming the features that are there."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    if name not in names:
        has = f"There is {', '.join(names)}." if names else "There are none."
        raise MissingFile(f"{folder} has no features {name!r}.", has, "Use --features images:SIZE for the images.")
    return folder / name


def _rows(tensors: Any, path: Path) -> Array:
    """(N, D) float32 of a tensor or of N tensors. Raises IntegrityError."""
    try:
        rows = np.asarray(tensors if isinstance(tensors, np.ndarray) else np.stack(list(tensors)), np.float32)
        if rows.ndim != 2 or not np.isfinite(rows).all():
            raise ValueError
    except (ValueError, TypeError):
        raise IntegrityError(f"{path} does not hold one finite vector a photo.", "", AGAIN) from None
    return rows


def read_new(folder: Path, features: str | None) -> tuple[list[Part], list[str], list[str]]:
    """Parts, classes, no names of splits. features: name of a folder in train/features and test/features."""
    parts: list[Part] = []
    classes: list[str] | None = None
    for side in ("train", "test"):
        root = folder / side
        if not root.exists():
            continue
        names = class_names(root / "class_names.txt")
        if classes is not None and names != classes:
            raise BadInput(
                f"{root / 'class_names.txt'} differs from that of train.",
                "Expected the same classes in the same order: both parts of one version.",
                AGAIN,
            )
        classes = names
        metadata = _metadata(root, names)
        vectors = {} if features is None else _new_vectors(root, features, metadata, names)
        for bucket in sorted(metadata, key=lambda b: (not is_count(b), int(b) if is_count(b) else 0, b)):
            part = Part(bucket, root / "labeled_metadata" / bucket, root=root, is_test=side == "test")
            for label, name in enumerate(names):
                for record in metadata[bucket][name].values():
                    part.paths.append(record["IMG_PATH"])
                    part.y.append(label)
                    place = record["IMG_PATH"].split("/")
                    if place[0] == "labeled_images" and place[1:-1] != [bucket, name]:
                        raise IntegrityError(
                            f"{part.source}/{name}.json names {record['IMG_PATH']}.",
                            f"Expected images of bucket {bucket} and class {name} only.",
                            AGAIN,
                        )
            _describe(part, metadata[bucket])
            part.vectors = vectors.get(bucket)
            parts.append(part)
    return parts, classes or [], []


Metadata = dict[str, dict[str, dict[str, Any]]]  # bucket → class → photo id → record


def _metadata(root: Path, classes: Sequence[str] | None) -> Metadata:
    """The metadata of all labelled images of a folder. classes: all of which each bucket must have; None: metadata is
    optional, as in the old layout. Raises MissingFile, BadInput."""
    source = root / "labeled_metadata.json"
    if classes is None and not source.is_file():
        return {}
    listed = read_json(source)
    metadata: Metadata = {}
    for bucket, by_class in _items(listed, source):
        metadata[bucket] = {}
        if lacking := [name for name in classes or () if name not in dict(_items(by_class, source))]:
            raise BadInput(f"{source}: bucket {bucket} lacks the class {lacking[0]!r}.", "", AGAIN)
        for name, relative in _items(by_class, source):
            if classes is not None and name not in classes:
                raise BadInput(
                    f"{source}: bucket {bucket} has the class {name!r}.", "Expected class_names.txt's.", AGAIN
                )
            path = inside(root, str(relative), source)
            records = dict(_items(read_json(path), path, empty=True))  # a class may have no photo in a bucket
            for id_, record in records.items():
                if not isinstance(record, dict) or not isinstance(record.get("IMG_PATH"), str):
                    raise BadInput(f"{path}: photo {id_} has no IMG_PATH.", "Expected CLEAR's metadata.", AGAIN)
            metadata[bucket][name] = records
    return metadata


def _items(value: Any, source: Path, empty: bool = False) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not (value or empty):
        raise BadInput(f"{source} holds {type(value).__name__} where an object belongs.", "", AGAIN)
    return list(value.items())


def _describe(part: Part, by_class: Mapping[str, Mapping[str, Any]]) -> None:
    """Set upload times and uploaders from the metadata, where it has them."""
    records = {id_: record for of_class in by_class.values() for id_, record in of_class.items()}
    for id_ in part.ids:
        record = records.get(id_, {})
        try:
            part.time.append(seconds_of(record["DATE_UPLOADED"]) if record.get("DATE_UPLOADED") else None)
        except (ValueError, OverflowError):
            raise BadInput(
                f"{part.source}: photo {id_} was uploaded {record['DATE_UPLOADED']!r}.", "Expected a time.", AGAIN
            ) from None
        part.user.append(str(record.get("USER_ID") or ""))


def _new_vectors(root: Path, name: str, metadata: Metadata, classes: Sequence[str]) -> dict[str, Array]:
    """Bucket → features of its photos, in the order of the metadata."""
    source = _feature_folder(root / "features", name) / "features.json"
    listed = dict(_items(read_json(source), source))
    vectors = {}
    for bucket, by_class in metadata.items():
        rows: list[Array] = []
        for label in classes:
            relative = dict(_items(listed.get(bucket), source)).get(label)
            path = inside(root, str(relative), source)
            by_id = read_tensors(path, AGAIN)
            ids = list(by_class[label])
            if not isinstance(by_id, dict) or set(map(str, by_id)) != set(ids):
                raise IntegrityError(
                    f"{path} does not have a vector for each photo of bucket {bucket}, {label}.",
                    "Expected files of one version.",
                    AGAIN,
                )
            of_id = {str(key): vector for key, vector in by_id.items()}
            rows += [of_id[id_] for id_ in ids]
        vectors[bucket] = _rows(rows, source)
    return vectors
