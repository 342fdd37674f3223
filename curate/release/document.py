"""The schema of release.json and of metadata.parquet, which are checked before anything in them is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from curate.core.errors import IntegrityError
from curate.core.outside.documents import Schema
from curate.core.outside.names import PlainName, fault

AGAIN = "Copy the release again."


class Bucket(Schema):
    """A time bucket."""

    index: Annotated[int, Field(ge=0, lt=1_000_000)]
    name: str
    start: str | None
    end: str | None


class StageCounts(Schema):
    """What a stage read and kept."""

    read: int
    kept: int
    dropped: dict[str, int]


class Encoder(Schema):
    """What embedded the images."""

    model: str


class Provenance(Schema):
    """How the release came about."""

    driftline: str
    source: str
    seed: int
    counts: dict[str, StageCounts]
    encoder: Encoder
    prompts: dict[str, list[str]]
    validation: dict[str, Any]
    judgement: str | None = None


class ReleaseDocument(Schema):
    """release.json."""

    name: str
    version: str
    images: Annotated[int, Field(ge=0)]
    classes: Annotated[list[str], Field(min_length=1)]
    buckets: Annotated[list[Bucket], Field(min_length=1)]
    per_class: dict[str, dict[str, int]]
    splits: list[Annotated[str, Field(pattern=r"^split_[0-9]+$")]]
    features: list[PlainName]
    scores: dict[str, list[float]]
    licences: dict[str, int]
    near_copies: dict[str, Any] | None
    provenance: Provenance


def read_table(path: Path, schema: pa.Schema, splits: list[str], optional: tuple[str, ...]) -> pa.Table:
    """metadata.parquet. Raises IntegrityError for a file that cannot be read, a column that is missing or has another
    type, and names of files that leave the release."""
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        why = str(error).split("\n")[0][:200]
        raise IntegrityError(f"{path} cannot be read as Parquet ({why}).", "", AGAIN) from None
    for field in [*schema, *(pa.field(name, pa.string()) for name in splits)]:
        if field.name not in table.column_names and field.name in optional:
            continue
        if table.column_names.count(field.name) != 1 or table.schema.field(field.name).type != field.type:
            raise IntegrityError(f"{path} lacks the column {field.name} of type {field.type}.", "", AGAIN)
    for column in ("shard", "member"):
        for name in table[column].unique().to_pylist():
            if name is None or (why := fault(name)):
                because = "it is empty" if name is None else why
                raise IntegrityError(f"{path} names the {column} {name!r}: {because}.", "Expected plain names.", AGAIN)
    return table
