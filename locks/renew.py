"""Renew the locks: `make lock`, or `python locks/renew.py [--constraint FILE]`; needs uv and a package index.

For each supported Python two files for Linux on x86_64. locks/py3.12.txt holds what driftline needs, py3.12-dev.txt
what its development needs besides. locks/light.txt names what works without PyTorch (`install.py --light`).
Each line of the locks is a package, its exact version and the SHA-256 of its wheels for this
platform, or of the source archive of a development tool that has no wheel. No address is written.
A limit in pip's configuration (`constraint`) holds here, too: a machine whose pip accepts no newer torch writes no
newer one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

LOCKS = Path(__file__).resolve().parent
PROJECT = LOCKS.parent / "pyproject.toml"
PYTHONS = {
    "3.11": "3.11.5",
    "3.12": "3.12",
    "3.13": "3.13",
    "3.14": "3.14",
}  # version → oldest patch release (soupsieve)
LIGHT = (
    "aiohttp", "duckdb", "huggingface_hub", "jinja2", "numpy", "orjson", "pandas", "pillow", "pot",
    "pyarrow", "pydantic", "pyyaml", "rich", "scipy", "typer", "urllib3",
)  # fmt: skip
"""dependencies of driftline that `init`, `plan`, `run --until bucket`, `status` and streams of features need"""


def limits() -> list[str]:
    """Constraint files that pip is configured with on this machine."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.constraint"], capture_output=True, text=True
    )
    return [*shown.stdout.split(), *os.environ.get("PIP_CONSTRAINT", "").split()]


def resolve(python: str, constraints: list[str], *options: str, wanted: Path = PROJECT) -> dict[str, str]:
    """Package → `name==version --hash=sha256:…`, as uv resolves pyproject.toml (or a file) for this Python."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        sys.exit("There is no uv. Expected: uv beside this Python or on the path. pip install uv")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pylock.toml"
        command = [
            uv,
            "pip",
            "compile",
            str(wanted),
            "--quiet",
            "--no-config",
            "--output-file",
            str(out),
        ]
        command += ["--format", "pylock.toml", "--python-platform", "x86_64-manylinux_2_28", "--python-version", python]
        for name in constraints:
            command += ["--constraint", name]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"uv finds no versions for Python {python}:\n{done.stderr}")
        packages = tomllib.loads(out.read_text(encoding="utf-8"))["packages"]
    return {package["name"]: line(package) for package in packages}


def line(package: dict) -> str:  # type: ignore[type-arg]
    """One line of a lock from one package of a pylock.toml (PEP 751)."""
    files = [*package.get("wheels", []), *([] if package.get("wheels") else [package["sdist"]])]
    hashes = "".join(f" --hash=sha256:{file['hashes']['sha256']}" for file in files)
    return f"{package['name']}=={package['version']}{hashes}"


def light() -> list[str]:
    """Names of the packages of a light start, on any of the Pythons, with the versions of the locks."""
    with tempfile.NamedTemporaryFile("w", suffix=".in") as few:
        few.write("\n".join(LIGHT))
        few.flush()
        chosen = [resolve(old, [str(LOCKS / f"py{v}.txt")], wanted=Path(few.name)) for v, old in PYTHONS.items()]
    return sorted({name for packages in chosen for name in packages})


def main() -> None:
    """Write locks/py*.txt and locks/light.txt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--constraint", action="append", default=[], help="file of versions to keep to, as pip freeze prints"
    )
    constraints = [*limits(), *parser.parse_args().constraint]
    for python, oldest in PYTHONS.items():
        whole = resolve(oldest, constraints, "--extra", "dev")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as same:
            same.write("".join(f"{entry.partition(' ')[0]}\n" for entry in whole.values()))
            same.flush()
            base = resolve(oldest, [same.name], "--only-binary", ":all:")
        for name, chosen in (("", base), ("-dev", {n: e for n, e in whole.items() if n not in base})):
            path = LOCKS / f"py{python}{name}.txt"
            path.write_text("".join(f"{chosen[n]}\n" for n in sorted(chosen)), encoding="utf-8")
            print(f"{path.name}: {len(chosen)} packages")
    (LOCKS / "light.txt").write_text("".join(f"{name}\n" for name in light()), encoding="utf-8")


if __name__ == "__main__":
    main()
