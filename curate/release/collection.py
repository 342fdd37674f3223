"""The outputs of a run's stages from which a release is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.curate.encoders import EncoderSpec
from driftline.curate.release.format import Release
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.store.database import Place


@dataclass(frozen=True)
class Collection:
    """The outputs of earlier stages, and the files that the settings name."""

    table: Sequence[Path]
    """Parquet parts with one row per photo"""
    fetched: Path
    """folder of the shards"""
    members: Path
    """Parquet table with the shard and bucket of every image"""
    embedded: Path
    """folder of the vectors"""
    verdicts: pa.Table
    """table of VERDICTS"""
    asked: Path
    """Parquet table with the scores of all images that were asked"""
    buckets: Sequence[Mapping[str, Any]]
    """the labelled buckets, as in buckets.json"""
    classes: Sequence[str]
    """names in the order of their labels"""
    settings: ReleaseSettings
    run_log: RunLog
    executor: Executor
    withdrawn: Mapping[str, bool] = field(default_factory=dict)
    """id that its owner withdrew → whether an earlier release of the run held it"""
    previous: Release | None = None
    """the previous release"""
    kept: pa.Table | None = None
    """rows of metadata.parquet of images that the run has published before"""
    judgement: str | None = None
    """text of the card's judgement file"""
    card: str | None = None
    """template of the card"""
    backbones: Mapping[str, EncoderSpec] = field(default_factory=dict)
    """name → encoder of further features"""
    batch: int = 64
    """images per batch for these"""
    store: Place | None = None
    """where their vectors are kept; None: nowhere"""
    requested: Callable[[str], str] = lambda url: ""
    """address → in which size the source was asked for the photo, see `Source.requested`"""
    names: Mapping[str, str] = field(default_factory=dict)
    """id → id in the release, where it is another one: see `ids`"""
    people: Mapping[str, int] | None = None
    """id → answers of people that count; None: nobody was asked"""

    @cached_property
    def own(self) -> dict[str, str]:
        """Id in the release → id in the run, where it is another one."""
        return {released: id_ for id_, released in self.names.items()}

    @cached_property
    def gone(self) -> dict[str, bool]:
        """`withdrawn` by the ids in the release."""
        return {self.names.get(id_, id_): held for id_, held in self.withdrawn.items()}
