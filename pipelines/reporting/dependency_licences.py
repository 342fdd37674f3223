"""What driftline depends on, with versions and licences: `python -m pipelines.reporting.dependency_licences`.

A table in Markdown, or with --json a bill of materials in CycloneDX's form (1.5), of what is installed here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from pipelines import VERSION

NAME = re.compile(r"^[A-Za-z0-9._-]+")


def dependencies(root: str = "driftline") -> list[dict[str, str]]:
    """name, version, licence of everything that `root` needs to run, whoever asks for it; extras are left out."""
    found: dict[str, dict[str, str]] = {}
    waiting = list(_needed(root))
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            told = distribution(name)
        except PackageNotFoundError:  # for another platform or Python
            continue
        found[key] = {"name": name, "version": told.version, "licence": licence(told.metadata)}
        waiting += _needed(name)
    return [found[key] for key in sorted(found)]


def _needed(name: str) -> Iterator[str]:
    for line in distribution(name).requires or []:
        wanted = NAME.match(line)
        if wanted and "extra ==" not in line:
            yield wanted[0]


def licence(metadata: Any) -> str:
    """SPDX expression, else what the classifiers say, else the first line of the field."""
    if told := metadata.get("License-Expression"):
        return str(told)
    classifiers = [c.rpartition(" :: ")[2] for c in metadata.get_all("Classifier") or () if c.startswith("License :: ")]
    named = [c for c in classifiers if c != "OSI Approved"]
    return "; ".join(named) or str(metadata.get("License") or "unknown").strip().partition("\n")[0][:80]


def table(rows: Iterable[Mapping[str, str]]) -> str:
    """Markdown."""
    lines = ["# What driftline depends on", "", "| package | version | licence |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {r['name']} | {r['version']} | {r['licence']} |" for r in rows)])


def materials(rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """A CycloneDX document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "driftline", "version": VERSION}},
        "components": [
            {
                "type": "library",
                "name": r["name"],
                "version": r["version"],
                "purl": f"pkg:pypi/{re.sub(r'[-_.]+', '-', r['name']).lower()}@{r['version']}",
                "licenses": [{"license": {"name": r["licence"]}}],
            }
            for r in rows
        ],
    }


if __name__ == "__main__":
    rows = dependencies()
    print(json.dumps(materials(rows), indent=1) if "--json" in sys.argv[1:] else table(rows))
