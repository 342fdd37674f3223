"""Kill `driftline run` with SIGKILL at random moments, resume, and compare every byte with an undisturbed run.

    python benchmarks/kill_resume.py --kills 20                                     about ten minutes on two cores
    PYTHONPATH=.:tests python benchmarks/kill_resume.py --kills 1000 --forked --records 500

With --forked a run starts as a fork of a process that has its imports: three seconds less a kill, and no kill hits an
import. Prints one JSON line. `make test` does the same with fewer kills.
"""

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from driftline.curate.core.run_log import RunLog
from driftline.pipelines.config import presets
from driftline.pipelines.demo.journey import simulate_answers
from driftline.pipelines.demo.world import build, serve


def tree(root: Path) -> dict[str, str]:
    """Relative name → SHA-256 of every file of the stages; `seconds` in done.json is time, not output."""
    found = {}
    for path in sorted(p for p in (root / "stages").rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.name == "done.json":
            data = json.dumps({k: v for k, v in json.loads(data).items() if k != "seconds"}, sort_keys=True).encode()
        found[path.relative_to(root).as_posix()] = hashlib.sha256(data).hexdigest()
    return found


def _marks(run: Path) -> list[str]:
    return [p.read_text(encoding="utf-8") for p in sorted(run.glob("stages/*/done.json"))]


def start_run(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """`driftline run FOLDER` in a process of its own."""
    command = [sys.executable, "-m", "driftline.pipelines.cli", "run", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compare(
    folder: Path, kills: int, seed: int, records: int, run: Callable[[Path], Any] = start_run
) -> dict[str, Any]:
    """Returns kills done, moments (seconds after start), stages hit, and names of files that differ.

    run: starts a run; returns something like `subprocess.Popen`.
    """
    draw = random.Random(seed)
    world = build(folder / "world", records, seed=3, run_log=RunLog(quiet=True))
    values = presets.values("mini")
    values["collection"]["path"] = str(world.metadata)
    values["fetch"] |= {"shard_size": max(20, records // 12), "backoff": 0.0}
    values["buckets"] = {"kind": "equal", "count": 3, "unlabelled": [0]}
    values["retrieve"] |= {"per_class": 10, "depth": 60}
    values["release"] |= {"per_class": 3}
    text = presets.full_text(values, "kill test")
    for name in ("whole", "killed"):
        (folder / name).mkdir()
        (folder / name / "driftline.yaml").write_text(text, encoding="utf-8")
    with serve(world):
        clock = time.monotonic()
        assert run(folder / "whole").wait() == 3, "the run waits for answers"
        simulate_answers(folder / "whole", world)
        shutil.copytree(folder / "whole" / "answers", folder / "killed" / "answers")
        shutil.copy(folder / "whole" / "workers.key", folder / "killed")  # else its pseudonyms are others
        assert run(folder / "whole").wait() == 0
        length = time.monotonic() - clock
        lasted = {e["stage"]: e["seconds"] for e in map(json.loads, _marks(folder / "whole"))}
        moments, hit = [], []
        while len(moments) < kills:
            left = sorted(s for s in lasted if not list((folder / "killed" / "stages").glob(f"*_{s}/done.json")))
            # Every second kill is aimed: fetch takes most of the time, so that blind moments would nearly all hit it.
            target = draw.choice(left or sorted(lasted)) if len(moments) % 2 else None
            clock = time.monotonic()
            job = run(folder / "killed")
            if target is None:
                wait = draw.uniform(0.3, max(1, length - sum(lasted[s] for s in lasted if s not in left)))
            else:
                while job.poll() is None and not list((folder / "killed" / "stages").glob(f"*_{target}/begun.json")):
                    time.sleep(0.002)
                wait = draw.uniform(0, 1.1 * lasted[target])
            try:
                job.wait(wait)
                # It finished before its moment came: begin once more from nothing, so that kills hit real work. With
                # photos of an earlier run in the store it would last a quarter as long, and finish before most moments.
                for part in ("stages", "store"):
                    shutil.rmtree(folder / "killed" / part, ignore_errors=True)
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()
                moments.append(round(time.monotonic() - clock, 1))
                begun = sorted((folder / "killed" / "stages").glob("*/begun.json"))
                hit.append(begun[0].parent.name if begun else "between stages")
        assert run(folder / "killed").wait() == 0
    whole, killed = tree(folder / "whole"), tree(folder / "killed")
    differ = sorted(n for n in whole.keys() | killed.keys() if whole.get(n) != killed.get(n))
    return {"kills": len(moments), "moments": moments, "hit": hit, "files": len(whole), "differ": differ}


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=int, default=900)
    parser.add_argument("--forked", action="store_true", help="start runs as forks (needs PYTHONPATH=.:tests)")
    options = parser.parse_args()
    run: Callable[..., Any] = start_run
    if options.forked:
        from support.console import start

        run = partial(start, "run", "--workers", "1")
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), options.kills, options.seed, options.records, run)
    print(json.dumps(found | {"files_that_differ": len(found["differ"])}))


if __name__ == "__main__":
    main()
