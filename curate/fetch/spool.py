"""The bytes of a shard's images until it is written, and what else is known of its rows."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from driftline.curate.core.atomic_io import NO_ROOM, no_room
from driftline.curate.fetch.outcome import Download
from driftline.curate.metadata.column_mapping import printable
from driftline.curate.store.photos import Outcome

IN_MEMORY = 256 * 2**20  # bytes of a shard; twice a default shard of YFCC's, so that it is written only once


class Spool:
    """The bytes of a shard's images until it is written: in memory, and on disk if there are more than IN_MEMORY."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(folder))  # noqa: SIM115  closed with the shard
        self._folder = folder
        self._places: dict[int, tuple[int, int]] = {}
        self.failures: dict[int, Download] = {}
        self.notes: dict[int, str] = {}  # row → detail of an image that a mirror had
        self.sizes: dict[int, str] = {}  # row → record of the size in which another address had it
        self.origins: dict[int, tuple[str, str]] = {}  # row → source_sha256 and changes of an image stored before
        self.passed: dict[int, Outcome] = {}  # row → what a store knows of its image, judged by the same rules
        self.misses: dict[int, Download] = {}  # row → its last answer, if it is asked again

    def keep(self, row: int, outcome: Download) -> None:
        """Take the outcome of a row; a later one replaces it."""
        if outcome.data is None:
            # what a server wrote need not be text
            self.failures[row] = replace(outcome, detail=outcome.detail and printable(outcome.detail))
            return
        self.failures.pop(row, None)
        self._places[row] = (self._file.seek(0, 2), len(outcome.data))
        try:
            self._file.write(outcome.data)
            self._file.flush()
        except OSError as error:
            if error.errno in NO_ROOM:
                raise no_room(error, self._folder / "(images of a shard)", self._places[row][0]) from None
            raise

    def data(self, row: int) -> bytes | None:
        """The bytes of a row, or None."""
        if row not in self._places:
            return None
        start, size = self._places[row]
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        """Delete the file."""
        with suppress(OSError):  # what a full disk did not take is not needed any more
            self._file.close()
