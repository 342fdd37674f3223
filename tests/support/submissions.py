"""Submissions as somebody edits them."""

import hashlib
import json
import zipfile
from pathlib import Path

Members = dict[str, bytes]


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def written(path: Path, members: Members, hashed: bool = True) -> Path:
    """A submission of these members; hashed: the manifest has their hashes, as somebody would write it who cheats."""
    manifest = json.loads(members["manifest.json"])
    if hashed:
        others = {name: data for name, data in members.items() if name != "manifest.json"}
        manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in others.items()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in (members | {"manifest.json": json.dumps(manifest).encode()}).items():
            file.writestr(name, data)
    return path
