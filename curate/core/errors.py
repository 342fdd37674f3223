"""Errors that a user can act on: what was given, what was expected, the way out.

Every error that driftline raises on purpose derives from `DriftlineError`; the command line prints it as one
paragraph without a traceback.
"""

import difflib
import errno
import os
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

MANY, NEAREST = 20, 5  # names that a message lists, and how many it lists of more


class DriftlineError(Exception):
    """An error whose text is one clear paragraph of up to three sentences.

    given: what was found, with the file, row or field. expected: what would have been right. way_out: what to do now.

    >>> str(DriftlineError("The file a.tsv is empty.", "Expected one row per photo.", "Download it again."))
    'The file a.tsv is empty. Expected one row per photo. Download it again.'
    """

    lines: ClassVar[str] = "\n"
    """what may end a line inside the text; "" for errors of content from outside, whose names may hold anything"""

    def __init__(self, given: str, expected: str = "", way_out: str = "") -> None:
        super().__init__(given, expected, way_out)
        self.given, self.expected, self.way_out = given, expected, way_out

    def __str__(self) -> str:
        text = without_secrets(" ".join(part for part in (self.given, self.expected, self.way_out) if part))
        # Names from outside may hold escape sequences, which a terminal obeys. Surrogates stand for bytes of names.
        return "".join(c if c.isprintable() or c in self.lines or "\ud800" <= c <= "\udfff" else "\ufffd" for c in text)


class BadInput(DriftlineError):
    """An input file, row or field does not follow its format."""

    lines = ""


class BadConfig(DriftlineError):
    """The configuration has an unknown key, or a value of the wrong type or out of range."""


class BadArray(DriftlineError):
    """An array has the wrong shape, dtype or range; nothing is converted silently."""

    lines = ""


class MissingFile(DriftlineError):
    """A file or folder does not exist."""


class Unreachable(MissingFile):
    """A file is elsewhere, and the server that has it does not give it now; the command line says that it failed."""


class UnknownName(DriftlineError, LookupError):
    """A name is not registered. (Not a KeyError, because that prints its message in quotes.)"""


class BadPlugin(DriftlineError):
    """A plug-in cannot be imported, is not of the registered kind, or has the name of another one."""


class IncompatibleStream(DriftlineError):
    """A stream lacks what a protocol or learner needs; raised before any work."""


class Shortage(DriftlineError):
    """There are fewer images than requested."""


class IntegrityError(DriftlineError):
    """A checksum does not match: a file was changed after it was written."""

    lines = ""


class NotWritten(DriftlineError):
    """A file could not be written whole, as on a full disk; nothing after it is acknowledged."""


class Unfinished(DriftlineError):
    """Work that stopped before its end for a reason outside it, such as an outage; the same command continues it."""


class Unconfirmed(DriftlineError):
    """Questions would cost more than the user allows."""


class Busy(DriftlineError):
    """Another process uses the same folder."""


class Diverged(DriftlineError):
    """Training produced values that are not finite."""


class Crashed(DriftlineError):
    """Code of a user or plug-in raised an unexpected exception."""


def explained(error: OSError | ModuleNotFoundError | UnicodeEncodeError) -> DriftlineError:
    """An error of the operating system as one sentence with the absolute path and the way out; a package that is not
    installed as one with its name; a text that cannot be written.

    >>> str(explained(IsADirectoryError(21, "Is a directory", "/photos")))
    '/photos is a folder. Expected a file.'
    """
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or str(error)).partition(".")[0]
        way_out = "In a checkout: pip install ."
        return DriftlineError(f"This needs the package {name}.", "Expected all packages of driftline here.", way_out)
    if isinstance(error, UnicodeEncodeError):
        return DriftlineError(f"A text has {error.object[error.start]!r}.", "Expected characters that UTF-8 can write.")
    named = error.filename2 or error.filename
    path = "a file" if named is None else shortened(os.path.abspath(os.fsdecode(named)))
    sentences = {
        errno.ENOENT: (f"There is no {path}.", "", "Check its name."),
        errno.EISDIR: (f"{path} is a folder.", "Expected a file."),
        errno.EEXIST: (f"{path} is there already, and is no folder.", "Expected a folder, or a new name."),
        errno.ENOTDIR: (f"{path} leads through a file, or is one.", "Expected a folder."),
        errno.EACCES: (f"You may not open {path}.", "Expected the right to read and write it."),
        errno.EPERM: (f"You may not change {path}.", "Expected the right to write it."),
        errno.EROFS: (f"{path} is on a read-only disk.", "Expected one that can be written."),
        errno.ENAMETOOLONG: (f"The name {path} is too long.", "Expected at most 255 bytes for each part."),
        errno.ENOSPC: (f"The disk is full: {path} cannot be written.", "", "Free some space and run it again."),
        errno.EDQUOT: (f"Your quota is used up: {path} cannot be written.", "", "Free some space and run it again."),
    }
    return DriftlineError(*sentences.get(error.errno or 0, (f"{path}: {error.strerror or error}.",)))


def shortened(text: str, most: int = 300) -> str:
    """A text of a message, without its middle if it is long; bytes that are not UTF-8 as escapes.

    >>> shortened("x" * 9, 5)
    'xx…xx'
    """
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


def reason(error: BaseException, most: int = 200) -> str:
    """What a library says of an error, for a sentence: its first line, printable and not long; else the error's type.

    >>> reason(ValueError("no header\\nat byte 7")), reason(KeyError())
    ('no header', 'KeyError')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "".join(c if c.isprintable() else "\ufffd" for c in (lines or [type(error).__name__])[0])
    return shortened(text.rstrip("."), most)


def not_loaded(model: str, error: Exception) -> DriftlineError:
    """What to raise for a hub name or folder that a library could not load, whatever it raised: BadInput for a folder
    that is here, else Unreachable."""
    problem = f"The model {model} cannot be loaded ({reason(error)})."
    if Path(model).is_dir():
        return BadInput(problem, "Expected its configuration and tensors; code of its own is never run.")
    return Unreachable(problem, "", "Without internet: download it elsewhere and name its folder.")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The way out for an unknown name: the nearest known one, or "".

    >>> did_you_mean("epochz", ["epochs", "lr"])
    "Did you mean 'epochs'?"
    """
    near = difflib.get_close_matches(name, list(names), 1)
    return f"Did you mean {near[0]!r}?" if near else ""


def crashed(error: Exception) -> Crashed:
    """An unexpected exception as one sentence with its type, message, file and line."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f", {Path(frame.filename).name} line {frame.lineno}" for frame in last)
    return Crashed(f"It crashed: {type(error).__name__}: {str(error)[:300]}{place}.")


def available(name: str, names: Iterable[str], listed: str = "") -> str:
    """What an unknown name could have been: all names, or the five nearest of many. listed: where the others are.

    >>> available("c", ["a", "b"]), available("7", map(str, range(30)), "driftline list numbers")
    ('Available: a, b.', 'The nearest of 30: 7, 27, 17, 9, 8. All: driftline list numbers.')
    """
    every = list(names)
    if len(every) <= MANY:
        return f"Available: {', '.join(every) or 'none'}."
    nearest = ", ".join(difflib.get_close_matches(name, every, NEAREST, 0.0))
    return f"The nearest of {len(every)}: {nearest}.{f' All: {listed}.' if listed else ''}"


class Waiting(DriftlineError):
    """Not a failure: the run waits until people have answered (exit code 3)."""


_QUERY = re.compile(r"""([?#])([^\s"'<>\\#?]*)""")
_TOKEN = re.compile(
    r"(?i)([\w.-]*(token|signature|secret|passw|credential|api-?_?key|access-?_?key|session)[\w.-]*"
    r"|x-(amz|goog|ms)-[\w-]+|auth\w*|oauth_\w+|sign?|key|key-pair-id|policy|pwd|hmac|jwt|sid)="
)


def without_secrets(text: str) -> str:
    """A text without what opens doors in its addresses: user and password, and tokens, keys and signatures of queries.
    Everything that is printed, logged, shown on a page or published passes through here.

    >>> without_secrets("https://h/a.jpg?w=9&Token=abc&x=1"), without_secrets("http://u:p@h/a?X-Amz-Signature=1#b")
    ('https://h/a.jpg?w=9&x=1', 'http://…@h/a#b')
    """
    return _QUERY.sub(_without_tokens, re.sub(r"//[^/@\s]*@", "//…@", text))


def _without_tokens(query: re.Match[str]) -> str:
    pairs = re.split("[&;]", query[2])
    harmless = [pair for pair in pairs if not _TOKEN.match(unquote(pair))]
    return query[0] if harmless == pairs else f"{query[1]}{'&'.join(harmless)}" if harmless else ""
