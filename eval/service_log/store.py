"""What was read of the files of a log, kept in a folder: a file with the same bytes is not read again."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import fingerprint, sha256_file, sweep, writing
from driftline.curate.core.files.digests import code_of
from driftline.curate.core.files.walk import stamp_of

PREFIX, ABOUT, KEY = "age-read-", "about", 32  # digits of a key
CODES = np.int32


@dataclass
class Columns:
    """One file or table, N rows."""

    of: dict[str, npt.NDArray[Any]]
    """role → (N,) values; of a text its number, -1: none"""
    texts: dict[str, list[str]]
    """version, class, group → the texts, in the order of their numbers"""
    forms: list[int]
    """how its times are written"""


@dataclass
class Store:
    """A folder with what was read of each file. It holds what the last run read: nothing else is kept."""

    folder: Path
    used: set[str] = field(default_factory=set)

    def once(self, source: Any, asked: Mapping[str, Any], read: Callable[[], Columns]) -> Columns:
        """What `read` returns of a file: from the folder if a file with these bytes was read by this code before.
        asked: what else decides what is read. Of a table that is no file, or that changes while it is read, nothing is
        kept."""
        if not isinstance(source, str | Path) or not (path := Path(source)).is_file():
            return read()
        import duckdb

        stamp = stamp_of(path.stat())
        ways = [dict(asked), path.suffix, duckdb.__version__, code_of(("curate", "eval"))]  # DuckDB hashes the ids
        name = f"{PREFIX}{fingerprint([sha256_file(path), ways])[:KEY]}.npz"
        self.used.add(name)
        if (columns := _loaded(self.folder / name)) is None:
            columns = read()
            if stamp_of(path.stat()) == stamp:
                _save(self.folder / name, columns)
        return columns

    def tidy(self) -> None:
        """Remove what this run did not use, and what killed runs left."""
        sweep(self.folder)
        for path in self.folder.glob(f"{PREFIX}{'[0-9a-f]' * KEY}.npz"):
            if path.name not in self.used:
                path.unlink(missing_ok=True)


def _save(path: Path, columns: Columns) -> None:
    about = json.dumps({"texts": columns.texts, "forms": columns.forms}).encode()
    arrays = {role: values.astype(_narrow(values)) for role, values in columns.of.items()}
    with writing(path) as file:
        np.savez(file, **arrays, **{ABOUT: np.frombuffer(about, np.uint8)})


def _narrow(values: npt.NDArray[Any]) -> np.dtype[Any]:
    """Of numbers of texts the smallest type; of others their own."""
    return np.min_scalar_type(-1 - int(values.max(initial=0))) if values.dtype == CODES else values.dtype


def _loaded(path: Path) -> Columns | None:
    """None: there is none, or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            of = {role: arrays[role] for role in arrays.files}
        about = json.loads(of.pop(ABOUT).tobytes())
        return Columns(of, about["texts"], about["forms"])
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error):
        return None
