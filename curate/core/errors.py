"""Errors that a user can act on: what was given, what was expected, what to do.

Every error that driftline raises on purpose derives from `DriftlineError`; the command line shows its text
as one paragraph and no traceback.
"""

from __future__ import annotations

import traceback
from pathlib import Path


class DriftlineError(Exception):
    """One clear paragraph.

    given: what was found, naming the file, row or field. expected: what would have been right.
    way_out: what to do now.

    >>> str(DriftlineError("The file a.tsv is empty.", "Expected one row a photo.", "Download it again."))
    'The file a.tsv is empty. Expected one row a photo. Download it again.'
    """

    def __init__(self, given: str, expected: str = "", way_out: str = "") -> None:
        super().__init__(given, expected, way_out)
        self.given, self.expected, self.way_out = given, expected, way_out

    def __str__(self) -> str:
        return " ".join(part for part in (self.given, self.expected, self.way_out) if part)


class BadInput(DriftlineError):
    """A file, row or field from outside is not what its format says."""


class BadConfig(DriftlineError):
    """The configuration names an unknown key, or a value of the wrong kind."""


class BadArray(DriftlineError):
    """An array of the wrong shape, dtype or range; nothing is guessed."""


class MissingFile(DriftlineError):
    """A file or folder that was named is not there."""


class UnknownName(DriftlineError, LookupError):
    """A name that is not registered. (Not KeyError: that prints its message in quotes.)"""


class BadPlugin(DriftlineError):
    """Code of another package cannot be imported, is not what it was registered as, or shares a name."""


class IncompatibleStream(DriftlineError):
    """A stream lacks what a protocol or learner needs; found before any work."""


class Shortage(DriftlineError):
    """Fewer images than asked for."""


class IntegrityError(DriftlineError):
    """A checksum does not match: the file was changed after it was written."""


class Busy(DriftlineError):
    """Another process works on the same folder."""


class Diverged(DriftlineError):
    """Training produced numbers that are not finite."""


class Crashed(DriftlineError):
    """Code of somebody's own raised what nobody foresaw."""


def crashed(error: Exception) -> Crashed:
    """The error as a sentence that tells where it happened."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f", {Path(frame.filename).name} line {frame.lineno}" for frame in last)
    return Crashed(f"It crashed: {type(error).__name__}: {str(error)[:300]}{where}.")


class Waiting(DriftlineError):
    """Not a failure: the journey stops here until people have answered (exit code 0)."""
