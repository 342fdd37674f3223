"""`driftline doctor`: versions, hardware and the compiled kernel of this machine."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer

from driftline.curate.core.system.calls import cores, memory
from driftline.pipelines import VERSION
from driftline.pipelines.cli.common import command, show

NEEDED = ("torch", "open_clip_torch", "numpy", "pyarrow", "duckdb", "faiss-cpu", "pillow", "pandas")
doctor_app = typer.Typer()


@command(doctor_app, "doctor", "driftline doctor", panel="Start")
def doctor() -> None:
    """Examine this machine: versions, hardware, missing packages.

    What a run would miss here is said by driftline plan.
    """
    packages = {name: _version(name) for name in NEEDED}
    facts: dict[str, Any] = {
        "driftline": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": cores(),
        "memory_gb": round(size / 1e9, 1) if (size := memory()) else None,
        "free_disk_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "packages": packages,
    }
    facts |= _of_torch() if packages["torch"] else {"gpus": [], "kernel": None}
    missing = [name for name, number in packages.items() if number is None]
    lines = [f"{name:<13} {value}" for name, value in facts.items() if name != "packages"]
    lines += [f"{name:<13} {number}" for name, number in packages.items() if number is not None]
    lines += [f"missing       {', '.join(missing)}: pip install driftline"] if missing else []
    show(facts, "\n".join(lines))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _of_torch() -> dict[str, Any]:
    """The GPUs that torch sees, and the instructions that the compiled kernel uses here."""
    import torch

    from driftline.eval.engine.fused import kind

    return {"gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())], "kernel": kind()}
