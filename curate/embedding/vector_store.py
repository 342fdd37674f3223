"""Vectors on disk: the output of an embed stage, memory-mapped, with ids and buckets; and vectors that were computed
elsewhere, in the same layout, which is clip-retrieval's."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import write_array, write_parquet
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.vectors import unit
from driftline.curate.foreign.arrays import mapped
from driftline.curate.foreign.tables import read_parquet, readable

Ints = npt.NDArray[np.int64]
PART = pa.schema([("id", pa.string()), ("bucket", pa.int32()), ("fault", pa.string()), ("phash", pa.uint64())])
KEYS = ("id", "key", "image_path")  # columns of other metadata that may name an image


@dataclass(frozen=True)
class VectorFile:
    """One `.npy` file of vectors, (rows, width) float16 or float32, row-major."""

    path: Path
    offset: int
    """bytes before the first vector"""
    rows: int
    width: int
    dtype: Literal["float16", "float32"]

    def map(self) -> npt.NDArray[Any]:
        """The vectors, memory-mapped."""
        return np.memmap(self.path, self.dtype, "r", self.offset, (self.rows, self.width))


@dataclass(frozen=True)
class VectorStore:
    """N vectors in several files, each with a bucket and an id."""

    files: tuple[VectorFile, ...]
    buckets: npt.NDArray[np.int32]
    """(N,)"""
    ids: pa.ChunkedArray
    """N strings"""
    starts: Ints = field(init=False)
    """first row of each file, and N"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.cumsum([0, *(file.rows for file in self.files)]).astype(np.int64))
        widths = {file.width for file in self.files}
        if len(widths) > 1:
            raise BadInput(
                f"The vectors have different widths: {sorted(widths)}.", "Expected one width.", "Embed again."
            )

    @property
    def width(self) -> int:
        """D; 0 for a store without files."""
        return self.files[0].width if self.files else 0

    def __len__(self) -> int:
        return len(self.buckets)

    @staticmethod
    def open(folder: Path) -> "VectorStore":
        """Open the folder of an embed stage: `img_emb/*.npy`, `metadata/*.parquet` (id, bucket, fault)."""
        files, buckets, ids = [], [], []
        for table, file in parts(folder):
            files.append(file)
            buckets.append(table["bucket"].to_numpy())
            ids += table["id"].chunks
        return VectorStore(
            tuple(files),
            np.concatenate(buckets).astype(np.int32) if buckets else np.zeros(0, np.int32),
            pa.chunked_array(ids, pa.string()),
        )

    def take(self, rows: Ints) -> npt.NDArray[Any]:
        """The vectors of some rows, in the order of `rows`, in the stored dtype."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        out = np.empty((len(rows), self.width), self.files[0].dtype if self.files else "float16")
        cuts = np.searchsorted(ordered, self.starts)
        for file, start, low, high in zip(self.files, self.starts, cuts[:-1], cuts[1:], strict=False):
            if high > low:
                out[order[low:high]] = file.map()[ordered[low:high] - start]
        return out

    def names(self, rows: Ints) -> list[str]:
        """The ids of some rows."""
        names: list[str] = pc.take(self.ids, pa.array(rows)).to_pylist()
        return names


def parts(folder: Path) -> Iterator[tuple[pa.Table, VectorFile]]:
    """Yield (table with id, bucket and phash, its vectors) of every part of an embed stage's folder, in shard order."""
    for metadata in sorted((folder / "metadata").glob("metadata_*.parquet")):
        table = pq.read_table(metadata)
        table = table.filter(pc.is_null(table["fault"]))
        file = vector_file(vectors_path(metadata))
        if file.rows != len(table):
            raise BadInput(f"{file.path} has {file.rows} vectors for {len(table)} ids.", "", "Embed the shard again.")
        yield table, file


def vectors_path(metadata: Path) -> Path:
    """The file with the vectors of a metadata file."""
    name = metadata.name.replace("metadata_", "img_emb_").replace(".parquet", ".npy")
    return metadata.parent.parent / "img_emb" / name


def vectors_of(folder: Path, ids: list[str]) -> npt.NDArray[np.float16]:
    """(N, D) float16 in the order of `ids`, from a finished embed stage. Raises MissingFile if it has no vectors."""
    store = VectorStore.open(folder)
    if not store.files:
        raise MissingFile(f"{folder} holds no vectors.", "Expected a finished embed stage.")
    return store.take(pc.index_in(pa.array(ids, pa.string()), value_set=store.ids).to_numpy())


def vector_file(path: Path) -> VectorFile:
    """Read the header of a `.npy` file. Raises BadInput for anything but a matrix of float16 or float32, and as
    `mapped`."""
    array = mapped(path, "Embed again.")
    good = array.ndim == 2 and array.dtype in (np.float16, np.float32) and array.flags.c_contiguous
    if not good or not isinstance(array, np.memmap):
        if array.ndim == 2 and len(array) == 0:  # an empty file cannot be memory-mapped
            return VectorFile(path, 0, 0, array.shape[1], "float16")
        raise BadInput(
            f"{path} holds {array.dtype} of shape {array.shape}.", "Expected float16 or float32 (N, D), row-major."
        )
    rows, width = array.shape
    return VectorFile(path, array.offset, rows, width, "float16" if array.dtype == np.float16 else "float32")


def import_vectors(source: Path, members: pa.Table, out: Path, run_log: RunLog) -> Counter[str]:
    """Write the vectors of the folder `source` for the images of `members` (columns id, member, bucket) to `out`.

    Their `metadata_*.parquet` names each image in the column id, key or image_path: by our id, or by the image's name
    in our shards (with or without folder and extension). `out` has the layout of an embed stage, unit vectors in
    float16, one part per part of theirs; finished parts are skipped. Returns the number of images by reason ("": kept):
    `no_vector`, `not_finite`, `zero_vector`. Raises MissingFile, or BadInput for vectors and metadata that do not
    match.
    """
    listed = sorted((source / "metadata").glob("metadata_*.parquet"))
    if not listed:
        raise MissingFile(
            f"{source} holds no metadata/metadata_*.parquet.",
            "Expected img_emb/ and metadata/ in clip-retrieval's layout.",
            "Set embed.from to that folder.",
        )
    ids, names = members["id"].to_pylist(), members["member"].to_pylist()
    row_of = {name.rpartition(".")[0]: i for i, name in enumerate(names)} | {id_: i for i, id_ in enumerate(ids)}
    done = np.zeros(len(members), bool)
    counts: Counter[str] = Counter()
    with run_log.progress("embed", len(listed), "parts") as tick:
        for number, path in enumerate(listed):
            imported = out / "metadata" / f"metadata_{number:05d}.parquet"
            if not imported.exists():
                _import_part(path, imported, members, row_of, done)
            part = pq.read_table(imported)
            done[[row_of[id_] for id_ in part["id"].to_pylist()]] = True
            counts.update(reason or "" for reason in part["fault"].to_pylist())
            tick(1)
    counts["no_vector"] += int((~done).sum())
    return counts


def _import_part(
    path: Path, imported: Path, members: pa.Table, row_of: dict[str, int], done: npt.NDArray[np.bool_]
) -> None:
    with readable(path, "Expected clip-retrieval's metadata."):
        schema = pq.read_schema(path)
    column = next((key for key in KEYS if key in schema.names), None)
    if column is None:
        raise BadInput(
            f"{path} has the columns {', '.join(schema.names)}.", f"Expected one of {', '.join(KEYS)} to name images."
        )
    with readable(path, f"Expected names of images in the column {column}."):
        keys = read_parquet(path, [column])[column].cast(pa.string()).fill_null("").to_pylist()
    vectors = vector_file(vectors_path(path))
    if vectors.rows != len(keys):
        raise BadInput(
            f"{vectors.path} has {vectors.rows} vectors for {len(keys)} rows of {path}.", "Expected as many."
        )
    their_rows, our_rows = [], []
    for i, key in enumerate(keys):
        row = row_of.get(key, row_of.get(Path(key).name.rpartition(".")[0] or Path(key).name))
        if row is not None and not done[row]:
            done[row] = True
            their_rows.append(i)
            our_rows.append(row)
    x = vectors.map()[their_rows].astype(np.float32) if their_rows else np.zeros((0, vectors.width), np.float32)
    finite = np.asarray(np.isfinite(x).all(1))
    lengths = np.linalg.norm(np.where(finite[:, None], x, 0), axis=1)
    reasons = [
        "not_finite" if not f else "zero_vector" if n == 0 else None for f, n in zip(finite, lengths, strict=True)
    ]
    good = finite & (lengths > 0)
    write_array(vectors_path(imported), unit(x[good]).astype(np.float16))
    ours = members.select(["id", "bucket"]).take(pa.array(our_rows, pa.int64()))
    ours = ours.append_column("fault", pa.array(reasons, pa.string()))
    write_parquet(imported, ours.append_column("phash", pa.nulls(len(ours), pa.uint64())).cast(PART))
