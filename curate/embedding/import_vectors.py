"""Imports vectors that were computed elsewhere, in clip-retrieval's folder layout, for the images of a run."""

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import write_array, write_parquet
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.vectors import unit
from driftline.curate.embedding.embed import PART
from driftline.curate.embedding.vector_store import vector_file, vectors_path
from driftline.curate.foreign.tables import read_parquet, readable

KEYS = ("id", "key", "image_path")  # columns of their metadata that may name an image


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
