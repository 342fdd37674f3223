"""The wheel on every Python at hand: `python pythons.py FOLDER [PYTHON…]`. Needs 7 GB of disk, and as much for FOLDER.

FOLDER is filled with the locked wheels of each Python, from the package index; then tests/test_wheel.py makes a fresh
environment with each of them, without network, and removes it. pytest's report has the seconds of each part.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKED = ("3.11", "3.12", "3.13", "3.14")


def works(python: str) -> bool:
    """Whether it runs: pyenv has a stand-in for each version, which refuses if the version is not chosen."""
    return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0


def at_hand() -> list[str]:
    """One interpreter for each locked version: of the search path, of pyenv or of uv."""
    found = []
    home = Path.home()
    for version in LOCKED:
        name = f"python{version}"
        places = [*home.glob(f".pyenv/versions/{version}.*/bin/{name}"),
                  *home.glob(f".local/share/uv/python/cpython-{version}.*/bin/{name}")]  # fmt: skip
        known = [*map(str, sorted(places)), *filter(None, [shutil.which(name)])]
        found += [python for python in known if works(python)][:1]
    return found


def fill(folder: Path, python: str) -> None:
    """Download what the lock of this Python names."""
    begun, before = time.monotonic(), size(folder)
    lock = folder / "locked.txt"
    export = [sys.executable, "-m", "uv", "export", "--quiet", "--frozen", "--no-dev", "--no-emit-project"]
    subprocess.run([*export, "--output-file", str(lock)], cwd=ROOT, check=True)
    download = ["-m", "pip", "download", "--quiet", "--quiet", "--no-cache-dir", "--no-deps", "--require-hashes"]
    subprocess.run([python, *download, "--dest", str(folder), "--requirement", str(lock)], check=True)
    print(f"{python}: {size(folder) - before:,} bytes more in {time.monotonic() - begun:.0f} s", flush=True)


def size(folder: Path) -> int:
    """Bytes of the files of a folder."""
    return sum(path.stat().st_size for path in folder.glob("*")) if folder.is_dir() else 0


def main() -> None:
    """Fill the folder, then test."""
    folder, pythons = Path(sys.argv[1]).resolve(), sys.argv[2:] or at_hand()
    print("\n".join(pythons), flush=True)
    for python in pythons:
        fill(folder, python)
    names = {"DRIFTLINE_PYTHONS": ":".join(pythons), "DRIFTLINE_WHEELS": str(folder)}
    chosen = ["-k", "not this", "-m", "", "-rA", "--durations", "0"]  # not those with the libraries of this environment
    test = [sys.executable, "-m", "pytest", "--timeout", "7200", str(ROOT / "tests" / "test_wheel.py"), *chosen]
    sys.exit(subprocess.run(test, cwd=ROOT, env=os.environ | names).returncode)


if __name__ == "__main__":
    main()
