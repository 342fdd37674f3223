"""Names and numbers from outside: names → paths that stay in their folder; texts that are numbers from 0."""

import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from driftline.curate.core.errors import BadInput, IntegrityError

LONGEST = 255  # bytes of a name, as on common file systems
FORBIDDEN = re.compile(
    r"[\x00-\x1f\x7f\\]|^[A-Za-z]:"
)  # backslashes separate folders, and letters name drives, on Windows
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # devices on Windows


def fault(name: str) -> str:
    """Why a name is not the plain name of a file; "" if it is.

    >>> fault("a.tar"), fault(".."), fault("nul.txt"), fault("a/b")
    ('', 'it begins with a dot', 'it is a reserved name', 'it names a folder')
    """
    if not name or len(name.encode("utf-8", "replace")) > LONGEST:
        return "it is empty or too long"
    if name.startswith("."):
        return "it begins with a dot"
    if "/" in name:
        return "it names a folder"
    if FORBIDDEN.search(name):
        return "it has a character that file names must not have"
    return "it is a reserved name" if RESERVED.fullmatch(name) else ""


def one_form(text: str) -> str:
    """A text in one Unicode form (NFC): Macs write é as two characters, other systems as one."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def in_either_form(root: Path, name: str) -> Path:
    """The path of `name` below `root`, each part in the Unicode form that is there; as given where nothing is.

    name: as a table has it, which may be of another system than the files.
    """
    path = root / name
    if name.isascii() or os.path.exists(path):  # which answers no for a name that is too long
        return path
    at = root
    for part in Path(name).parts:
        forms = (part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD")))
        at = next((at / form for form in forms if os.path.exists(at / form)), at / part)
    return at


def inside(folder: Path, name: str, source: Path) -> Path:
    """The path of `name`, plain names joined by slashes, in `folder`.

    source: the file that holds the name. Raises IntegrityError for a name that leaves the folder, also by a link, and
    for absolute paths, drive letters and reserved names.
    """
    why = next((why for part in name.split("/") if (why := fault(part))), "")
    path = folder / name
    if not why and not path.resolve().is_relative_to(folder.resolve()):
        why = "it is a link that leaves the folder"
    if why:
        raise IntegrityError(
            f"{source} names the file {name[:200]!r}: {why}.",
            f"Expected a file inside {folder}.",
            "Do not use it unless you trust its origin.",
        )
    return path


def _checked(name: str) -> str:
    if why := fault(name):
        raise ValueError(f"the plain name of a file ({why})")
    return name


PlainName = Annotated[str, AfterValidator(_checked)]
"""the name of a file or feature, without folders"""


def column_once(names: Sequence[str], column: str, what: Any, way_out: str = "") -> str:
    """The name of a column. Raises BadInput unless the table `what`, with columns of these names, has it once."""
    if (times := [*names].count(column)) != 1:
        many = "more than one" if times else "no"
        raise BadInput(f"{what} has {many} column {column!r}.", f"It has {', '.join(names)}.", way_out)
    return column


def is_count(text: str) -> bool:
    """Whether a text is a number from 0 that `int` reads and 64 bits hold. `str.isdigit` is also true of "²", which no
    number is, and of thousands of digits.

    >>> is_count("007"), is_count("²"), is_count("-1"), is_count("9" * 19)
    (True, False, False, False)
    """
    return re.fullmatch("[0-9]{1,18}", text) is not None
