"""Install the oldest versions that pyproject.toml allows into this Python: `python locks/lowest.py`; needs uv and a
package index.

Each dependency of driftline itself at its lower bound, and what those bring at its newest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = [sys.executable, "-m", "uv", "pip"]


def main() -> None:
    """Resolve and install."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder) / "lowest.txt"
        oldest = ["--resolution", "lowest-direct", "--only-binary", ":all:", "--quiet", "--output-file", str(chosen)]
        subprocess.run([*UV, "compile", str(ROOT / "pyproject.toml"), *oldest], check=True)
        install = [*UV, "install", "--python", sys.executable]
        subprocess.run([*install, "--requirement", str(chosen)], check=True)
        subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)


if __name__ == "__main__":
    main()
