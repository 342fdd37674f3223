"""A light start (locks/light.txt): without PyTorch, a benchmark is built up to its buckets; what needs more says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
from support.helpers import album

LOCKS = Path(__file__).resolve().parents[2] / "locks"
HIDING = """
import sys
from importlib.metadata import packages_distributions
light = set(open({light!r}).read().split()) | {{"driftline"}}
of = {{name: {{d.lower().replace("_", "-") for d in owners}} for name, owners in packages_distributions().items()}}
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if path is None and name not in sys.stdlib_module_names and of.get(name, light).isdisjoint(light):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
from driftline.pipelines.cli.app import main
for words in {commands}:
    sys.argv = ["driftline", *words]
    print("$", *words, flush=True)
    try:
        main()
    except SystemExit as end:
        print("exit", end.code or 0, flush=True)
"""


def without_the_rest(here: Path, *commands: str) -> CompletedProcess[str]:
    """Commands in one process that sees only the packages of a light start."""
    code = HIDING.format(light=str(LOCKS / "light.txt"), commands=[words.split() for words in commands])
    return subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True)


def test_a_benchmark_is_built_up_to_its_buckets_and_the_rest_names_what_it_needs(tmp_path: Path) -> None:
    album(tmp_path / "album")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(60, 4)).astype(np.float32), y=np.arange(60) % 2,
             step=np.arange(60) // 20)  # fmt: skip
    done = without_the_rest(
        tmp_path,
        "init mine --preset folder --set collection.path=album --set embed.model=driftline-photo-world",
        "run mine --until bucket",
        "status mine",
        "plan mine",
        "list presets",
        "list networks",
        "list learners",
        "doctor",
        "stream from-arrays own.npz --out own",
        "stream show own",
        "run mine",
        "eval own --protocol clear-iid --learners nearest-mean --out runs",
    )
    parts = done.stdout.split("$ ")[1:]
    assert [part.splitlines()[-1] for part in parts] == [f"exit {int(i in (3, 10, 11))}" for i in range(12)], (
        done.stderr
    )
    assert "ask       pending" in parts[2]
    assert "problem    This needs the package open_clip." in parts[3]
    assert re.search(r"^mlp  .*This needs the package torch\.", parts[5], re.M)
    assert re.search(r"^nearest-mean  ", parts[6].partition("step by step")[0], re.M)
    assert re.search(r"^ft  .*all layers", parts[6].partition("all steps at once, for the last one")[2], re.M)
    assert "torch" in parts[7].rpartition("missing")[2]
    assert done.stderr.count("driftline: This needs the package") == 2
    assert "Traceback" not in done.stderr
