"""Types of parameters that Python and the command line write differently, and what a function reads of them; and kinds
of folders, by their content."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from driftline.curate.core.errors import BadConfig

if TYPE_CHECKING:
    from driftline.stream_builder.datasets import Dataset
    from driftline.stream_builder.stream import Stream

    class InFolder(Protocol):
        """A run or a release."""

        @property
        def path(self) -> Path:
            """Its folder."""
            ...

    Place: TypeAlias = str | Path | InFolder  # a file or folder, or the run or release in it
    Names: TypeAlias = str | Sequence[str]
    StreamPlace: TypeAlias = str | Path | Stream
    StreamPlaces: TypeAlias = StreamPlace | Sequence[StreamPlace]
    Evaluated: TypeAlias = Mapping[str, Any] | str | Path | Sequence[Mapping[str, Any] | str | Path]
    Data: TypeAlias = Dataset | str | Path
    Counts: TypeAlias = str | Sequence[int]
    Table: TypeAlias = Any
    Settings: TypeAlias = Mapping[str, Any] | Sequence[str]
    Protocols: TypeAlias = Any  # names, classes, instances; one or several
    Learners: TypeAlias = Any  # the same
    Seeds: TypeAlias = int | str | Sequence[int]
    Candidates: TypeAlias = Mapping[str, Sequence[Any]] | str | Sequence[str]
    Tables: TypeAlias = Any  # files, data frames, mappings, rows; one or several
    Columns: TypeAlias = Mapping[str, str] | str
else:  # what the command line reads
    Place = StreamPlace = Path
    StreamPlaces = Evaluated = Tables = list[Path]
    Names = Settings = Protocols = Learners = Candidates = list[str]
    Data = Counts = Seeds = Columns = str
    Table = Path | None

Kind = Literal["stream", "draws", "rows", "run", "release", "report", "audit", "model", "encoder", "age",
               "reproduction"]  # fmt: skip

MARKS: dict[Kind, tuple[str, tuple[str, ...]]] = {  # kind → what it is called, the files that only its command writes
    "stream": ("a stream", ("stream.json",)),
    "run": ("a run", ("driftline.yaml",)),
    "release": ("a release", ("release.json",)),
    "draws": ("random samples of a stream", ("seed-*/stream.json",)),
    "rows": ("results of driftline eval", ("*/*/run.json", "*/run.json", "run.json", "*/skipped/*.json")),
    "report": ("a report", ("report.js",)),
    "audit": ("an audit", ("audit.html", "audit.json")),
    "model": ("a model", ("open_clip_config.json",)),
    "age": ("a page of driftline age", ("age.json",)),
    "reproduction": ("a page of driftline reproduce", ("table.json",)),
    "encoder": ("a trained encoder", ("pretrain.json", "images.u8")),
}


def kind_of(path: Path) -> Kind | None:
    """What a folder holds; None for anything else."""
    return next((kind for kind, (_, marks) in MARKS.items() if any(any(path.glob(mark)) for mark in marks)), None)


def path_of(place: Place) -> Path:
    """Where it is. Raises BadConfig for a stream in memory."""
    if hasattr(place, "save"):
        raise BadConfig(f"A {type(place).__name__} in memory was given.", "Expected its folder.", "Save it.")
    at: str | Path = place if isinstance(place, str | Path) else place.path
    return Path(at)


def places_of(places: Place | Sequence[Place]) -> list[Path]:
    """The same of one or several."""
    listed: Any = places if isinstance(places, list | tuple) else [places]
    return [path_of(place) for place in listed]


def streams_of(streams: StreamPlaces) -> "list[Stream]":
    """Those that are given, and those of the folders."""
    from driftline.stream_builder.stream import Stream

    listed: Any = streams if isinstance(streams, list | tuple) else [streams]
    return [Stream.load(place) if isinstance(place, str | Path) else place for place in listed]


def several(names: Names | None) -> list[str]:
    """The names, in order."""
    text = names if isinstance(names, str) else ",".join(names or ())
    return [name.strip() for name in text.split(",") if name.strip()]


def changes_of(settings: Settings) -> list[str]:
    """`KEY=VALUE` with dotted keys."""
    if not isinstance(settings, Mapping):
        return list(settings)
    flat = {
        key if name is None else f"{key}.{name}": value
        for key, section in settings.items()
        for name, value in (section.items() if isinstance(section, Mapping) else [(None, section)])
    }
    return [f"{key}={json.dumps(value, default=str)}" for key, value in flat.items()]
