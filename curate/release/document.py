"""The schema of release.json and of metadata.parquet, which are checked before anything in them is used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from driftline.curate.core.errors import IntegrityError
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.documents import Schema
from driftline.curate.foreign.names import PlainName, fault
from driftline.curate.foreign.tables import BoundedParquet

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


class SeenRecord(Schema):
    """What an encoder may have seen."""

    trained_until: str
    data: str
    source: str


class Encoder(Schema):
    """What embedded the images."""

    model: str
    seen: SeenRecord | None = None


class Rules(Schema):
    """How labels were decided: fields of ValidationSettings."""

    method: str
    rule: str = ""
    aggregate: str = ""
    agree: int = 0
    sensitive_drop: int = 0
    sensitive_hold: int = 0
    confidence: float = 0
    audit_share: float = 0


class Provenance(Schema):
    """How the release came about."""

    driftline: str
    source: str
    seed: int
    counts: dict[str, StageCounts]
    encoder: Encoder
    prompts: dict[str, list[str]]
    validation: Rules
    judgement: str | None = None
    author: str | None = None
    seen: dict[str, SeenRecord] = Field(default_factory=dict)


class Licence(Schema):
    """A licence of images."""

    name: str
    url: str | None
    images: int


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
    licence_list: list[Licence]
    near_copies: dict[str, Any] | None
    answers: dict[str, dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], int]] = Field(default_factory=dict)
    file_changes: dict[str, int] = Field(default_factory=dict)
    provenance: Provenance


def check_counts(path: Path, facts: Mapping[str, Any], table: pa.Table) -> None:
    """Raise IntegrityError unless metadata.parquet, at `path`, has the images that release.json counts, each once: else
    formats would hold different numbers of them."""
    counts: dict[tuple[str, str], int] = {}
    groups = table.group_by(["bucket", "class", "label"]).aggregate([([], "count_all")])
    for bucket, name, label, n in rows_of(groups, "bucket", "class", "label", "count_all"):
        if label is None or not 0 <= label < len(facts["classes"]) or facts["classes"][label] != name:
            raise IntegrityError(f"{path} has the label {label} for the class {name!r}.", "", AGAIN)
        counts[str(bucket), name] = n
    listed = {(bucket, name): n for bucket, classes in facts["per_class"].items() for name, n in classes.items() if n}
    for bucket, name in sorted(counts.keys() ^ listed.keys() or {k for k in counts if counts[k] != listed[k]}):
        raise IntegrityError(
            f"{path} has {counts.get((bucket, name), 0):,} images of {name!r} in bucket {bucket}, release.json says "
            f"{listed.get((bucket, name), 0):,}.",
            "Expected the files of one release.",
            AGAIN,
        )
    for columns in (["id"], ["shard", "member"]):
        if (distinct := len(table.group_by(columns).aggregate([]))) != len(table):
            what = " and ".join(columns)
            raise IntegrityError(f"{path} has {len(table):,} rows, but {distinct:,} different {what}.", "", AGAIN)


def read_table(path: Path, schema: pa.Schema, splits: list[str]) -> pa.Table:
    """metadata.parquet. Raises IntegrityError for a file that cannot be read, a column that is missing or has another
    type, and names of files that leave the release."""
    try:
        with BoundedParquet(path) as file:
            table = file.read()
        table.column_names  # noqa: B018  raises for names that are not UTF-8
        table.validate(full=True)  # and this for such texts
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        why = str(error).split("\n")[0][:200]
        raise IntegrityError(f"{path} cannot be read as Parquet ({why}).", "", AGAIN) from None
    for field in [*schema, *(pa.field(name, pa.string()) for name in splits)]:
        if table.column_names.count(field.name) != 1 or table.schema.field(field.name).type != field.type:
            raise IntegrityError(f"{path} lacks the column {field.name} of type {field.type}.", "", AGAIN)
    for column in ("shard", "member"):
        for name in table[column].unique().to_pylist():
            if name is None or (why := fault(name)):
                because = "it is empty" if name is None else why
                raise IntegrityError(f"{path} names the {column} {name!r}: {because}.", "Expected plain names.", AGAIN)
    return table
