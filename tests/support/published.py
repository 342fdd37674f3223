"""A small exported folder to publish: release.json, README.md, a folder of data, SHA256SUMS."""

import hashlib
import json
from pathlib import Path
from typing import Any

from driftline.curate.publishing import Plan, plan_of

BY = {"name": "CC BY 2.0", "url": "https://creativecommons.org/licenses/by/2.0/", "images": 2}


def exported(folder: Path, data: dict[str, bytes] | None = None, **facts: Any) -> Plan:
    """The plan of a folder with some files; facts: of release.json, besides name and version."""
    release = {"name": "cars", "version": "1.0.0", "images": 2, "classes": ["bus"], "licence_list": [BY]} | facts
    files = {"README.md": b"# cars\n", "release.json": json.dumps(release).encode()}
    files |= data or {"data/a.jpg": b"a" * 9, "data/b.jpg": b"b" * 9}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    (folder / "SHA256SUMS").write_text(sums)
    return plan_of(folder)
