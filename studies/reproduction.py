"""`driftline reproduce` for all four papers, on data that others published and anybody can have.

    python studies/reproduction.py --data DATA --out reproduction [--quick] [--only PAPER]

CLEAR's and CGLM's photos are too large for a study. In place of them stand, under the names that `reproduce` reads:

    clear10/moco-yfcc-b0.npz  MobileNet vectors of 6,562 watercolours (USDA), 11 fruits, six buckets of years
    cglm                      the same vectors in order of their years, each year shuffled; every fifth is a test sample
    cloc                      sentence vectors of Banking77 and CLINC150, in shuffled runs of 20 of one intent, the same

so that the values of these two papers say how the commands work, not whether the papers' values come back. OCRR's
datasets and Seq-to-Final's CIFAR-10 are the papers' own; table 2 and what else takes thousands of hours is left out.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from findings import CUTS

import driftline as dl

ITEMS: dict[Any, str] = {  # what ends within hours on two cores
    "clear": "table-1-linear,table-2,figure-6",
    "near-future": "figure-2,figure-3,figure-4,figure-6,figure-7,figure-8,figure-9,figure-10,figure-11,figure-12",
    "seq-to-final": "table-5,table-7",
    "ocrr": "table-1,sweep,pareto,ablations,sanity-check,scale-study",
}
QUICK = {"clear": "figure-6", "near-future": "figure-2,figure-12", "seq-to-final": "table-7,table-15",
         "ocrr": "sanity-check"}  # fmt: skip


def data_of(data: Path, out: Path) -> None:
    """The folder that `reproduce` reads."""
    (out / "clear10").mkdir(parents=True, exist_ok=True)
    for name in ("cifar10", "cifar100", "intent"):
        if not (out / name).exists():
            (out / name).symlink_to((data / name).resolve())
    rng = np.random.default_rng(0)
    with np.load(data / "usda" / "usda_mnv1_embeddings_u8.npz", allow_pickle=False) as found:
        labels, y = np.unique(found["label"], return_inverse=True)
        x, year = found["embedding_u8"].astype(np.float32) * found["scale"], found["year"]
    step = np.searchsorted(CUTS, year, side="right")
    np.savez(out / "clear10" / "moco-yfcc-b0.npz", x=x, y=y, step=step, classes=labels)
    order = np.lexsort((rng.random(len(y)), year))
    ordered(out / "cglm", x[order], y[order])
    sentences, intents = [], []
    for name in ("banking77", "clinc150"):
        with np.load(data / "intent" / f"{name}_minilm.npz", allow_pickle=False) as found:
            sentences += [found["train_x"], found["test_x"]]
            intents += [np.char.add(f"{name} ", found["labels"][found[f"{side}_y"]]) for side in ("train", "test")]
    _, y = np.unique(np.concatenate(intents), return_inverse=True)
    by_intent = np.lexsort((rng.random(len(y)), y))
    run = np.arange(len(y)) // 20
    order = by_intent[np.lexsort((np.arange(len(y)), rng.permutation(run[-1] + 1)[run]))]
    ordered(out / "cloc", np.concatenate(sentences)[order], y[order])


def ordered(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """EvalOCL's order files, with vectors."""
    (folder / "features").mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", np.arange(len(y)) % 5 > 0), ("test", np.arange(len(y)) % 5 == 0)):
        np.save(folder / "features" / f"{part}.npy", x[rows].astype(np.float32))
        names = np.array([f"{i}.jpg" for i in np.flatnonzero(rows)], "S")
        for what, values in (("labels", y[rows]), ("image_paths", names)):
            with h5py.File(folder / f"{part}_{what}.hdf5", "w") as file:
                file["store_list"] = values


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("reproduction"))
    parser.add_argument("--quick", action="store_true", help="one or two items of each paper, reduced: minutes")
    parser.add_argument("--only", choices=sorted(ITEMS))
    options = parser.parse_args()
    data_of(options.data, options.out / "data")
    for paper in [options.only] if options.only else ITEMS:
        items = (QUICK if options.quick else ITEMS)[paper]
        found = dl.reproduce(paper, data=options.out / "data", out=options.out / paper, only=items, quick=options.quick)
        for item in found["items"]:
            print(json.dumps({"paper": paper} | item))
