"""The base class of sources: a section of the run file that yields records of the column contract."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.late import pa
from driftline.curate.core.settings import PLACE, SPEED, PathText, Section, resolve_path
from driftline.curate.foreign.s3 import S3
from driftline.curate.sources import SOURCES


@dataclass(frozen=True)
class Workplace:
    """Where a source works: what the run knows and the run file does not say."""

    base: Path = Path()
    """folder of the run file, which relative paths start from"""
    work: Path = Path("downloads")
    """folder for downloads and for files that a source makes for itself"""
    threads: int = 1
    """cores that decoding may use; never changes a record"""
    memory: Path | None = None
    """file that keeps what was read of each photo (`core/files/memory.py`); None: all is read again"""

    def path(self, text: str) -> Path:
        """Where a path of the run file is on this machine; of an s3:// address, where its download is."""
        if text.startswith("s3://"):
            return self.work / text.removeprefix("s3://").rstrip("/")
        return resolve_path(text, self.base)


HERE = Workplace()  # the working directory


class Source(Section):
    """Base class of all sources: its fields are the keys that the section `collection` takes with this source."""

    source: str = ""
    """where the photos are listed, one of driftline list sources, or package.module:Name"""
    records_version: ClassVar[int] = 1
    """raised when the same settings and content yield other records, so that runs read them again"""

    @abstractmethod
    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The files and folders whose change makes the table stale."""

    @abstractmethod
    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> "Iterator[pa.RecordBatch]":
        """Yield at most `rows` records of `metadata.schema.SOURCE` at a time, in source order, without the first
        `skip`.

        A record that cannot be read is yielded in its place with `fault` (the reason) and `raw`. Raises BadInput if the
        source as a whole is not what it should be.
        """

    def left_out(self, at: Workplace = HERE) -> list[dict[str, Any]]:
        """id, fault and raw of what is beside the records and is counted as dropped; read after them."""
        return []

    def own_ids(self) -> bool:
        """Whether ids are the source's own, and not made from paths or addresses."""
        return True

    def requested(self, url: str) -> str:
        """In which size a photo was requested at this address, as part of its record of changes; "": as it is."""
        return ""

    def lists_others(self) -> bool:
        """Whether `extra` of its records may have `other_url`, a smaller size of the same photo, which is fetched where
        a server no longer has `url`, and `other_size`, what the record of changes then says."""
        return False

    def identity(self, stage: str) -> dict[str, Any]:
        """The settings that the fingerprint of `stage` holds, and for ingest the version of the records."""
        return super().identity(stage) | ({"records_version": self.records_version} if stage == "ingest" else {})


class FileSource(Source):
    """A source that reads a file or a folder."""

    path: Annotated[PathText, PLACE]
    """file or folder, relative to this file, else to the working directory; s3://bucket/key is downloaded first"""
    s3: Annotated[S3, SPEED] = S3()
    """how s3:// paths are read"""
    starts_at_once: ClassVar[bool] = True
    """whether the first records come without long work, so that a plan may read them"""

    def identity(self, stage: str) -> dict[str, Any]:
        """An address is part of it, a path is not: its content is."""
        address = {"address": self.path} if stage == "ingest" and "://" in self.path else {}
        return super().identity(stage) | address


def source_of(values: Any) -> Any:
    """The section `collection` as its source reads it. Raises ValidationError, naming the key."""
    if not isinstance(values, Mapping):
        return values
    name = values.get("source")
    try:
        kind = SOURCES.resolve(str(name))
    except DriftlineError as error:
        unusable = PydanticCustomError("unknown_name", "{error}", {"error": str(error)})
        details = InitErrorDetails(type="missing" if name is None else unusable, loc=("source",), input=values)
        raise ValidationError.from_exception_data("collection", [details]) from None
    return kind.model_validate(values)
