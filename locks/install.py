"""Install driftline with the tested versions into this Python: `install.py [--dev | --light] [--wheel FILE]`.

--light installs the packages of locks/light.txt only: enough to build a benchmark up to its buckets and to compose
streams, without PyTorch. A command that needs more says so; without --light the rest follows.

The locks are for Linux on x86_64. Two more cases, each said in one sentence, get versions by the ranges of
pyproject.toml: another platform or Python, and a machine where a locked version cannot be had. A PyTorch that is
installed already (a build for CPUs, for example) stays: then the lock is used without PyTorch and what PyTorch brings.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  any Python 3 must get as far as here: no new syntax below
    running = ".".join(map(str, sys.version_info[:2]))
    sys.exit(f"driftline needs Python 3.11 or newer, and this is {running}. Name another: make PYTHON=python3.12 …")

import argparse
import platform
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LOCKS = Path(__file__).resolve().parent
OF_TORCH = ("torch==", "torchvision==", "triton==", "nvidia-", "cuda-")  # PyTorch and what only its CUDA build needs
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
EXACT = ["--require-hashes", "--no-deps", "--no-compile"]  # modules are compiled when they are first imported


def locked(folder: Path, dev: bool, light: bool = False) -> list[str] | None:
    """Lines of the lock of this Python and platform; None if there is no such lock. light: only of locks/light.txt."""
    names = [f"py{sys.version_info.major}.{sys.version_info.minor}{part}.txt" for part in ("", "-dev")[: 1 + dev]]
    fits = (platform.system(), platform.machine(), sys.implementation.name) == ("Linux", "x86_64", "cpython")
    if not fits or not all((folder / name).is_file() for name in names):
        return None
    lines = [line for name in names for line in (folder / name).read_text(encoding="utf-8").splitlines()]
    few = (folder / "light.txt").read_text(encoding="utf-8").split() if light else []
    return [line for line in lines if not light or line.partition("==")[0] in few]


def keeps_torch(lines: list[str]) -> bool:
    """Whether this environment has a PyTorch of another version or build than the locked one."""
    try:
        return f"torch=={version('torch')}" not in {line.partition(" ")[0] for line in lines}
    except PackageNotFoundError:
        return False


def install(lines: list[str]) -> str:
    """Install exactly these lines, PyTorch's group and all others at the same time; "" or the last line of pip's
    error."""
    groups = [[ln for ln in lines if ln.startswith(OF_TORCH)], [ln for ln in lines if not ln.startswith(OF_TORCH)]]
    running = []
    with tempfile.TemporaryDirectory() as folder:
        for i, group in enumerate(groups):
            if group:
                path = Path(folder) / f"{i}.txt"
                path.write_text("\n".join(group), encoding="utf-8")
                command = [*PIP, *EXACT, "--requirement", str(path)]
                running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        errors = [process.communicate()[1] for process in running]
    failed = [error for process, error in zip(running, errors, strict=True) if process.returncode]
    return failed[0].strip().splitlines()[-1] if failed else ""


def main() -> None:
    """The lock where it can be used, then driftline, and by its ranges what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--dev", action="store_true", help="also what tests, types and documentation need")
    size.add_argument("--light", action="store_true", help="only what works without PyTorch, and only by the lock")
    parser.add_argument("--wheel", help="install this wheel; otherwise this checkout, editable")
    options = parser.parse_args()
    started = time.monotonic()
    lines = locked(LOCKS, options.dev, options.light)
    instead = "pip install . brings all packages" if options.light else "versions by the ranges of pyproject.toml"
    problem = ""
    if lines is None:
        problem = (
            f"no lock for Python {platform.python_version()} on {platform.system()} {platform.machine()}: {instead}"
        )
    else:
        if keeps_torch(lines):
            print(f"torch {version('torch')} stays: the lock is used without PyTorch")
            lines = [line for line in lines if not line.startswith(OF_TORCH)]
        error = install(lines)
        if error:
            problem = f"the locked versions cannot be installed here ({error}): {instead}"
    if problem and options.light:
        sys.exit(problem)
    if problem:
        print(problem)
    extra = "[dev]" if options.dev else ""
    what = [options.wheel + extra] if options.wheel else ["--editable", f"{LOCKS.parent}{extra}"]
    code = subprocess.run([*PIP, "--no-compile", *(["--no-deps"] if options.light else []), *what]).returncode
    if code == 0:
        print(f"install {time.monotonic() - started:.0f} s")
    sys.exit(code)


if __name__ == "__main__":
    main()
