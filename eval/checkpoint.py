"""A run's state on disk, so that a stream that takes hours goes on where it stopped, with the same rows."""

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
    """path: the file. It lies in the run's own folder, whose name is a digest of all settings: a run with others finds
    no state here. The state is a pickle: like code, it is only for those who trust the folder."""

    path: Path
    last: float = field(default_factory=time.monotonic)

    def load(self) -> Any | None:
        """What was kept, or None. Raises BadInput for a file that holds no state."""
        if not self.path.is_file():
            return None
        try:
            return pickle.loads(self.path.read_bytes())
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError) as error:
            raise BadInput(f"{self.path} holds no state ({error}).", "", "Delete it; the run begins anew.") from None

    def keep(self, *state: Any, final: bool = False) -> None:
        """Write the state, if it is time; a finished run needs none."""
        if final:
            self.path.unlink(missing_ok=True)
        elif time.monotonic() - self.last >= EVERY:
            write_bytes(self.path, pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL))
            self.last = time.monotonic()
