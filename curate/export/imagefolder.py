"""Image folders: bucket_BB/CLASS/ID.EXT, for torchvision's `ImageFolder` and Hugging Face `datasets`.

`datasets` takes folders and files called train, test or validation for splits, and leaves out the others without a
word: the README names the splits, which `load_dataset` then follows.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from driftline.curate.core.atomic_io import write_bytes, write_text
from driftline.curate.core.errors import BadInput
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.escaping import image_folders_readme
from driftline.curate.foreign.names import RESERVED, one_form
from driftline.curate.release.format import Release

UNSAFE = re.compile(r'^\.|^_(?=_)|[\x00-\x1f\x7f/\\<>:"|?*]|[. ]\Z|%(?=[0-9A-Fa-f]{2})')


def export(release: Release, out: Path) -> dict[str, int]:
    """One folder per bucket and in it one per class, for torchvision's `ImageFolder`. Raises BadInput for names that
    are one name on some disks."""
    paths = {
        id_: out / f"bucket_{bucket:02d}" / _folder(name) / member
        for id_, bucket, name, member in rows_of(release.table, "id", "bucket", "class", "member")
    }
    _check_distinct([*release.classes, *(path.relative_to(out).as_posix() for path in paths.values())])
    for id_, data in release.images():
        write_bytes(paths[id_], data)
    folders = {path.relative_to(out).parts[0] for path in paths.values()}
    write_text(out / "README.md", image_folders_readme({name: name for name in folders}))
    return {"images": len(paths)}


def _check_distinct(names: Iterable[str]) -> None:
    spellings: dict[str, str] = {}
    for name in names:
        if (other := spellings.setdefault(one_form(name).lower(), name)) != name:
            raise BadInput(
                f"{other!r} and {name!r} are one name on disks that ignore case or Unicode form (Windows, macOS).",
                "Expected classes and ids that differ in more.",
                "Export the release as huggingface or webdataset.",
            )


def _folder(name: str) -> str:
    """A class name as a folder name; `urllib.parse.unquote` gives the class name back, so no two classes share a
    folder.

    Percent-encoded are separators, a leading dot, two leading underscores (`datasets` skips such folders), the percent
    sign of an apparent escape, and what names on Windows must not have or be.

    >>> _folder("tea & cake"), _folder("a/b"), _folder(".."), _folder("100%25"), _folder("con")
    ('tea & cake', 'a%2Fb', '%2E%2E', '100%2525', '%63on')
    """
    folder = UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
    return f"%{ord(folder[0]):02X}{folder[1:]}" if RESERVED.fullmatch(folder) else folder
