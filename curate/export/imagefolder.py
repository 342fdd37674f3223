"""Image folders: bucket_BB/CLASS/ID.EXT, for torchvision's `ImageFolder` and Hugging Face `datasets`.

`datasets` takes folders and files called train, test or validation for splits, and leaves out the others without a
word: the README names the splits, which `load_dataset` then follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from driftline.curate.core.atomic_io import write_bytes, write_text
from driftline.curate.core.parsing import rows_of
from driftline.curate.release.format import Release

UNSAFE = re.compile(r"^\.|^_(?=_)|[/\\\0]|%(?=[0-9A-Fa-f]{2})")


def export(release: Release, out: Path) -> dict[str, int]:
    """One folder per bucket and in it one per class, for torchvision's `ImageFolder`."""
    paths = {
        id_: out / f"bucket_{bucket:02d}" / _folder(name) / member
        for id_, bucket, name, member in rows_of(release.table, "id", "bucket", "class", "member")
    }
    for id_, data in release.images():
        write_bytes(paths[id_], data)
    folders = {path.relative_to(out).parts[0] for path in paths.values()}
    write_text(out / "README.md", loading({name: name for name in folders}))
    return {"images": len(paths)}


def loading(splits: Mapping[str, str]) -> str:
    """The README of image folders: its header names the splits for `datasets`. splits: name → folder."""
    names = {re.sub(r"\W", "_", name): folder for name, folder in sorted(splits.items())}
    files = "".join(f"  - split: {name}\n    path: {folder}/**\n" for name, folder in names.items())
    first, folder = next(iter(names.items()), ("SPLIT", "FOLDER"))
    return f"""---
configs:
- config_name: default
  drop_labels: false
  data_files:
{files}---

Load the whole folder, here called FOLDER, so that the header above names the splits:

```python
datasets.load_dataset("FOLDER")["{first}"]
torchvision.datasets.ImageFolder("FOLDER/{folder}")
```

Do not use `load_dataset("imagefolder", data_dir="FOLDER")`: it takes folders and files called train, test or
validation for splits and leaves out the others. Both libraries number classes in order of their folders' names, as
text (10 is before 2): compare names, not numbers. `urllib.parse.unquote` makes a class of a folder's name.
"""


def _folder(name: str) -> str:
    """A class name as a folder name; `urllib.parse.unquote` gives the class name back, so no two classes share a
    folder.

    Separators, a leading dot, two leading underscores (`datasets` skips such folders) and the percent sign of an
    apparent escape are percent-encoded.

    >>> _folder("tea & cake"), _folder("a/b"), _folder(".."), _folder("100%25")
    ('tea & cake', 'a%2Fb', '%2E.', '100%2525')
    """
    return UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
