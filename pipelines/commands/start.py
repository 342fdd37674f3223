"""`driftline list` and `doctor`: what there is to use, and on which machine."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.system import cores, memory
from driftline.pipelines import VERSION
from driftline.pipelines.actions.action import Shown, action
from driftline.pipelines.actions.listing import KINDS, columns, entries_of, list_models, runs_under

NEEDED = ("torch", "open_clip_torch", "numpy", "pyarrow", "duckdb", "faiss-cpu", "pillow", "pandas")


def _kinds() -> list[str]:
    return [*KINDS, "models"]


@action("driftline list learners", "Start", name="list", completes={"kind": _kinds, "protocol": "protocols"})
def list_registered(kind: str | None = None, *, protocol: str | None = None) -> Shown[list[dict[str, Any]]]:
    """List what is registered, and which package it is from.

    A broken entry of an installed package is listed with the reason; the others work. Every other model of open_clip
    works, too. To measure drift, take a model whose training photos are older than yours: RN50:yfcc15m ends in 2014.

    kind KIND: Default: the kinds; or models.
    protocol NAME: learners: only those that run under it.
    """
    rows: list[dict[str, Any]]
    if protocol is not None and kind != "learners":
        raise BadConfig(f"--protocol was given for {kind}.", "Expected it for learners only.")
    if kind == "models":
        return Shown(*list_models())
    if kind is None:
        rows = [{"name": name, "summary": used, "target": target} for name, (target, used) in KINDS.items()]
        return Shown(rows, columns([(e["name"], e["summary"]) for e in rows]))
    rows = [row for row in entries_of(kind) if protocol is None or runs_under(protocol, row["name"])]
    return Shown(rows, columns([(e["name"], e["summary"], e["origin"]) for e in rows]))


@action("driftline doctor", "Start")
def doctor() -> Shown[dict[str, Any]]:
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
    return Shown(facts, "\n".join(lines))


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _of_torch() -> dict[str, Any]:
    """The GPUs that torch sees, and the instructions that the compiled kernel uses here."""
    import torch

    from driftline.eval.engine.fused import kind

    return {"gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())], "kernel": kind()}
