"""What `run.py --full` measured, run by run: history.jsonl, the page docs/reference/ratios.md, and a plot.

    python benchmarks/history.py [--plot history.png]

The page, which docs/conf.py writes, has the newest value of every ratio that has a target, for each processor it was
measured on. Other pages and README get the figures that they mark: between `<!-- speed: BENCHMARK RATIO -->` and
`<!-- /speed -->`. A line of history.jsonl is one benchmark: date, commit, machine (see run.py), benchmark, arguments,
seconds, exit, ratios. In the plot 1 is the target and more is better: ratios with different units share an axis.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FIGURES = ROOT / "docs" / "project" / "performance.md"  # figures with their commands, not of the record
MARK = re.compile(r"(<!-- speed: (\S+) ([^>]+) -->)(.*?)(<!-- /speed -->)", re.DOTALL)
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


def better(value: float, target: str) -> float:
    """Times as good as the target: 1 meets it.

    >>> better(3, "<= 2"), better(3, ">= 2")
    (0.6666666666666666, 1.5)
    """
    sign, limit = target.split()
    pair = (value, float(limit)) if sign == ">=" else (float(limit), value)
    return 1.0 if pair[0] == pair[1] else pair[0] / pair[1] if pair[1] else float("inf")


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
                missed = "" if better(value, target) >= 1 else ", missed"
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


def figure(history: Sequence[Mapping[str, Any]], benchmark: str, ratio: str) -> str:
    """The newest value with two digits and its processor; ValueError if none was recorded.

    A processor that was held to AVX2 stands for an older one and is passed over.
    """
    for line in sorted(history, key=lambda line: line["date"], reverse=True):
        value = line["ratios"].get(ratio) if line["benchmark"] == benchmark else None
        if value is not None and not line["machine"].get("held"):
            name = re.sub(r" Processor|, \d+ cores", "", processor(line["machine"]))
            return f"{value:.{0 if value >= 10 else 1}f} × ({name})"
    raise ValueError(
        f"history.jsonl has no ratio {ratio!r} of benchmark {benchmark!r}. "
        f"Measure it: python benchmarks/run.py {benchmark} --full; or state the speed without a number."
    )


def with_figures(text: str, history: Sequence[Mapping[str, Any]]) -> str:
    """A page whose marked figures are those of the record."""
    return MARK.sub(lambda mark: mark[1] + figure(history, mark[2], mark[3]) + mark[5], text)


def prose() -> list[Path]:
    """README and the pages of docs/ that people write, but the one with other figures."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()  # pages that docs/conf.py writes
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in pages if path != FIGURES and path.relative_to(ROOT).as_posix() not in ignored]


def plot(folder: Path, out: Path) -> None:
    """A line for each ratio and processor over the dates, one panel a benchmark, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    history, targets = read(folder), {name: facts.get("targets", {}) for name, facts in declared(folder).items()}
    names = [name for name in targets if any(line["benchmark"] == name for line in history)]
    figure, axes = plt.subplots(len(names), 1, figsize=(9, 2.2 * len(names)), squeeze=False, layout="constrained")
    for axis, name in zip(axes[:, 0], names, strict=True):
        points: dict[tuple[str, str], list[tuple[str, float]]] = {}
        for line in history:
            for ratio, value in line["ratios"].items() if line["benchmark"] == name else ():
                if value is not None and ratio in targets[name]:
                    key = (ratio, processor(line["machine"]))
                    points.setdefault(key, []).append((line["date"], better(value, targets[name][ratio])))
        for (ratio, cpu), values in points.items():
            axis.plot(*zip(*sorted(values), strict=True), marker="o", label=f"{ratio} · {cpu}")
        axis.axhline(1, color="gray", linewidth=0.8)
        axis.set(title=name, yscale="log", ylabel="times the target")
        axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(out, dpi=100)


def main() -> None:
    """Write the marked figures of all pages; draw if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="a picture of every ratio over time")
    given = parser.parse_args()
    for path in prose():
        text = path.read_text(encoding="utf-8")
        try:
            new = with_figures(text, read(HERE))
        except ValueError as error:
            raise SystemExit(f"{path}: {error}") from None
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path}")
    if given.plot:
        plot(HERE, given.plot)
        print(f"wrote {given.plot}")


if __name__ == "__main__":
    main()
