"""A run's state on disk, so that an interrupted run goes on where it stopped, with the same rows."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.core.atomic_io import write_bytes
from curate.core.errors import BadInput

EVERY = 60.0  # seconds between two states


@dataclass
class Checkpoint:
    """The state is a pickle: like code, load it only from a folder that you trust."""

    path: Path
    """of the file, in the run's own folder, whose name is a digest of all settings: a run with other settings has
    another file"""
    last: float = field(default_factory=time.monotonic)
    """when the state was last written, seconds"""

    def load(self) -> Any | None:
        """The stored state, or None. Raises BadInput for a file that is no state."""
        if not self.path.is_file():
            return None
        try:
            return pickle.loads(self.path.read_bytes())
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError) as error:
            raise BadInput(
                f"{self.path} is no stored state ({error}).", "", "Delete it; the run starts again."
            ) from None

    def keep(self, *state: Any, final: bool = False) -> None:
        """Write the state, if it is time; a finished run needs none."""
        if final:
            self.path.unlink(missing_ok=True)
        elif time.monotonic() - self.last >= EVERY:
            write_bytes(self.path, pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL))
            self.last = time.monotonic()
