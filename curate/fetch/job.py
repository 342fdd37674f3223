"""What one shard is to fetch, and where: plain data, which is sent to workers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.foreign.images import PREPARATION, reads_heic, reads_jxl
from driftline.curate.store.database import Place

NOT_OF_A_PHOTO = {"shard_size", "stop_after"}  # settings that do not decide what a row becomes
COLUMNS = ["id", "row", "url", "path", "uploaded", "until"]


def rules_of(settings: FetchSettings, others: bool = False) -> bytes:
    """Fingerprint of what decides what a row becomes. Misses of other rules are asked again."""
    values = {k: v for k, v in settings.identity("fetch").items() if k not in NOT_OF_A_PHOTO}
    return bytes.fromhex(fingerprint([values, reads_heic(), reads_jxl(), PREPARATION, *["others"] * others]))[:8]


@dataclass(frozen=True)
class Again:
    """Misses that are asked for once more."""

    reasons: frozenset[str]
    """reasons of such misses"""
    earlier: Path
    """folder with shards of the same rows, whose images and other misses are kept"""


@dataclass(frozen=True)
class Shard:
    """What to fetch and where; plain data, so that it can be sent to workers."""

    number: int
    """position among the shards, from 0"""
    pieces: tuple[tuple[Path, int, int], ...]
    """(Parquet part, first row in it, number of rows), in order"""
    out: Path
    """folder of all shards"""
    settings: FetchSettings
    """those of one worker: private_addresses is "auto" only for a collection on the user's own network, rate is its
    share"""
    again: Again | None = None
    """what is asked again; None: nothing, a finished shard is not touched"""
    store: Place | None = None
    """what is known from earlier fetches; None: no store"""
    others: bool = False
    """whether `extra` may have another address, see `Source.lists_others`"""
    patience: float = math.inf
    """seconds an answer: the rows of a slower host become SLOW, see `native.download`"""

    def rows(self, columns: list[str] = COLUMNS) -> pa.Table:
        """Its rows of the table."""
        parts = [(path, path.stat()) for path, _, _ in self.pieces]
        tables = [_read(path, tuple(columns), facts.st_ino, facts.st_mtime_ns) for path, facts in parts]
        return pa.concat_tables([t.slice(first, n) for t, (_, first, n) in zip(tables, self.pieces, strict=True)])


def manifest(parts: Sequence[Path], out: Path, settings: FetchSettings, store: Place | None = None) -> list[Shard]:
    """The rows of all parts, one after another, cut into shards of `shard_size`."""
    sizes = [pq.read_metadata(part).num_rows for part in parts]
    starts = [0, *accumulate(sizes)]
    shards = []
    for number, low in enumerate(range(0, starts[-1], settings.shard_size)):
        high = min(low + settings.shard_size, starts[-1])
        pieces = tuple(
            (part, max(low, start) - start, min(high, start + size) - max(low, start))
            for part, start, size in zip(parts, starts, sizes, strict=False)
            if start < high and start + size > low
        )
        shards.append(Shard(number, pieces, out, settings, store=store))
    return shards


@lru_cache(maxsize=2)
def _read(path: Path, columns: tuple[str, ...], inode: int, changed: int) -> pa.Table:
    """A part, of which the next shards are, too: it is read once."""
    return pq.read_table(path, columns=[*columns]).select(columns)
