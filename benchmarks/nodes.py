"""Fetching on one, two and four Ray nodes: python benchmarks/nodes.py [--shards 24] [--delay 1]

Each node has a network namespace and one CPU of its own, and fetches one shard at a time over eight connections. The
server answers after `delay` seconds, as a far one does, so that connections are what limits a node and not the two
cores that all share here. Needs root and the command ip. One JSON line for each number of nodes: seconds from the first
request to the last, how many times faster than one node, requests and bytes, most and fewest requests of a node, and
files that differ from those of one node.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.nodes import Nodes, prepare, shards

COUNTS = (1, 2, 4)


def measure(count: int, records: int, delay: float, place: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Figures of one cluster, and the files that it wrote."""
    nodes = Nodes(count)
    try:
        nodes.serve(place / "images")
        (place / "images" / "slow").write_text(str(delay))
        nodes.cluster()
        if code := nodes.run(prepare(place / "run", records)).wait(1800):
            raise SystemExit(f"driftline run ended with {code} on {count} nodes")
    finally:
        nodes.close()
    asked = [line.split() for line in (place / "images" / "requests").read_text().splitlines()]
    times = [float(line[0]) for line in asked]
    sizes = {path.name: path.stat().st_size for path in (place / "images").glob("*.jpg")}
    by_node = Counter(line[1] for line in asked)
    found = {
        "seconds": round(max(times) - min(times), 1),
        "requests": len(asked),
        "megabytes": round(sum(sizes.get(line[2].strip("/"), 0) for line in asked) / 1e6, 3),
        "most_of_a_node": max(by_node.values()),
        "fewest_of_a_node": min(by_node.values()),
    }
    return found, shards(place / "run")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=24, help="of 25 photos")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds until the server answers")
    given = parser.parse_args()
    first: tuple[dict[str, Any], dict[str, bytes]] | None = None
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            (place := Path(folder) / str(count)).mkdir()
            found, files = measure(count, 25 * given.shards, given.delay, place)
            first = first or (found, files)
            found["times_faster"] = round(first[0]["seconds"] / found["seconds"], 2)
            found["files_that_differ"] = sum(files.get(name) != first[1].get(name) for name in files | first[1])
            print(json.dumps({"part": f"nodes_{count}", **found}), flush=True)


if __name__ == "__main__":
    main()
