"""iNaturalist's open data: photos with the day of the observation, licence and taxon, so that labels are included.

The tables are those of github.com/inaturalist/inaturalist-open-data (Metadata): photos, observations, taxa, observers;
tab-separated, with a header and without quotes, because names contain quotes. They are published every month in
s3://inaturalist-open-data/metadata/inaturalist-open-data-latest.tar.gz. Images are at photos/PHOTO_ID/SIZE.EXTENSION of
the same bucket. An ancestry is a list of ids; a photo_id may be there twice; a row may name an image that is gone.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from driftline.curate.core.atomic_io import fingerprint, writing
from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.core.files.digests import full_digest
from driftline.curate.core.outside.s3 import S3
from driftline.curate.core.settings import SPEED, Time
from driftline.curate.core.times.dates import last_second, seconds_of
from driftline.curate.metadata.column_mapping import LONGEST_RAW, printable
from driftline.curate.metadata.schema import rebatch
from driftline.curate.sources.base import HERE, FileSource, Workplace, check_span, degrees_of, numbered

SIZES = {"large": 1024, "medium": 500, "small": 240}  # pixels of the longer edge
IMAGES = "https://inaturalist-open-data.s3.amazonaws.com/photos"
NEEDED = {
    "photos": ("photo_id", "observation_uuid", "observer_id", "extension", "license", "position"),
    "observations": ("observation_uuid", "latitude", "longitude", "taxon_id", "quality_grade", "observed_on"),
    "taxa": ("taxon_id", "ancestry", "rank", "name"),
    "observers": ("observer_id", "login", "name"),
}
WITHOUT = ("observers",)  # tables that may be missing
LICENCES = {f"CC-{kind}": f"https://creativecommons.org/licenses/{kind.lower()}/4.0/"
            for kind in ("BY", "BY-SA", "BY-NC", "BY-NC-SA", "BY-ND", "BY-NC-ND")} | {
    "CC0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "PD": "https://creativecommons.org/publicdomain/mark/1.0/",
}  # fmt: skip
FAULTS = {
    "MISSING COLUMNS": "wrong_column_count",
    "TOO MANY COLUMNS": "wrong_column_count",
    "INVALID ENCODING": "not_utf8",
    "LINE SIZE OVER MAXIMUM": "line_too_long",
}
PHOTOS, REJECTS = "photos.parquet", "rejects.parquet"
MEMORY = "4GB"  # of the join; what does not fit is on the disk
READ = 16_384  # rows that are read at a time
# Each taxon with itself and all above it. An ancestry is ids joined by slashes.
UP = """
SELECT taxon_id, unnest(regexp_split_to_array(concat_ws('/', nullif(ancestry, ''), taxon_id), '[/\\\\]')) AS up
FROM taxa
"""
LABELS = f"""
SELECT a.taxon_id, min(r.name) AS label FROM ({UP}) AS a JOIN taxa AS r ON r.taxon_id = a.up AND r.rank = $1
GROUP BY a.taxon_id
"""
INSIDE = f"""
SELECT DISTINCT a.taxon_id FROM ({UP}) AS a JOIN taxa AS r
ON r.taxon_id = a.up AND (r.name IN (SELECT unnest($1)) OR r.taxon_id IN (SELECT unnest($1)))
"""
# A photo without its observation is a fault; photos of observations that the settings leave out are no records.
JOIN = """
SELECT p.photo_id, p.observer_id, p.extension, p.license, p.observation_uuid, o.observation_uuid IS NULL AS lost,
       o.observed_on, o.latitude, o.longitude, o.quality_grade, t.name AS taxon, t.rank, l.label,
       coalesce(nullif(u.name, ''), u.login) AS observer
FROM photos AS p
LEFT JOIN observations AS o USING (observation_uuid)
LEFT JOIN taxa AS t ON t.taxon_id = o.taxon_id
LEFT JOIN labels AS l ON l.taxon_id = o.taxon_id
LEFT JOIN observers AS u ON u.observer_id = p.observer_id
WHERE o.observation_uuid IS NULL OR (
    o.quality_grade IN (SELECT unnest($quality)) AND coalesce(o.observed_on, '') >= $first
    AND coalesce(o.observed_on, '') < $last AND (NOT $some OR o.taxon_id IN (SELECT taxon_id FROM inside))
)
QUALIFY $every OR row_number() OVER (
    PARTITION BY p.observation_uuid ORDER BY try_cast(p.position AS INT) NULLS LAST, try_cast(p.photo_id AS BIGINT)
) = 1 OR o.observation_uuid IS NULL
ORDER BY try_cast(p.photo_id AS BIGINT) NULLS LAST, p.photo_id, p.observation_uuid
"""
REJECTED = """
SELECT DISTINCT ON (file, line) error_type AS fault, concat(file, ': ', csv_line) AS raw FROM reject_errors
JOIN (SELECT DISTINCT scan_id, file_id, regexp_extract(file_path, '[^/]+$') AS file FROM reject_scans)
USING (scan_id, file_id)
ORDER BY file, line
"""


class INaturalist(FileSource):
    """iNaturalist's open data: photos by the day of the observation, labelled with their species.

    path: a folder with photos.csv, observations.csv, taxa.csv and, if there, observers.csv (also .gz), or the archive
    that holds them. The joined table is kept in DIR/downloads.
    """

    starts_at_once: ClassVar[bool] = False

    s3: Annotated[S3, SPEED] = S3(region="us-east-1")
    """how s3:// paths are read"""
    taxa: tuple[str, ...] = ()
    """scientific names or ids; photos of these and of all below them (empty: all)"""
    rank: str = "species"
    """the label is the name of the taxon's ancestor of this rank: species, genus, family, …; null for coarser taxa"""
    quality: tuple[Literal["research", "needs_id", "casual"], ...] = ("research",)
    """quality grades; research: people agree on the species"""
    photos: Literal["first", "all"] = "first"
    """of an observation: photos of one observation are often nearly the same"""
    start: Time | None = None
    """observed on this day or later (null: no limit)"""
    end: Time | None = None
    """observed before this day (null: no limit)"""
    size: Literal["original", "large", "medium", "small"] = "large"
    """longer edge: 2048, 1024, 500 or 240 pixels"""
    images: Annotated[str, Field(pattern=r"^https?://\S+$")] = IMAGES
    """where the images are: ADDRESS/PHOTO_ID/SIZE.EXTENSION"""

    @model_validator(mode="after")
    def _is_not_empty(self) -> INaturalist:
        if self.start is not None and self.end is not None:
            check_span(self.start, self.end)
        return self

    def requested(self, url: str) -> str:
        """The largest size of iNaturalist's copies."""
        return f"requested at no more than {SIZES[self.size]} pixels" if self.size in SIZES else ""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The tables, or the archive."""
        path = at.path(self.path)
        if path.is_file():
            return [path]
        if not path.is_dir():
            raise MissingFile(
                f"There is no {path.absolute()}.",
                "Expected the folder of iNaturalist's tables, or their archive.",
                "Check collection.path.",
            )
        return [table for name in NEEDED if (table := _table(path, name)) is not None]

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a photo, in order of photo ids; lines of the tables that cannot be read come last."""
        yield from rebatch(self._read(at, skip), rows)

    def _read(self, at: Workplace, skip: int) -> Iterator[pa.RecordBatch]:
        empty = BadInput(
            f"{self.path} is empty: no photo fits the settings.",
            "Expected at least one.",
            "Check collection.taxa, collection.quality, collection.start and collection.end.",
        )
        tables = (pq.ParquetFile(self._joined(at) / name) for name in (PHOTOS, REJECTS))
        chunks = (batch.to_pylist() for table in tables for batch in table.iter_batches(READ))
        yield from numbered(chunks, skip, self._record, empty)

    def _joined(self, at: Workplace) -> Path:
        """Folder with the photos, their observations and taxa as Parquet; made once for these tables and settings."""
        work = at.work / "inaturalist"
        work.mkdir(parents=True, exist_ok=True)
        digests = [full_digest(path, work / "digests.sqlite") for path in self.inputs(at)]
        settings = self.model_dump(mode="json", exclude={"path", "s3", "size", "images"})
        out = work / fingerprint([digests, settings])[:16]
        if not out.is_dir():
            folder = at.path(self.path)
            if folder.is_file():
                folder = unpacked(folder, work / f"tables-{digests[0][:16]}")
            part = out.with_name(f"{out.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            self._join(folder, part, at)
            os.replace(part, out)
        return out

    def _join(self, folder: Path, out: Path, at: Workplace) -> None:
        """Join the tables on the disk, in the folder `out`; memory does not grow with them."""
        import duckdb

        values = {
            "quality": list(self.quality),
            "every": self.photos == "all",
            "some": bool(self.taxa),
            "first": "" if self.start is None else _day(self.start),
            "last": "~" if self.end is None else _day(self.end),
        }
        try:
            with duckdb.connect(str(out / "tables.duckdb")) as base:
                base.execute(f"SET threads = {at.threads}; SET memory_limit = '{MEMORY}'")
                for name in NEEDED:
                    _load(base, folder, name)
                base.execute(f"CREATE TABLE labels AS {LABELS}", [self.rank])
                base.execute(f"CREATE TABLE inside AS {INSIDE}", [list(self.taxa)])
                _check_taxa(base, self.taxa)
                base.execute(f"COPY ({JOIN}) TO '{_quoted(out / PHOTOS)}' (FORMAT parquet)", values)
                base.execute(f"COPY ({REJECTED}) TO '{_quoted(out / REJECTS)}' (FORMAT parquet)")
        except duckdb.Error as error:
            why = f"The tables in {folder} cannot be read ({reason(error)})."
            raise BadInput(why, "Expected iNaturalist's tables.") from None
        (out / "tables.duckdb").unlink()

    def _record(self, values: Mapping[str, Any], row: int) -> dict[str, Any]:
        def bad(fault: str) -> dict[str, Any]:
            return {"row": row, "fault": fault, "raw": json.dumps(values)[:LONGEST_RAW]}

        if "fault" in values:
            fault = FAULTS.get(values["fault"], "unreadable_value")
            return {"row": row, "fault": fault, "raw": printable(values["raw"])}
        id_, extension, observed = (values[key] or "" for key in ("photo_id", "extension", "observed_on"))
        if not re.fullmatch("[0-9]{1,90}", id_):
            return bad("bad_id")
        if values["lost"]:
            return bad("no_observation")
        if not re.fullmatch("[A-Za-z0-9]{2,5}", extension):
            return bad("bad_extension")
        try:
            when = seconds_of(observed) if re.fullmatch(r"\d{4}-\d\d-\d\d", observed) else None
        except ValueError:
            when = None
        if observed and when is None:
            return bad("bad_upload_time")
        x, y = degrees_of(values["longitude"], 180), degrees_of(values["latitude"], 90)
        extra = {
            "taxon": values["taxon"],
            "rank": values["rank"],
            "quality": values["quality_grade"],
            "observation": values["observation_uuid"],
            "date_from": "observed_on",
            "date_precision": "day",
        }
        return {
            "id": id_,
            "row": row,
            "url": f"{self.images.rstrip('/')}/{id_}/{self.size}.{extension}",
            "uploaded": when,
            "until": None if when is None else last_second(when, "day"),
            "taken": when,
            "user": values["observer_id"],
            "nickname": values["observer"],
            "title": values["taxon"],
            "licence": values["license"],
            "licence_url": LICENCES.get((values["license"] or "").upper()),
            "page_url": f"https://www.inaturalist.org/photos/{id_}",
            "media": "photo",
            "longitude": x if y is not None else None,
            "latitude": y if x is not None else None,
            "label": values["label"],
            "extra": json.dumps({key: value for key, value in extra.items() if value}),
        }


def unpacked(archive: Path, folder: Path) -> Path:
    """The tables of the archive in `folder`; tables that are there are not unpacked again. Raises BadInput."""
    wanted = {f"{name}.csv{end}" for name in NEEDED for end in ("", ".gz")}
    if (folder / "photos.csv").is_file() or (folder / "photos.csv.gz").is_file():
        return folder
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if member.isfile() and name in wanted and (content := tar.extractfile(member)) is not None:
                    with writing(part / name) as file:
                        shutil.copyfileobj(content, file, 1 << 20)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise BadInput(
            f"{archive} cannot be read ({reason(error)}).", "Expected iNaturalist's archive, a .tar.gz."
        ) from None
    if not part.is_dir():
        raise BadInput(f"{archive} is empty of tables.", f"Expected {', '.join(sorted(wanted))}.")
    os.replace(part, folder)
    return folder


def _table(folder: Path, name: str) -> Path | None:
    """The file of a table, plain or compressed. Raises MissingFile for one that is needed."""
    for end in (".csv", ".csv.gz"):
        if (folder / f"{name}{end}").is_file():
            return folder / f"{name}{end}"
    if name in WITHOUT:
        return None
    raise MissingFile(
        f"{folder} has no {name}.csv or {name}.csv.gz.",
        "Expected the tables of iNaturalist's open data.",
        "Check collection.path.",
    )


def _load(base: Any, folder: Path, name: str) -> None:
    """A table of the needed columns, all text; lines that cannot be read go to DuckDB's list of rejects."""
    path = _table(folder, name)
    columns = ", ".join(NEEDED[name])
    if path is None:
        base.execute(f"CREATE TABLE {name} ({', '.join(f'{column} VARCHAR' for column in NEEDED[name])})")
        return
    header = _header(path)
    if missing := [column for column in NEEDED[name] if header.count(column) != 1]:
        has = f"It has {', '.join(header)[:500]}."
        raise BadInput(f"{path} has no column {missing[0]!r}, or several.", has, "Check collection.path.")
    kinds = ", ".join(f"'{_quoted(column)}': 'VARCHAR'" for column in header)
    rules = "delim = '\\t', quote = '', escape = '', header = true, auto_detect = false"
    base.execute(
        f"CREATE TABLE {name} AS SELECT {columns} FROM read_csv('{_quoted(path)}', {rules}, columns = {{{kinds}}}, "
        "ignore_errors = true, store_rejects = true)"
    )


def _header(path: Path) -> list[str]:
    """The names of the columns."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            line = file.readline(1 << 16)
    except (OSError, EOFError) as error:
        raise BadInput(f"{path} cannot be read ({reason(error)}).", "Expected a table of iNaturalist.") from None
    if not line.strip():
        raise BadInput(f"{path} is empty.", "Expected a header and one line a record.")
    return line.decode("utf-8", "replace").rstrip("\r\n").split("\t")


def _check_taxa(base: Any, names: tuple[str, ...]) -> None:
    """Raise BadInput for a taxon that the table does not have."""
    for name in names:
        if base.execute("SELECT 1 FROM taxa WHERE name = $1 OR taxon_id = $1 LIMIT 1", [name]).fetchone() is None:
            near = base.execute(
                "SELECT name FROM taxa WHERE jaro_winkler_similarity(name, $1) > 0.8 "
                "ORDER BY jaro_winkler_similarity(name, $1) DESC, name LIMIT 1", [name],
            ).fetchone()  # fmt: skip
            hint = f"Did you mean {near[0]!r}?" if near else "Expected a scientific name or id of the table taxa."
            raise BadInput(f"Unknown taxon {name!r}.", hint, "Check collection.taxa.")


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _quoted(path: Any) -> str:
    return str(path).replace("'", "''")
