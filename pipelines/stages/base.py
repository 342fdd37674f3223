"""A stage: reads the folders of finished stages, writes one folder, returns counts."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.core.errors import BadConfig, Shortage, UnknownName, available, did_you_mean
from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.settings import resolve_path
from driftline.curate.fetch.outcome import NETWORK_REASONS
from driftline.curate.store.database import Place
from driftline.pipelines.config.loader import Config

MEMORY = "digests.sqlite"  # in the run folder: what was read of files on this machine
Records = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Counts:
    """Counts of records: read == kept + the sum of dropped, or they cannot be constructed."""

    read: int
    """records that came in"""
    kept: int
    """records that are passed on"""
    dropped: Mapping[str, int]
    """reason → records"""

    def __post_init__(self) -> None:
        missing = self.read - self.kept - sum(self.dropped.values())
        if missing:
            raise AssertionError(f"The counts of a stage do not balance: {missing} records are missing in {self}.")

    def plain(self) -> dict[str, Any]:
        """As in `done.json`, without the reasons that dropped nothing."""
        return {"read": self.read, "kept": self.kept, "dropped": {k: v for k, v in sorted(self.dropped.items()) if v}}


def reasons_text(dropped: Mapping[str, int]) -> str:
    """Why records were dropped, for people.

    >>> reasons_text({"no_majority": 1200, "pending": 3})
    'no_majority 1,200, pending 3'
    """
    return ", ".join(f"{reason} {n:,}" for reason, n in dropped.items())


def parts_of(folder: Path) -> list[Path]:
    """The Parquet parts of the table that a stage wrote into its folder, in order."""
    return sorted((folder / "table").glob("*.parquet"))


@dataclass(frozen=True)
class Retry:
    """Which misses of fetch are asked for again."""

    reasons: tuple[str, ...]
    """reasons of the misses"""
    output: Path | None = None
    """finished output whose images are kept; None: the unfinished work itself"""


def retry_of(reasons: Sequence[str]) -> Retry:
    """The misses of these reasons; `network` stands for all reasons of an outage. Raises BadConfig for none."""
    named = [r for reason in reasons for r in (sorted(NETWORK_REASONS) if reason == "network" else [reason])]
    if not named:
        raise BadConfig("--reason names nothing.", "Expected network, or reasons such as timeout,http_5xx.")
    return Retry(tuple(dict.fromkeys(named)))


def check_reasons(reasons: Sequence[str], there: Iterable[str], what: str) -> None:
    """Raise UnknownName for a reason for which no photo was `what`."""
    names = sorted(there)
    for reason in reasons:
        if reason not in names:
            problem = f"No photo was {what} for the reason {reason!r}."
            raise UnknownName(problem, did_you_mean(reason, names), available(reason, names))


@dataclass(frozen=True)
class Context:
    """What a stage works with."""

    root: Path
    """the run folder"""
    config: Config
    """the checked settings"""
    run_log: RunLog
    """progress and events"""
    executor: Executor = field(default_factory=Executor)
    """runs parallel work; never changes a byte of the output"""
    changes: tuple[str, ...] = ()
    """`KEY=VALUE` of --set that the settings hold"""
    verify: bool = False
    """read all finished output to find damage, not only its sizes"""
    retry: Retry | None = None
    """which misses of fetch are asked for again; None: those of an outage"""
    fresh: bool = False
    """work as if the store were empty and no file had been read; what is new is kept"""

    @property
    def answers_folder(self) -> Path:
        """Where the files with answers of people are."""
        return self.root / self.config.validation.answers

    def store(self) -> Place | None:
        """The store of the run; None without one, and on a cluster, whose machines cannot share it."""
        settings, engine = self.config.store, self.executor.kind
        cluster = engine != "local" and (engine != "ray" or "RAY_ADDRESS" in os.environ)
        if not settings.use or cluster:
            return None
        return Place(settings.folder(self.root), not self.fresh)

    def path(self, text: str) -> Path:
        """A path that the configuration gives."""
        return resolve_path(text, self.root)


@dataclass(frozen=True)
class Stage(ABC):
    """One stage. A subclass declares what it needs and does the work; the runner does the rest."""

    context: Context
    name: ClassVar[str]
    """as in the registry"""
    needs: ClassVar[tuple[str, ...]] = ()
    """stages whose folders it reads"""
    version: ClassVar[int] = 1
    """increase it when the same settings give other bytes"""
    hint: ClassVar[str] = ""
    """what the user can do if nothing is kept"""
    records: ClassVar[Records] = (("**/*.parquet", "reason"),)
    """tables with a column `id` that `trace` reads, in order: (pattern in the stage's folder, column with the reason
    for which a record was dropped; without that column, the table lists kept records)"""

    parts: ClassVar[str] = ""
    """pattern of files that are made part by part, the first group names the part: of damaged output only these parts
    are made again; "": all of it"""

    @abstractmethod
    def settings(self) -> Any:
        """Plain data: everything that changes the output, besides the inputs."""

    def plugins(self) -> list[type]:
        """Classes whose code decides the output: that of driftline itself is known by `version`."""
        return [type(self)]

    def check(self) -> None:  # noqa: B027  the types of most settings say enough
        """Raise DriftlineError for settings that cannot work; called for all stages that will run, before any work."""

    def outside(self) -> list[Path]:
        """Files and folders outside the run that the output depends on."""
        return []

    def prepare(self) -> None:  # noqa: B027  most stages need nothing
        """Copy what `outside` names to this machine; runs before the fingerprint of the stage is computed."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """Write into `out`; never write a finished part again. inputs: stage in `needs` → its folder."""

    def check_kept(self, counts: Counts) -> None:
        """Raise Shortage if the stage kept nothing."""
        if counts.kept == 0:
            dropped = reasons_text(counts.plain()["dropped"]) or "it read none"
            raise Shortage(f"The stage {self.name} kept none of {counts.read:,} records ({dropped}).", "", self.hint)
