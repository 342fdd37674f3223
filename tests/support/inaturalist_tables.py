"""A stand-in of iNaturalist's open data: its four tables, as published.

Documents, read on 2026-11-27: github.com/inaturalist/inaturalist-open-data, README.md (addresses and sizes of images),
Metadata/README.md (columns, no quotes, ancestry), Metadata/structure.sql (their order), Metadata/Download/README.md
(names of the files, the archive).
"""

from __future__ import annotations

import gzip
from pathlib import Path

RULES = (
    "cells are separated by tabs",
    "texts are not quoted",
    "each column has its place",
    "ancestors are joined by backslashes, the root first",
)
TABLES = {
    "observations": [
        "observation_uuid\tobserver_id\tlatitude\tlongitude\tpositional_accuracy\ttaxon_id\tquality_grade\tobserved_on\tanomaly_score",
        "o1\t7\t50.5\t8.25\t10\t31\tresearch\t2019-06-01\t1.0",
        "o2\t7\t\t\t\t21\tresearch\t2020-06-01\t",
        "o3\t8\t99\t8\t\t31\tneeds_id\t2020-07-01\t",
        "o4\t8\t1\t1\t\t31\tresearch\t2020-13-01\t",
        "o5\t8\t1\t1\t\t40\tresearch\t\t",
    ],
    "photos": [
        "photo_uuid\tphoto_id\tobservation_uuid\tobserver_id\textension\tlicense\twidth\theight\tposition",
        "u1\t11\to1\t7\tjpg\tCC-BY-NC\t9\t9\t1",
        "u2\t10\to1\t7\tjpeg\tCC0\t9\t9\t0",
        "u3\t12\to2\t7\tpng\tCC-BY\t9\t9\t0",
        "u4\t13\to3\t8\tjpg\tCC-BY\t9\t9\t0",
        "u5\t14\to4\t8\tjpg\tCC-BY\t9\t9\t0",
        "u6\t15\tnowhere\t8\tjpg\tCC-BY\t9\t9\t0",
        "u7\tx\to5\t8\tjpg\tCC-BY\t9\t9\t0",
    ],
    "taxa": [
        "taxon_id\tancestry\trank_level\trank\tname\tactive",
        "1\t\t70\tkingdom\tAnimalia\ttrue",
        "21\t1\t20\tgenus\tApis\ttrue",
        '31\t1\\21\t10\tspecies\tApis "mellifera" d\'Azara\ttrue',
        "40\t1\t10\tspecies\tCanis lupus\ttrue",
    ],
    "observers": ["observer_id\tlogin\tname", "7\tnino\tNino N.", "8\tada\t"],
}  # fmt: skip


def tables(folder: Path, compressed: bool = False, broken: str = "", **changes: list[str] | bytes) -> Path:
    """Write the tables, plain or as .csv.gz. changes: other lines or bytes of a table. broken: one of RULES."""
    assert broken in ("", *RULES)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in {**TABLES, **changes}.items():
        data = lines if isinstance(lines, bytes) else "".join(f"{_line(line, broken)}\n" for line in lines).encode()
        path = folder / f"{name}.csv{'.gz' if compressed else ''}"
        path.write_bytes(gzip.compress(data) if compressed else data)
    return folder


def _line(line: str, broken: str) -> str:
    cells = line.split("\t")
    if broken == "texts are not quoted":
        cells = [f'"{cell}"' for cell in cells]
    if broken == "each column has its place":
        cells = cells[::-1]
    if broken == "ancestors are joined by backslashes, the root first":
        cells = [cell.replace("\\", "/") for cell in cells]
    return ("," if broken == "cells are separated by tabs" else "\t").join(cells)
