"""`driftline doctor`: versions, hardware, the compiled kernel, optional parts, models and speed of this machine."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer

from driftline.curate.core.system.calls import cores, memory
from driftline.pipelines import VERSION
from driftline.pipelines.cli.common import Json, command, show

NEEDED = ("torch", "open_clip_torch", "numpy", "pyarrow", "duckdb", "faiss-cpu", "pillow", "pandas")
OPTIONAL = {  # package → what for; the extras of pyproject.toml that users of the command line ask for
    "pillow-heif": ("heic", "HEIC photos of phones"),
    "ray": ("ray", "--engine ray: many machines"),
    "submitit": ("slurm", "--engine slurm: job arrays"),
    "sentence-transformers": ("text", "encoders of texts"),
    "peft": ("lora", "the learner lora"),
    "cryptography": ("sign", "signed ledgers"),
    "river": ("river", "its classifiers as learners"),
    "avalanche-lib": ("avalanche", "its strategies on a stream"),
}
SECONDS = 2.0  # for each of the two measurements of speed
WIDTH, CLASSES, BATCH = 512, 10, 256  # of the linear head: CLIP's vectors, CLEAR-10's classes
doctor_app = typer.Typer()


@command(doctor_app, "doctor", "driftline doctor", panel="Start")
def doctor(as_json: Json = False) -> None:
    """Examine this machine: versions, hardware, parts, speed.

    Takes about ten seconds. What a run would miss here is said by driftline plan.
    """
    facts = examine()
    show(as_json, facts, text(facts))


def examine(seconds: float = SECONDS) -> dict[str, Any]:
    """Everything as plain data. Takes about twice `seconds`, and the import of torch."""
    return {
        "driftline": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": cores(),
        "memory_gb": round(size / 1e9, 1) if (size := memory()) else None,
        "free_disk_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "packages": {name: _version(name) for name in NEEDED},
        "accelerators": _unless_missing(_accelerators) or [],
        "compiler": next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None),
        "kernel": _unless_missing(_kernel),
        "optional": {
            name: {"version": _version(name), "extra": extra, "for": purpose}
            for name, (extra, purpose) in OPTIONAL.items()
        },
        "models": _models(),
        "speed": {
            "images_a_second": _unless_missing(_embedding, seconds),
            "updates_a_second": _unless_missing(_training, seconds),
        },
    }


def _unless_missing(work: Callable[..., Any], *arguments: float) -> Any:
    """What `work` finds; None where a package that it needs is missing, as after a light start."""
    try:
        return work(*arguments)
    except ModuleNotFoundError:
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _accelerators() -> list[dict[str, Any]]:
    """CUDA devices that torch sees."""
    import torch

    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [{"name": device.name, "memory_gb": round(device.total_memory / 1e9, 1)} for device in devices]


def _kernel() -> str:
    """Instructions that the compiled kernel uses here; torch where there is none."""
    from driftline.eval.engine.fused import kind

    return kind()


def _models() -> list[str]:
    """Models on this machine."""
    from driftline.curate.encoders.weights import KNOWN, is_here
    from driftline.pipelines.stages.embed import BUILT_IN

    return [BUILT_IN, *(name for name, model in KNOWN.items() if is_here(model.repository))]


def _rate(work: Callable[[], int], seconds: float) -> float:
    """What `work` gets done in a second; the first call warms up."""
    work()
    done, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        done += work()
    return round(done / spent, 1)


def _embedding(seconds: float) -> float:
    """Images a second of the built-in model on one core."""
    import torch
    from PIL import Image

    from driftline.curate.core.executor.torch_threads import one_thread
    from driftline.curate.encoders import EncoderSpec
    from driftline.pipelines.stages.embed import BUILT_IN, built_in

    encoder = EncoderSpec(model=built_in(BUILT_IN), device="cpu").load()
    with one_thread():
        batch = torch.stack([encoder.prepare(Image.new("RGB", (256, 256)))] * 16)
        return _rate(lambda: len(encoder.images(batch)), seconds)


def _training(seconds: float) -> float:
    """Updates a second of a linear head, with the kernel in use."""
    import numpy as np

    from driftline.eval.learner import Task
    from driftline.eval.learners.finetune import Finetune

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20 * BATCH, WIDTH)).astype(np.float32), np.arange(20 * BATCH, dtype=np.int64) % CLASSES
    learner = Finetune(epochs=1, batch=BATCH)
    learner.begin(Task(CLASSES, (WIDTH,)), rng)

    def once() -> int:
        before = learner.gradient_steps
        learner.learn(x, y)
        return learner.gradient_steps - before

    return _rate(once, seconds)


def text(facts: Mapping[str, Any]) -> str:
    """For people."""
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_gb']} GB)" for gpu in facts["accelerators"])
    memory_gb = facts["memory_gb"] or "unknown"
    lines = [
        f"driftline    {facts['driftline']}, Python {facts['python']}, {facts['system']}",
        f"machine      {facts['cores']} cores, {memory_gb} GB of memory, {facts['free_disk_gb']} GB free here",
        f"GPU          {gpus or 'none that torch sees'}",
        f"kernel       {facts['kernel'] or 'unknown without torch'}"
        + ("" if facts["compiler"] else "; no compiler was found to build it"),
        "packages     " + ", ".join(f"{name} {number or 'missing'}" for name, number in facts["packages"].items()),
    ]
    for name, part in facts["optional"].items():
        state = part["version"] or f"not installed: pip install 'driftline[{part['extra']}]'"
        lines.append(f"optional     {part['for']}: {name} {state}")
    lines.append(f"models       here: {', '.join(facts['models'])}; others: driftline models list")
    images, updates = (f"{n:,.0f}" if n is not None else "unknown" for n in facts["speed"].values())
    lines.append(
        f"speed        one core: {images} images a second (small model), "
        f"{updates} updates a second of a linear head ({BATCH} × {WIDTH})"
    )
    if missing := [name for name, number in facts["packages"].items() if number is None]:
        lines.append(
            f"missing      {', '.join(missing)}: python locks/install.py in a checkout, or pip install driftline"
        )
    return "\n".join(lines)
