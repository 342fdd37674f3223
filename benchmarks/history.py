"""What `run.py --full` measured, run by run: history.jsonl, and the page docs/reference/ratios.md.

The page, which docs/conf.py writes, has the newest value of every ratio that has a target, for each processor it was
measured on. A line of history.jsonl is one benchmark: date, commit, machine (see run.py), benchmark, arguments,
seconds, exit, ratios.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
UNITS = {"held": "held to AVX2", "avx512": "AVX-512", "avx2": "AVX2"}  # the first that is true names a processor
INTRODUCTION = """# Ratios

The newest of the record (`benchmarks/history.jsonl`), for each processor. What a benchmark compares, and the reason of
its target: the first lines of its script in `benchmarks/`, and `benchmarks/benchmarks.toml`.
[Performance](../project/performance.md) has more figures.

"""


def declared(folder: Path) -> dict[str, dict[str, Any]]:
    """Name → {"quick": arguments, "full": arguments, "targets": {ratio: target}}."""
    return tomllib.loads((folder / "benchmarks.toml").read_text(encoding="utf-8"))


def read(folder: Path) -> list[dict[str, Any]]:
    """All lines of the folder's history, oldest first; [] if there is none."""
    path = folder / "history.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def append(folder: Path, result: Mapping[str, Any]) -> None:
    """Add a result of run.py: a line for each of its benchmarks."""
    lines = []
    for name, found in result["benchmarks"].items():
        ratios = {r["ratio"]: r["value"] for r in result["ratios"] if r["benchmark"] == name}
        facts = {key: result[key] for key in ("date", "commit", "machine")}
        more = {key: found[key] for key in ("arguments", "seconds", "exit")}
        lines.append(json.dumps({**facts, "benchmark": name, **more, "ratios": ratios}, ensure_ascii=False) + "\n")
    with (folder / "history.jsonl").open("a", encoding="utf-8") as out:
        out.writelines(lines)


def processor(machine: Mapping[str, Any]) -> str:
    """Name, vector units, cores and GPU."""
    units = next((name for fact, name in UNITS.items() if machine.get(fact)), "neither AVX2 nor AVX-512")
    gpu = f", {machine['gpu']}" if machine.get("gpu") else ""
    return f"{machine['cpu'].replace('(R)', '')}, {units}, {machine['cores']} cores{gpu}"


def meets(value: float, target: str) -> bool:
    """Whether a ratio reaches its target.

    >>> meets(3, "<= 2"), meets(3, ">= 2")
    (False, True)
    """
    sign, limit = target.split()
    return value >= float(limit) if sign == ">=" else value <= float(limit)


def rows(folder: Path, history: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Benchmark, ratio, target, value, processor, date: the newest of each ratio and processor."""
    for name, facts in declared(folder).items():
        for ratio, target in facts.get("targets", {}).items():
            newest = {
                processor(line["machine"]): (line["ratios"][ratio], line["date"][:10])
                for line in history
                if line["benchmark"] == name and line["ratios"].get(ratio) is not None
            }
            for cpu, (value, date) in newest.items():
                missed = "" if meets(value, target) else ", missed"
                yield (
                    name,
                    ratio,
                    target,
                    f"{value:.3g}{missed}" if value < 1000 else f"{value:,.0f}{missed}",
                    cpu,
                    date,
                )
            if not newest:
                yield name, ratio, target, "not measured", "–", "–"


def page(folder: Path) -> str:
    """The page in Markdown: a table with a column for each processor, and what was not measured on any."""
    found = list(rows(folder, read(folder)))
    dates: dict[str, list[str]] = {}
    for *_, cpu, date in found:
        dates.setdefault(cpu, []).append(date)
    cpus = sorted(dates.keys() - {"–"})
    heads = [f"{cpu} ({' to '.join(sorted({min(dates[cpu]), max(dates[cpu])}))})" for cpu in cpus]
    parts = [INTRODUCTION]
    parts.append(f"| ratio | target | {' | '.join(heads)} |\n|---|---|{'---|' * len(cpus)}\n")
    for (name, ratio, target), measured in groupby(found, itemgetter(0, 1, 2)):
        values = {row[4]: row[3] for row in measured}
        if "–" not in values:
            parts.append(f"| `{name} {ratio}` | {target} | {' | '.join(values.get(cpu, '–') for cpu in cpus)} |\n")
    if never := sorted({row[0] for row in found if row[4] == "–"}):
        parts.append("\n## Not measured with this record yet\n\n" + ", ".join(f"`{name}`" for name in never) + "\n")
    return "".join(parts)
