"""What a stage is: reads finished folders, writes one folder, returns counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from curate.core.executor import Executor
from curate.core.run_log import RunLog
from pipelines.config.loader import resolve
from pipelines.config.schema import Config


@dataclass(frozen=True)
class Counts:
    """read == kept + the sum of dropped: every record is accounted for."""

    read: int
    kept: int
    dropped: Mapping[str, int]

    def __post_init__(self) -> None:
        missing = self.read - self.kept - sum(self.dropped.values())
        if missing:
            raise AssertionError(f"the counts of a stage do not balance: {missing} records unaccounted for in {self}")

    def plain(self) -> dict[str, Any]:
        """As written to `done.json`; reasons that dropped nothing are left out."""
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": {k: v for k, v in sorted(self.dropped.items()) if v},
        }


def parts_of(folder: Path) -> list[Path]:
    """The Parquet parts of the table that a stage wrote into its folder, in order."""
    return sorted((folder / "table").glob("*.parquet"))


@dataclass(frozen=True)
class Context:
    """root: the run folder. executor: where work that can be spread is done; never changes a byte of the output."""

    root: Path
    config: Config
    run_log: RunLog
    executor: Executor = field(default_factory=Executor)

    def path(self, given: str) -> Path:
        """A path of the configuration."""
        return resolve(given, self.root)


@dataclass(frozen=True)
class Stage(ABC):
    """One stage. Subclasses say what they need and do the work; the runner does the rest."""

    context: Context
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[int] = 1  # raise it when the same settings give other bytes
    hint: ClassVar[str] = ""  # what to do when nothing is kept

    @abstractmethod
    def settings(self) -> Any:
        """Plain data: everything that changes the output, besides the inputs."""

    def outside(self) -> list[Path]:
        """Files and folders from outside the run that the output depends on."""
        return []

    def prepare(self) -> None:  # noqa: B027  most stages have nothing to bring
        """Bring what `outside` names to this machine; called before the stage's fingerprint is taken."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """inputs: folders of the stages in `needs`. Writes into `out`, finished parts never again."""
