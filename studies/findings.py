"""The streams of docs/studies/findings.md, from vectors that others published.

    python studies/findings.py --data DATA --out findings

findings/usda: MobileNet vectors of 6,562 watercolours, 11 fruits, six buckets of years, 30 % test samples. Needs
DATA/usda/usda_mnv1_embeddings_u8.npz. findings/intents: sentence vectors of Banking77 in 11 steps of seven new intents
each, so that no class comes back; findings/banking77: the same in one step, in the order of their file;
findings/clinc150: CLINC150's, with the queries of no class (`oos`) as a class. They need DATA/intent/*_minilm.npz.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from driftline.pipelines.reproduce.streams import intents as sentences
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.stream import Stream

CUTS = [1904, 1908, 1911, 1913, 1918]  # years that begin a bucket, as in studies/usda/driftline.yaml
TURNS = 11


def usda(data: Path) -> Stream:
    """One step for each bucket of years; a random 30 % of the pictures are test samples."""
    with np.load(data / "usda" / "usda_mnv1_embeddings_u8.npz", allow_pickle=False) as found:
        labels, y = np.unique(found["label"], return_inverse=True)
        x = found["embedding_u8"].astype(np.float32) * found["scale"]
        step = np.searchsorted(CUTS, found["year"], side="right")
    split = np.where(np.random.default_rng(0).random(len(y)) < 0.3, "test", "train")
    return from_arrays({"x": x, "y": y, "step": step, "split": split, "classes": labels})


def banking77(data: Path) -> Stream:
    """One step, with Banking77's own test samples."""
    return sentences(data, False, "banking77")


def clinc150(data: Path) -> Stream:
    """One step, with CLINC150's own test samples; its validation samples are not used."""
    return sentences(data, False, "clinc150")


def intents(data: Path) -> Stream:
    """Classes in a random order, seven to a step; each step shuffled."""
    rng, stream = np.random.default_rng(0), banking77(data)
    train, test = (stream.steps[0][side] for side in ("train", "test"))
    x, y = np.concatenate([train.x, test.x]), np.concatenate([train.y, test.y])
    split = np.repeat(["train", "test"], [len(train), len(test)])
    turn = np.argsort(rng.permutation(len(stream.classes))) // (len(stream.classes) // TURNS)
    rows = rng.permutation(len(y))
    sides = {"x": x[rows], "y": y[rows], "split": split[rows]}
    return from_arrays(sides | {"step": turn[sides["y"]], "classes": np.array(stream.classes)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("findings"))
    options = parser.parse_args()
    for build in (usda, banking77, clinc150, intents):
        replace(build(options.data), name=build.__name__).save(options.out / build.__name__)
        print(options.out / build.__name__)
