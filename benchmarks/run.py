"""All benchmarks of this folder, one after the other; every figure, with facts about the machine, in one JSON file.

    python benchmarks/run.py [NAME …] [--full] [--avx2] [--out benchmarks/results.json]

`benchmarks.toml` declares each benchmark: its arguments at quick and at full size, and the target of each ratio. A
benchmark prints JSON objects; the object of one part of several names it ("part"). Targets hold at full size: exit
code 1 if a benchmark fails or, with --full, a target is missed. With --full the ratios are added to history.jsonl, from
which docs/reference/ratios.md is written. A ratio with avx512, bfloat16 or amx in its name is asked only of a
processor that has it. --avx2 holds torch, NumPy, faiss and our kernel to AVX2, as on an older processor.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import history
import torch
from history import HERE, declared
from peers import AS_AVX2, product_rate


def measure(script: Path, arguments: str) -> dict[str, Any]:
    """Run one benchmark in its own process: {"arguments", "seconds", "exit", "figures"}."""
    clock = time.monotonic()
    done = subprocess.run([sys.executable, str(script), *arguments.split()], stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = {}
    for document in documents(done.stdout):
        part = document.pop("part", None)
        figures |= {part: document} if part else document
    seconds = round(time.monotonic() - clock, 1)
    return {"arguments": arguments, "seconds": seconds, "exit": done.returncode, "figures": figures}


def documents(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text; other lines are skipped.

    >>> list(documents('warming up {}\\n{"a": 1}\\n{\\n "b": 2}\\n'))
    [{'a': 1}, {'b': 2}]
    """
    start = 0
    while start < len(text):
        try:
            found, start = json.JSONDecoder().raw_decode(text, start) if text[start] == "{" else (None, start)
        except json.JSONDecodeError:
            found = None
        if found is not None:
            yield found
        start = text.find("\n", start) + 1 or len(text)


def judged(name: str, figures: dict[str, Any], targets: dict[str, str], here: dict[str, Any]) -> list[dict[str, Any]]:
    """One record for each target that this machine is asked: value (None if the benchmark did not print it) and whether
    it is met."""
    records = []
    for ratio, target in targets.items():
        if any(unit in ratio and not here[unit] for unit in ("avx512", "bfloat16", "amx")):
            continue
        value: Any = figures
        for key in ratio.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        met = value is not None and history.meets(value, target)
        records.append({"benchmark": name, "ratio": ratio, "value": value, "target": target, "met": met})
    return records


def gpu() -> str:
    """Name of the first GPU, "" without one."""
    if shutil.which("nvidia-smi") is None:
        return ""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.partition("\n")[0].strip()


def machine(held: bool = False) -> dict[str, Any]:
    """What speed depends on: processor, vector units, cores, rate of products, GPU, library versions. held: to AVX2."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    return {
        "cpu": facts.get("model name", platform.processor()),
        "avx2": "avx2" in flags,
        "avx512": "avx512f" in flags and not held,
        "bfloat16": "avx512_bf16" in flags and not held,
        "amx": "amx_bf16" in flags and not held,
        "held": held,
        "cores": len(os.sched_getaffinity(0)),
        "sgemm_gflops": round(product_rate(torch.float32) / 1e9),  # of one core
        "gpu": gpu(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy")},
    }


def commit() -> str:
    """Of the working copy; "+" if files differ from it, "" outside a repository."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--abbrev=40", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def table(records: list[dict[str, Any]]) -> str:
    """Ratios against their targets, aligned."""
    rows = [("benchmark", "ratio", "measured", "target", "")]
    for r in records:
        verdict = "not measured" if r["value"] is None else "" if r["met"] else "missed"
        rows.append(
            (r["benchmark"], r["ratio"], "–" if r["value"] is None else f"{r['value']:g}", r["target"], verdict)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main() -> int:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--full", action="store_true", help="full sizes instead of quick ones")
    parser.add_argument("--avx2", action="store_true", help="as on a processor that has no more than AVX2")
    parser.add_argument("--out", type=Path, help="default: results.json in the folder")
    parser.add_argument("--folder", type=Path, default=HERE, help="of scripts and benchmarks.toml")
    given = parser.parse_args()
    known = declared(given.folder)
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"unknown benchmark {unknown[0]!r}; available: {', '.join(known)}")
    size = "full" if given.full else "quick"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # it would compile each module again
    if given.avx2:
        os.environ.update(AS_AVX2)
    here = machine(given.avx2)
    measured: dict[str, Any] = {}
    records: list[dict[str, Any]] = []
    skipped = [name for name in known if given.full and known[name].get("gpu") and not gpu()]
    for name in given.names or [name for name in known if name not in skipped]:
        print(f"{name} …", file=sys.stderr, flush=True)
        measured[name] = measure(given.folder / f"{name}.py", known[name].get(size, ""))
        records += judged(name, measured[name]["figures"], known[name].get("targets", {}), here)
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit(), "size": size,
        "machine": here, "benchmarks": measured, "ratios": records,
    }  # fmt: skip
    out = given.out or given.folder / "results.json"
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{size} sizes on {history.processor(here)}, {here['sgemm_gflops']} GFLOP/s a core in float32")
    print(f"{table(records)}\nwrote {out}")
    if given.full:
        history.append(given.folder, result)
    for name in [] if given.names else skipped:
        print(f"{name} was left out: there is no GPU here", file=sys.stderr)
    failed = [name for name, found in measured.items() if found["exit"]]
    for name in failed:
        print(f"{name} failed with exit code {measured[name]['exit']}", file=sys.stderr)
    return int(bool(failed) or (given.full and not all(record["met"] for record in records)))


if __name__ == "__main__":
    sys.exit(main())
