"""The store of a run: photos, misses, vectors and answers by content, so that nothing is paid for twice."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from driftline.curate.core.settings import PLACE, Form, Section

# Reasons that say more of the network, or of a disk, than of the photo.
NETWORK_REASONS = {"timeout", "connection_failed", "no_result", "file_unreadable"}


class StoreSettings(Section):
    """Where photos, failed downloads, vectors and answers are cached by content; no output of a stage depends on it."""

    path: Annotated[str, Field(min_length=1), Form("a path"), PLACE] = "store"
    """folder of the store, relative to this file; several runs on one machine may share it"""
    use: Annotated[bool, PLACE] = True
    """false: keep only people's answers, and request everything else again"""

    def folder(self, root: Path) -> Path:
        """The folder on this machine. root: folder of the run file."""
        return root / os.path.expanduser(self.path)
