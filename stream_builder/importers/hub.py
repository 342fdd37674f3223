"""Datasets of the Hugging Face Hub, or a local copy, with a date and a label column → a stream, shard by shard."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, MissingFile, reason
from driftline.curate.foreign.cells import NOTHING
from driftline.curate.foreign.http import limit_hub
from driftline.curate.foreign.names import column_once
from driftline.curate.foreign.tables import class_names, opened_rows, readable, tables_below
from driftline.stream_builder.importers.dated import label_times, labels_of, times_of
from driftline.stream_builder.lazy_images import LazyImages
from driftline.stream_builder.rows import Rows, cut
from driftline.stream_builder.stream import Array, Split, Stream

ROWS = 1024  # at once in memory
BINARY = (pa.large_binary(), pa.binary())
CONVERTED = "refs/convert/parquet"  # where the Hub keeps a dataset as Parquet, whatever its own format
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
    """Read a Hugging Face dataset, shard by shard.

    Images or texts with a date and a label column, which must be named. Splits train, validation and test are kept if
    there is a test split.

    path PATH|USER/NAME: A local folder of Parquet or Arrow files, or a name on the Hub (HF_TOKEN for private ones).
    x COLUMN: Column of images or texts (default: the only column of images, else text).

    Raises MissingFile, BadInput, BadConfig. work: folder for the encoded images (default: a temporary one, until the
    process ends).
    """
    if not time or not label:
        raise BadConfig("--time or --label was not given.", "Expected the columns of dates and of labels.")
    folder = work or Path(tempfile.mkdtemp(prefix="driftline-"))
    folder.mkdir(parents=True, exist_ok=True)
    if work is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    reader = _Reader({"time": time, "label": label, "x": x, "label_time": label_time}, folder)
    for name, shard in _shards(path, config, folder):
        reader.read(name, shard)
    name = str(path) if not path.exists() else path.resolve().name
    if not reader.ids:
        raise BadInput(f"{name} has no rows.", "Expected one row a sample.")
    table = reader.table(name)

    def what(row: int) -> str:
        shard, _, number = reader.ids[row].rpartition("-")
        return f"{name}, {shard}, row {int(number) + 1}"

    seconds = times_of(table["time"], what, time_unit)
    late = label_times(table["label_time"], table["time"], seconds, what, time_unit) if label_time else None
    y, classes = labels_of(table["label"], label, ("",) if reader.has_names else NOTHING)
    samples = Split(reader.samples(table, name, size), y, np.array(reader.ids, np.str_), seconds, label_time=late)
    side = np.array(reader.sides) if "test" in reader.sides and "" not in reader.sides else None
    facts = {
        "from": "hub",
        "source": f"https://huggingface.co/datasets/{name}" if "/" in name else name,
        "licence": "see the dataset's card",
        "columns": f"time {time}, label {label}, samples {reader.columns['x']}",
    }
    return cut(Rows(name.replace("/", "-"), samples, classes, side), period, test_share, seed, facts, what)


class _Reader:
    """Collects the columns of all shards; images go to one file per shard, the others stay in memory."""

    def __init__(self, columns: dict[str, str | None], folder: Path) -> None:
        """columns: role → name, x maybe None."""
        self.columns, self.folder = {role: column for role, column in columns.items() if column}, folder
        self.tables: list[pa.Table] = []
        self.has_names = False
        self.ids: list[str] = []
        self.sides: list[str] = []
        self.files: list[Path] = []
        self.locations: list[Array] = []

    def read(self, name: str, shard: Path) -> None:
        """Add all rows of a shard. name: relative to the data set, for ids and the side."""
        with readable(shard, "Expected a shard of a Hugging Face dataset."):
            schema, batches = opened_rows(pa.memory_map(str(shard)), shard)
        for column in self.columns.values():
            column_once(schema.names, column, name)
        if "x" not in self.columns:
            self.columns["x"] = _samples_column(name, schema)
        is_image = pa.types.is_struct(schema.field(self.columns["x"]).type)
        self.has_names |= self.columns["label"] in class_names(schema)
        side = next((SIDES[p] for p in _words(name) if p in SIDES), "")
        row = 0
        if is_image:
            self.files.append(self.folder / f"images-{len(self.files):05d}.bin")
        images = self.files[-1].open("wb") if is_image else nullcontext()
        with readable(shard, "Expected a shard of a Hugging Face dataset."), images as file:
            for batch in batches(ROWS, list(dict.fromkeys(self.columns.values()))):
                columns = {role: batch.column(column) for role, column in self.columns.items()}
                if file is not None:
                    self._write(columns.pop("x"), file, name, row)
                else:
                    texts = columns["x"].to_pylist()
                    if bad := [i for i, text in enumerate(texts) if not isinstance(text, str)]:
                        problem = (
                            f"{name}, row {row + bad[0] + 1}: {self.columns['x']} is {type(texts[bad[0]]).__name__}."
                        )
                        raise BadInput(problem, "Expected text in every row.")
                    columns["x"] = pa.array(texts, pa.large_string())
                self.tables.append(pa.table(columns))
                self.ids += [f"{name}-{row + i}" for i in range(len(batch))]
                self.sides += [side] * len(batch)
                row += len(batch)

    def _write(self, samples: pa.Array, images: IO[bytes], name: str, row: int) -> None:
        """The images of a batch that begins at a row of a shard. They lie side by side: they are written at once."""
        has = (place := samples.type.get_field_index("bytes")) >= 0 and samples.type[place].type in BINARY
        data = pc.struct_field(samples, "bytes").cast(pa.large_binary()) if has else pa.nulls(len(samples), BINARY[0])
        sizes = pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False)
        if not sizes.all():
            problem = f"{name}, row {row + int(sizes.argmin()) + 1}: {self.columns['x']} has no bytes."
            raise BadInput(problem, "Expected the image inside the dataset, not a path.")
        if not len(sizes):
            return
        _, offsets, content = data.buffers()
        low, high = np.frombuffer(offsets, np.int64)[[data.offset, data.offset + len(data)]].tolist()
        starts = images.tell() + np.cumsum(sizes) - sizes
        self.locations.append(np.stack([np.full(len(sizes), len(self.files) - 1), starts, sizes], 1))
        images.write(memoryview(content)[low:high])

    def table(self, name: str) -> pa.Table:
        """The columns of all shards by role. Raises BadInput for columns that are of different kinds in shards."""
        try:
            return pa.concat_tables(self.tables, promote_options="permissive")
        except pa.ArrowException as error:
            problem = f"{name} has a column of another type in another shard ({reason(error)})."
            raise BadInput(problem, "Expected one type for each.") from None

    def samples(self, table: pa.Table, name: str, size: int) -> Any:
        """The images or texts of all shards. Raises BadInput for texts that are too long."""
        if self.locations:
            return LazyImages(tuple(self.files), np.concatenate(self.locations).astype(np.int64), size)
        longest = pc.max(pc.utf8_length(table["x"])).as_py()
        if longest * 4 * len(table) > MOST_TEXT:
            raise BadInput(
                f"{name}: texts of up to {longest:,} characters.",
                f"Expected less than {MOST_TEXT // 4 // len(table):,} for {len(table):,} of them.",
                "Choose a column of shorter texts with --x.",
            )
        return np.array(table["x"].to_pylist(), np.str_)


def _words(name: str) -> list[str]:
    """The words of a shard's path, from its end: data/train-00000-of-00001.parquet, default/train/0000.parquet."""
    path = PurePosixPath(name)
    return [word for part in (path.stem, *reversed(path.parts[:-1])) for word in part.replace("_", "-").split("-")]


def _shards(path: Path, config: str | None, folder: Path) -> Iterator[tuple[str, Path]]:
    """(name in the dataset, file) of each shard, in name order; a downloaded one is removed after it was read."""
    if path.exists():
        names = [file.relative_to(path).as_posix() for file in tables_below(path)]
        for name in _of_config(names, config, str(path)):
            yield name, path / name
        return
    if str(path).count("/") != 1:
        raise MissingFile(f"There is no folder {path}.", "Expected a copy of a dataset, or USER/NAME on the Hub.")
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
