"""Data sets of the Hugging Face Hub, or a local copy, with a date and a label column → a stream, shard by shard."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, MissingFile, reason
from driftline.curate.core.outside.http import limit_hub
from driftline.curate.core.outside.tables import BoundedParquet, check_offsets, readable
from driftline.stream_builder.importers.dated import label_times, texts_of, times_of
from driftline.stream_builder.lazy_images import LazyImages
from driftline.stream_builder.rows import Rows, cut, labelled
from driftline.stream_builder.stream import Array, Split, Stream

ROWS = 1024  # at once in memory
BINARY = (pa.large_binary(), pa.binary())
CONVERTED = "refs/convert/parquet"  # where the Hub keeps a data set as Parquet, whatever its own format
SIDES = {"train": "train", "validation": "val", "valid": "val", "val": "val", "dev": "val", "test": "test"}
MOST_TEXT = 4 << 30  # bytes of the array of texts, whose rows are as long as the longest one


def from_hub(
    path: Path,
    time: str = "",
    label: str = "",
    x: str | None = None,
    config: str | None = None,
    time_unit: str = "auto",
    size: int = 224,
    period: str = "year",
    test_share: float = 0.3,
    seed: int = 0,
    work: Path | None = None,
    label_time: str | None = None,
) -> Stream:
    """A Hugging Face data set of images or texts with a date and a label column; shards are read one after the other.

    path: a folder of Parquet or Arrow files, or USER/NAME on the Hub (HF_ENDPOINT, HF_TOKEN as usual). time, label:
    columns; x: the column of images or texts (default: the only column of images, else text); label_time: of the times
    when labels come (`dated.label_times`). config: one of the data
    set's configurations. Splits train, validation and test are kept if there is a test split. work: folder for the
    encoded images (default: a temporary one, until the process ends). Raises MissingFile, BadInput, BadConfig.
    """
    if not time or not label:
        raise BadConfig("--time or --label was not given.", "Expected the columns of dates and of labels.")
    folder = work or Path(tempfile.mkdtemp(prefix="driftline-"))
    folder.mkdir(parents=True, exist_ok=True)
    if work is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    reader = _Reader(time, label, x, folder, size, label_time)
    for name, shard in _shards(path, config, folder):
        reader.read(name, shard)
    rows, facts = reader.rows(str(path) if not path.exists() else path.resolve().name, time_unit)
    return cut(rows, period, test_share, seed, facts)


class _Reader:
    """Collects the columns of all shards; images go to one file per shard, texts stay in memory."""

    def __init__(self, time: str, label: str, x: str | None, folder: Path, size: int, late: str | None) -> None:
        self.time, self.label, self.x, self.folder, self.size, self.late = time, label, x, folder, size, late
        self.times: list[Any] = []
        self.labels: list[Any] = []
        self.moments: list[tuple[pa.Array, pa.Array]] = []
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.sides: list[str] = []
        self.files: list[Path] = []
        self.locations: list[Array] = []

    def read(self, name: str, shard: Path) -> None:
        """Add all rows of a shard. name: relative to the data set, for ids and the side."""
        schema, batches = _open_shard(shard)
        for column in (self.time, self.label, *filter(None, (self.x, self.late))):
            if (times := schema.names.count(column)) != 1:
                many = "more than one" if times else "no"
                raise BadInput(f"{name} has {many} column {column!r}.", f"It has {', '.join(schema.names)}.")
        self.x = self.x or _samples_column(name, schema)
        is_image = pa.types.is_struct(schema.field(self.x).type)
        class_names = _class_names(schema, self.label)
        side = next((SIDES[p] for p in _words(name) if p in SIDES), "")
        row = 0
        with readable(shard, "Expected a shard of a Hugging Face data set."), _file(self, name, is_image) as images:
            for batch in batches([self.time, self.label, self.x, *([self.late] if self.late else [])]):
                check_offsets(batch.columns)
                if self.late:
                    self.moments.append((batch.column(self.time), batch.column(self.late)))
                self.times += batch.column(self.time).to_pylist()
                self.labels += [_named(value, class_names) for value in batch.column(self.label).to_pylist()]
                self._add(batch.column(self.x), images, name, row)
                self.ids += [f"{name}-{row + i}" for i in range(len(batch))]
                self.sides += [side] * len(batch)
                row += len(batch)

    def _add(self, samples: pa.Array, images: IO[bytes] | None, name: str, row: int) -> None:
        """The samples of a batch that begins at a row of a shard."""
        if images is None:
            texts = samples.to_pylist()
            for i, text in enumerate(texts):
                if not isinstance(text, str):
                    raise BadInput(
                        f"{name}, row {row + i}: {self.x} is {type(text).__name__}.", "Expected text in every row."
                    )
            self.texts += texts
            return
        # Of a batch all images lie side by side: they are written at once.
        has = (place := samples.type.get_field_index("bytes")) >= 0 and samples.type[place].type in BINARY
        data = pc.struct_field(samples, "bytes").cast(pa.large_binary()) if has else pa.nulls(len(samples), BINARY[0])
        sizes = pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False)
        if not sizes.all():
            problem = f"{name}, row {row + int(sizes.argmin())}: {self.x} has no bytes."
            raise BadInput(problem, "Expected the image inside the data set, not a path.")
        if not len(sizes):
            return
        _, offsets, content = data.buffers()
        low, high = np.frombuffer(offsets, np.int64)[[data.offset, data.offset + len(data)]].tolist()
        starts = images.tell() + np.cumsum(sizes) - sizes
        self.locations.append(np.stack([np.full(len(sizes), len(self.files) - 1), starts, sizes], 1))
        images.write(memoryview(content)[low:high])

    def rows(self, name: str, unit: str) -> tuple[Rows, dict[str, str]]:
        """The rows of all shards, and facts about them. Raises BadInput."""
        if not self.ids:
            raise BadInput(f"{name} has no rows.", "Expected one row a sample.")

        def what(row: int) -> str:
            return f"{name}, {self.ids[row].rpartition('-')[0]}, row {self.ids[row].rpartition('-')[2]}"

        time = times_of(self.times, what, unit)
        late = None
        if self.late:
            kinds = ", ".join(sorted({str(column.type) for pair in self.moments for column in pair}))
            try:
                times, comes = (pa.chunked_array(list(columns)) for columns in zip(*self.moments, strict=True))
            except pa.ArrowInvalid:
                problem = f"{name}: {self.time} or {self.late} is of another type in another shard ({kinds})."
                raise BadInput(problem, "Expected one type for each.") from None
            late = label_times(comes, times, time, what, unit)
        y, classes = labelled(texts_of(self.labels, what, self.label))
        longest = max(map(len, self.texts), default=0)
        if longest * 4 * len(self.texts) > MOST_TEXT:
            raise BadInput(
                f"{name}: texts of up to {longest:,} characters.",
                f"Expected less than {MOST_TEXT // 4 // len(self.texts):,} for {len(self.texts):,} of them.",
                "Choose a column of shorter texts with --x.",
            )
        samples: Any = np.array(self.texts, np.str_)
        if self.locations:
            samples = LazyImages(tuple(self.files), np.concatenate(self.locations).astype(np.int64), self.size)
        side = np.array(self.sides) if "test" in self.sides and "" not in self.sides else None
        facts = {
            "from": "hub",
            "source": f"https://huggingface.co/datasets/{name}" if "/" in name else name,
            "licence": "see the data set's card",
            "columns": f"time {self.time}, label {self.label}, samples {self.x}",
        }
        columns = Split(samples, y, np.array(self.ids, np.str_), time, label_time=late)
        return Rows(name.replace("/", "-"), columns, classes, side), facts


def _file(reader: _Reader, name: str, is_image: bool) -> Any:
    """Where the images of a shard are written; None for texts."""
    from contextlib import nullcontext

    if not is_image:
        return nullcontext()
    path = reader.folder / f"images-{len(reader.files):05d}.bin"
    reader.files.append(path)
    return path.open("wb")


def _words(name: str) -> list[str]:
    """The words of a shard's path, from its end: data/train-00000-of-00001.parquet, default/train/0000.parquet."""
    path = PurePosixPath(name)
    return [word for part in (path.stem, *reversed(path.parts[:-1])) for word in part.replace("_", "-").split("-")]


def _shards(path: Path, config: str | None, folder: Path) -> Iterator[tuple[str, Path]]:
    """(name in the data set, file) of each shard, in name order; a downloaded one is removed after it was read."""
    if path.exists():
        paths = sorted(path.rglob("*.parquet")) or sorted(p for p in path.rglob("*.arrow") if "cache-" not in p.name)
        names = [file.relative_to(path).as_posix() for file in paths]
        for name in _of_config(names, config, str(path)):
            yield name, path / name
        return
    if str(path).count("/") != 1:
        raise MissingFile(f"There is no folder {path}.", "Expected a copy of a data set, or USER/NAME on the Hub.")
    from huggingface_hub import HfApi

    repo, api = str(path), HfApi(os.environ.get("HF_ENDPOINT"))
    try:
        limit_hub()
        for branch in (None, CONVERTED):
            # One commit throughout, of which each name counts once, whatever pages the list has.
            revision = api.repo_info(repo, repo_type="dataset", revision=branch).sha
            files = sorted(set(api.list_repo_files(repo, repo_type="dataset", revision=revision)))
            if shards := [name for name in files if name.endswith(".parquet")]:
                break
        for name in _of_config(shards, config, repo):
            local = api.hf_hub_download(repo, name, repo_type="dataset", revision=revision, local_dir=folder / "shards")
            yield name, Path(local)
            Path(local).unlink()
    except DriftlineError:
        raise
    except Exception as error:  # the Hub's client raises many kinds; none of its messages holds the token
        raise MissingFile(
            f"{repo} cannot be read from the Hub ({reason(error)}).", "", "Check the name, or set HF_TOKEN."
        ) from None


def _of_config(names: list[str], config: str | None, what: str) -> list[str]:
    """The shards of a configuration. Raises BadInput if there are none."""
    chosen = [name for name in names if config is None or config in name.split("/")[:-1]]
    if not chosen:
        folders = sorted({name.split("/")[0] for name in names if "/" in name})
        has = f"It has {', '.join(folders)}." if folders else "Expected .parquet or .arrow files."
        raise BadInput(f"{what} has no data{f' of {config!r}' if config else ''}.", has)
    return chosen


def _open_shard(shard: Path) -> tuple[pa.Schema, Any]:
    """The schema, and a function (columns) → batches."""
    with readable(shard, "Expected a shard of a Hugging Face data set."):
        if shard.suffix == ".parquet":
            parquet = BoundedParquet(shard)
            return parquet.schema, lambda columns: parquet.batches(ROWS, list(dict.fromkeys(columns)))
        stream = pa.ipc.open_stream(pa.memory_map(str(shard)))
        return stream.schema, lambda columns: iter(stream)


def _samples_column(name: str, schema: pa.Schema) -> str:
    """The only column of images, else text. Raises BadInput."""
    images = [f.name for f in schema if pa.types.is_struct(f.type) and {c.name for c in f.type} >= {"bytes", "path"}]
    columns = images if images else [column for column in ("text", "sentence") if column in schema.names]
    if len(columns) != 1:
        raise BadInput(
            f"{name} has {len(images)} columns of images and no column text.", f"It has {', '.join(schema.names)}.",
            "Use --x COLUMN.",
        )  # fmt: skip
    return columns[0]


def _class_names(schema: pa.Schema, label: str) -> list[str]:
    """The names of a ClassLabel column; [] for others."""
    try:
        info = json_value((schema.metadata or {})[b"huggingface"])["info"]["features"][label]
        return [str(name) for name in info["names"]] if info.get("_type") == "ClassLabel" else []
    except (KeyError, TypeError, ValueError, RecursionError):
        return []


def _named(value: Any, class_names: list[str]) -> Any:
    """A class by name; -1 is a missing label in `datasets`."""
    if class_names and isinstance(value, int):
        return class_names[value] if 0 <= value < len(class_names) else None
    return value
