"""What a user waits for before anything happens: `driftline --help`, and the first use of each public name.

    python benchmarks/start.py [--rounds N]

Each in a process of its own, in CPU seconds, which other programs disturb less than wall seconds. The median of the
rounds counts, beside the interpreter's own start. One JSON line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HELP = "import sys; sys.argv = ['driftline', '--help']; from driftline.pipelines.cli import main; main()"


def cpu(code: str, rounds: int) -> float:
    """CPU seconds of a process that runs this code."""
    took = []
    for _ in range(rounds):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = os.times()
        took.append(sum(after[2:4]) - sum(before[2:4]))
    return round(statistics.median(took), 3)


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    import driftline

    names = {name: cpu(f"import driftline; driftline.{name}", rounds) for name in driftline.__all__}
    slowest = max(names, key=lambda name: names[name])
    found = {"python": cpu("", rounds), "help": cpu(HELP, rounds), "slowest": slowest, "slowest_name": names[slowest]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
