"""How long each part of a demo takes."""

from __future__ import annotations

import time


class Parts(dict[str, float]):
    """Name of a part → seconds, in the order in which they were done."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = time.monotonic()

    def done(self, part: str) -> None:
        """A part ends now."""
        self[part] = round(time.monotonic() - self.begun - sum(self.values()), 1)

    def __str__(self) -> str:
        return "seconds: " + ", ".join(f"{name} {spent:.0f}" for name, spent in self.items())
