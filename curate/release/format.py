"""The release format: read and verify. The only part of `curate` that `stream_builder` uses.

release.json        name, version, classes, buckets, splits, licences, counts, features, provenance
metadata.parquet    one row per image, in shard order; source_sha256 is of the bytes as fetched, changes is what was
                    done to them (curate/images/changes.py); images with the same group share an uploader or are near
                    copies, and are on one side of every split
urls.parquet        labelled photos whose licence permits no copies, without their bytes (only if there are any)
unlabelled.parquet  unlabelled images; sha256 only of those that unlabelled/ holds
shards/             WebDataset tars, bucket_BB-NNNNN.tar: <id>.<ext>, <id>.cls, <id>.json
features/           NAME.npy (N, D) float16, rows as in metadata.parquet
README.md           data card          ATTRIBUTION.csv    author and licence of each image
BUCKETS.json        hashes of what each bucket consists of
SHA256SUMS          of every other file; written last
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from driftline.curate.core.atomic_io import check_format, read_object, sha256_file
from driftline.curate.core.errors import BadInput, IntegrityError, MissingFile, UnknownName
from driftline.curate.core.late import pc, pd
from driftline.curate.core.parsing import rows_of
from driftline.curate.encoders.weights import recorded
from driftline.curate.foreign.arrays import open_array
from driftline.curate.foreign.documents import Schema, read_document, sums_of
from driftline.curate.foreign.names import PlainName, fault, inside
from driftline.curate.foreign.tables import BoundedParquet
from driftline.curate.images.shards import checked_images
from driftline.curate.metadata.withdrawals import listed, listed_withdrawals
from driftline.curate.release.identity import FILE as MANIFEST
from driftline.curate.release.identity import SIDES, bucket_identities, of_steps, unlabelled_of

FORMAT = 2
METADATA = pa.schema(
    [
        ("id", pa.string()),
        ("bucket", pa.int32()),
        ("class", pa.string()),
        ("label", pa.int32()),
        ("uploaded", pa.int64()),
        ("shard", pa.string()),
        ("member", pa.string()),
        ("sha256", pa.string()),
        ("source_sha256", pa.string()),
        ("changes", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("score", pa.float32()),
        ("votes", pa.string()),
        ("user", pa.string()),
        ("group", pa.string()),
        ("creator", pa.string()),
        ("title", pa.string()),
        ("licence", pa.string()),
        ("licence_url", pa.string()),
        ("page_url", pa.string()),
        ("url", pa.string()),
    ]
)
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


class LabelRules(Schema):
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
    validation: LabelRules
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


@dataclass(frozen=True, repr=False)
class Release:
    """An opened release."""

    path: Path
    """its folder"""
    facts: dict[str, Any]
    """content of `release.json`"""
    table: pa.Table
    """one row per image: columns of METADATA, and `split_0` … `split_k-1`"""

    def __repr__(self) -> str:
        return f"<Release {self.path}: {self.facts['images']:,} images>"

    def frame(self) -> "pd.DataFrame":
        """One row for each image: id, bucket, label, splits and what is known of it."""
        return self.table.to_pandas()

    @classmethod
    def open(cls, path: str | Path) -> "Release":
        """Open a release folder, or a run folder with a published release.

        Raises MissingFile if there is none, BadInput for another format, IntegrityError if counts differ.
        """
        folder = Path(path)
        if not (folder / "release.json").is_file():
            inside = in_run(folder, "publish/release")
            if inside is None:
                raise MissingFile(
                    f"{folder} is not a release: it has no release.json.",
                    "Expected the folder of a release, or of a run whose publish stage is done.",
                    "Check the stages of a run with driftline status.",
                )
            folder = inside
        facts = read_document(folder / "release.json", Schema, AGAIN)
        check_format(folder / "release.json", facts.get("format"), FORMAT, "Run publish again.")
        read_document(folder / "release.json", ReleaseDocument, AGAIN)
        table = read_table(folder / "metadata.parquet", METADATA, facts["splits"])
        if len(table) != facts["images"]:
            raise IntegrityError(
                f"{folder}/metadata.parquet has {len(table)} rows, release.json says {facts['images']}.",
                "Expected the files of one release.",
                AGAIN,
            )
        check_counts(folder / "metadata.parquet", facts, table)
        return cls(folder, facts, table)

    @property
    def name(self) -> str:
        """Name of the release."""
        return str(self.facts["name"])

    @property
    def classes(self) -> list[str]:
        """Class names in the order of their labels."""
        return list(self.facts["classes"])

    @property
    def buckets(self) -> list[dict[str, Any]]:
        """index, name, start, end of each bucket, in time order."""
        return list(self.facts["buckets"])

    def images(self, bucket: int | None = None, ids: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield (id, image bytes) in the order of `table`, of one bucket or of all; ids: of these images only.

        Raises IntegrityError if an image is missing or does not match its checksum.
        """
        shards: dict[str, dict[str, tuple[str, str]]] = {}
        for shard, member, id_, sha, b in rows_of(self.table, "shard", "member", "id", "sha256", "bucket"):
            if (bucket is None or b == bucket) and (ids is None or id_ in ids):
                shards.setdefault(shard, {})[member] = (id_, sha)
        for shard, members in shards.items():
            yield from checked_images(self.path / "shards" / shard, members, AGAIN)

    def steps(self, features: str) -> list[dict[str, str]]:
        """Name and short hashes of `train`, `test` and (of images) `unlabelled` of each bucket, for the given features,
        as BUCKETS.json has them; equal hashes in two versions prove equal data."""
        return of_steps(read_object(self.path / MANIFEST, {"classes": list, "buckets": list}, AGAIN), features)

    def identity(self) -> dict[str, Any]:
        """What each bucket consists of, as hashes: the content of BUCKETS.json, computed again; without features that
        have no file, as in an export."""
        there = [name for name in self.facts["features"] if (self.path / "features" / f"{name}.npy").is_file()]
        vectors = {name: self.features(name) for name in there}
        return bucket_identities(self.facts, self.table, vectors, unlabelled_of(self.path, held=True))

    def features(self, name: str) -> npt.NDArray[np.float16]:
        """(N, D) float16, memory-mapped, rows as in `table`. Raises UnknownName."""
        if name not in self.facts["features"]:
            raise UnknownName(
                f"The release {self.name} has no features {name!r}.",
                f"Available: {', '.join(self.facts['features']) or 'none'}.",
            )
        return open_array(self.path / "features" / f"{name}.npy", "f", (len(self.table), None), AGAIN)

    def withdrawn(self, ids: Iterable[str]) -> list[str]:
        """Those of some ids that owners withdrew, from this release or an earlier one, by WITHDRAWN.csv."""
        return listed(ids, ((salt, digest) for salt, digest, _ in listed_withdrawals(self.path)))

    def seen_by(self, name: str) -> dict[str, str]:
        """What the encoder of some features may have seen, as a stream's facts say it: `encoder_cutoff`, `encoder_data`
        and `encoder_source`."""
        return recorded(self.facts["provenance"], name).facts()

    def checksums(self) -> dict[str, str]:
        """File → checksum, of SHA256SUMS. Raises IntegrityError for a line that is none, or a name that leaves the
        release."""
        path = self.path / "SHA256SUMS"
        sums = sums_of(path.read_bytes(), path, AGAIN)
        for name in sums:
            inside(self.path, name, path)
        return sums

    def verify(self) -> None:
        """Check every file against SHA256SUMS. Raises IntegrityError naming the first that differs or is missing."""
        sums = self.path / "SHA256SUMS"
        if not sums.is_file():
            raise MissingFile(
                f"{self.path} has no SHA256SUMS.",
                "It is written last, so the release is not finished.",
                "Run publish again.",
            )
        listed = self.checksums()
        for path in sorted(self.path.rglob("*")):
            if path.is_symlink():
                raise IntegrityError(
                    f"{path} is a link.", "Expected plain files: a link may lead out of the release.", AGAIN
                )
            name = path.relative_to(self.path).as_posix()
            if path.is_file() and name not in listed and path != sums:
                raise IntegrityError(
                    f"The file {name} of {self.path} does not belong to this release.",
                    "SHA256SUMS does not list it: perhaps two releases were mixed.",
                    "Remove it, or copy the release again.",
                )
        for name, digest in listed.items():
            path = self.path / name
            if not path.is_file():
                raise IntegrityError(f"The file {name} of {self.path} is missing.", "", AGAIN)
            if sha256_file(path) != digest:
                raise IntegrityError(f"The file {name} of {self.path} was changed.", "Its checksum differs.", AGAIN)


def in_run(run: Path, place: str) -> Path | None:
    """`DIR/stages/NN_PLACE` of a run folder, as of "publish/release"; None if there is none.

    Raises BadInput for two: a list of stages with other numbers left the older one.
    """
    paths = sorted(run.glob(f"stages/*_{place}"))
    if len(paths) > 1:
        raise BadInput(
            f"{run} has {' and '.join(path.relative_to(run).as_posix() for path in paths)}.",
            "Expected one: another list of stages made the other.",
            f"Delete what driftline status {run} names.",
        )
    return paths[0] if paths else None


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
    for name in ("id", "bucket", "class", "label", "uploaded", "group", *splits):
        column = table[name]
        bad = pc.invert(pc.is_in(column, pa.array(SIDES))) if name in splits else column.is_null()
        if (row := pc.index(bad, True).as_py()) >= 0:
            raise IntegrityError(f"{path} has the {name} {column[row].as_py()!r} in row {row + 1:,}.", "", AGAIN)
    for column in ("shard", "member"):
        for name in table[column].unique().to_pylist():
            if name is None or (why := fault(name)):
                because = "it is empty" if name is None else why
                raise IntegrityError(f"{path} names the {column} {name!r}: {because}.", "Expected plain names.", AGAIN)
    return table
