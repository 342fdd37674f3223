"""Dependencies with versions and licences: `python -m driftline.pipelines.reporting.dependency_licences`.

Prints a Markdown table of the installed packages, or with --json a CycloneDX 1.5 bill of materials.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from driftline.pipelines import VERSION

NAME = re.compile(r"^[A-Za-z0-9._-]+")


def dependencies(root: str = "driftline") -> list[dict[str, str]]:
    """name, version, licence of all direct and indirect dependencies of `root`, without extras."""
    rows: dict[str, dict[str, str]] = {}
    open_names = list(_requirements(root))
    while open_names:
        name = open_names.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in rows:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:  # for another platform or Python
            continue
        rows[key] = {"name": name, "version": package.version, "licence": licence(package.metadata)}
        open_names += _requirements(name)
    return [rows[key] for key in sorted(rows)]


def _requirements(name: str) -> Iterator[str]:
    for line in distribution(name).requires or []:
        match = NAME.match(line)
        if match and "extra ==" not in line:
            yield match[0]


def licence(metadata: Any) -> str:
    """The SPDX expression, else the licences of the classifiers, else the first line of the licence field."""
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [c.rpartition(" :: ")[2] for c in metadata.get_all("Classifier") or () if c.startswith("License :: ")]
    named = [c for c in classifiers if c != "OSI Approved"]
    return "; ".join(named) or str(metadata.get("License") or "unknown").strip().partition("\n")[0][:80]


def table(rows: Iterable[Mapping[str, str]]) -> str:
    """A Markdown table."""
    lines = ["# Dependencies of driftline", "", "| package | version | licence |", "|---|---|---|"]
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
