"""Install the oldest versions that pyproject.toml allows into this Python: `python locks/lowest.py`; needs uv and a
package index.

Each dependency of driftline and of its extras at its lower bound, which fails where a bound cannot be had; what those
bring, and the tools of the tests, at the newest versions that go with them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = ("dev", "docs")  # extras of those who change driftline: no user needs them


def bounds() -> dict[str, str]:
    """Dependency → requirement of its lower bound: torch==2.7; marker is kept."""
    extras = (name for name in PROJECT["optional-dependencies"] if name not in TOOLS)
    users = [*PROJECT["dependencies"], *(d for name in extras for d in PROJECT["optional-dependencies"][name])]
    found = {}
    for dependency in users:
        name, bound, marker = re.fullmatch(r"([\w-]+)[^=>;]*([>=]=[\d.*]+)?[^;]*(;.*)?", dependency).groups()
        found[name] = f"{name}{bound.replace('>=', '==') if bound else ''}{marker or ''}"
    return found


def main() -> None:
    """Resolve and install."""
    extras = ",".join(name for name in PROJECT["optional-dependencies"] if name != "docs")
    with tempfile.TemporaryDirectory() as folder:
        lowest = Path(folder) / "lowest.txt"
        lowest.write_text("".join(f"{line}\n" for line in bounds().values()), encoding="utf-8")
        install = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
        subprocess.run([*install, "--constraint", str(lowest), "--editable", f"{ROOT}[{extras}]"], check=True)


if __name__ == "__main__":
    main()
