"""Seq-to-Final's table 2 at full budget, in as many visits to a machine as it takes.

    python examples/table_2.py --base CIFAR --out table2 --minutes 25 --device cuda

The paper's five sequences, twelve networks and all methods, small networks first, with the paper's code and grids
(`--preset seq-to-final-code`). A visit goes on where the last one ended, inside a fit if need be, and ends after
`--minutes`; exit code 3: there is more to do. Take the folder `runs` along. When a network and a sequence are done, the
weights of their fits are deleted: each fit keeps its settings, accuracies and time, about 2 kB. In the end table2/page
has the table beside the paper's. CIFAR: a folder of CIFAR-10 with the paper's draws, else `cifar10` is downloaded.
`--means 8` gives the networks `linear` and `mlp`, which take vectors, the means of 8 × 8 fields of each image.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from driftline.curate.core.atomic_io import read_json, write_json
from driftline.eval.finetuning.fit_cache import Store
from driftline.eval.protocols.seq_to_final import published
from driftline.stream_builder.stream import Step, Stream

SEQUENCES = ("CLR", "RCL", "rrr", "TTT", "sss")
NETWORKS = tuple(f"{kind}-{size}" for size in (1, 2, 3, 4) for kind in ("conv", "dense", "res"))
UNFINISHED = 3


def learners() -> list[str]:
    """The table's methods; its `sft` is the best of three schedules."""
    return sorted({learner for _, _, learner in published.table()} | {"sft-linear", "sft-exponential"})


def field_means(stream: Stream, fields: int) -> Stream:
    """Each image as the means of fields × fields parts of each channel: float16 (N, fields² · channels), 0 … 1."""

    def small(step: Step) -> Step:
        splits = {}
        for name, split in step.splits.items():
            x = np.asarray(split.x[:])
            n, height, width, channels = x.shape
            parts = x.reshape(n, fields, height // fields, fields, width // fields, channels)
            splits[name] = replace(split, x=(parts.mean((2, 4)) / 255).reshape(n, -1).astype(np.float16))
        return replace(step, splits=splits)

    oracle = None if stream.oracle is None else small(stream.oracle)
    facts = {**stream.facts, "features": f"means of {fields} x {fields} fields"}
    return replace(stream, steps=[small(step) for step in stream.steps], oracle=oracle, facts=facts)


def driftline(*words: object, seconds: float | None = None) -> None:
    """A command. Raises TimeoutExpired when it is stopped."""
    subprocess.run([sys.executable, "-m", "driftline.pipelines.cli", *map(str, words)], check=True, timeout=seconds)


def visit(given: argparse.Namespace) -> int:
    """Cells of the table until the time is over; returns how many are left."""
    until, runs = time.monotonic() + 60 * given.minutes, given.out / "runs"
    cells = [f"{network} {sequence}" for network in given.networks for sequence in given.sequences]
    done: list[str] = read_json(runs / "cells.json") if (runs / "cells.json").is_file() else []
    for cell in [cell for cell in cells if cell not in done]:
        network, sequence = cell.split()
        stream = given.out / "streams" / sequence.replace(":", "")
        if not stream.is_dir():
            how = ["--base", given.base, "--sequence", sequence, "--fidelity", "paper-code", *given.compose.split()]
            images = stream.with_name(f"{stream.name}-images") if given.means else stream
            driftline("stream", "compose", *how, "--out", images)
            if given.means:
                field_means(Stream.load(images), given.means).save(stream)
        settings = [word for text in (f"network={network}", *given.set) for word in ("--set", text)]
        what = ["--protocol", "seq-to-final", "--preset", "seq-to-final-code", "--learners", ",".join(given.learners)]
        where = ["--device", given.device, "--workers", given.workers, "--out", runs]
        try:
            driftline("eval", stream, *what, *settings, *where, seconds=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            break
        freed = Store(runs / "fits").thin()
        done.append(cell)
        write_json(runs / "cells.json", done)
        print(f"{cell}: done, {freed / 1e6:,.1f} MB of weights deleted", flush=True)
    return len(set(cells) - set(done))


def main(words: Sequence[str] | None = None) -> int:
    """One visit, and the page when all is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="cifar10")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=4, help="processes that share the device")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--sequences", nargs="+", default=SEQUENCES)
    parser.add_argument("--learners", nargs="+", default=learners())
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="more settings of driftline eval")
    parser.add_argument("--compose", default="", metavar="WORDS", help="more words of stream compose, in one argument")
    parser.add_argument("--means", type=int, default=0, metavar="N", help="vectors: means of N x N fields")
    given = parser.parse_args(words)
    if left := visit(given):
        print(f"{left} of {len(given.networks) * len(given.sequences)} cells are left: run the same command again")
        return UNFINISHED
    driftline("report", given.out / "runs", "--out", given.out / "page")
    return 0


if __name__ == "__main__":
    sys.exit(main())
