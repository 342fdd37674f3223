"""The first minute: `driftline --help`, the first use of each public name, the report of the demo, and from arrays to
the report of four learners (5,000 × 512, 10 steps, with their control).

    python benchmarks/start.py [--rounds N]

Each in a process of its own, after one that leaves Python's byte code, in CPU seconds, which other programs disturb
less: medians of the rounds. One JSON line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from tempfile import TemporaryDirectory

COMMAND = "import sys; sys.argv = 'driftline {}'.split(); from driftline.pipelines.cli import main; main()"
REPORT = "report demo/runs --run demo --stream demo/stream --out page"
ARRAYS = """import numpy as np, driftline as dl
rng, y = np.random.default_rng(0), np.arange(5000) % 10
x = rng.normal(size=(10, 512))[y] + 3 * rng.normal(size=(5000, 512))
stream = dl.from_arrays({"x": x.astype("f4"), "y": y, "time": 31557600 * (30 + np.arange(5000) // 500)})
dl.report(dl.evaluate(stream, "clear-iid", ["nearest-mean", "slda", "finetune", "er"]), "arrays")"""


def cpu(code: str, rounds: int) -> float:
    """CPU seconds of a process that runs this code."""
    took = []
    for _ in range(rounds + 1):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = os.times()
        took.append(sum(after[2:4]) - sum(before[2:4]))
    return round(statistics.median(took[1:]), 3)


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    import driftline

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rounds = parser.parse_args().rounds
    names = {name: cpu(f"import driftline; driftline.{name}", rounds) for name in driftline.__all__}
    slowest = max(names, key=lambda name: names[name])
    found = {"python": cpu("", rounds), "import": cpu("import driftline", rounds), "slowest": slowest}
    found |= {"help": cpu(COMMAND.format("--help"), rounds), "slowest_name": names[slowest]}
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        cpu(COMMAND.format("demo"), 1)
        found |= {"report_of_demo": cpu(COMMAND.format(REPORT), 1), "arrays_to_report": cpu(ARRAYS, 1)}
        print(json.dumps(found))


if __name__ == "__main__":
    main()
