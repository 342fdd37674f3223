"""The streams of docs/studies/findings.md, from vectors that others published, and the differences in its table.

    python studies/findings.py --data DATA --out findings [--measure] [--usda usda/stream]

findings/usda: MobileNet vectors of 6,562 watercolours, 11 fruits, six buckets of years, 30 % test samples. Needs
DATA/usda/usda_mnv1_embeddings_u8.npz. findings/intents: sentence vectors of Banking77 in 11 steps of seven new intents
each, so that no class comes back; findings/banking77: the same in one step, in the order of their file;
findings/clinc150: CLINC150's, with the queries of no class (`oos`) as a class. They need DATA/intent/*_minilm.npz.

--measure evaluates the learners (half an hour of one core) and prints each difference, a JSON line each: mean over
seeds and half of its 95 % interval by Student's t, in percentage points. --usda: the stream of studies/usda/build.py,
for the differences called Fruit.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from driftline.eval.experiment.presets import expand
from driftline.eval.run import evaluate
from driftline.pipelines.reproduce.streams import intents as sentences
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.stream import Stream

Floats = npt.NDArray[np.float64]
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


@dataclass(frozen=True)
class Study:
    """Learners on one stream, and what is compared."""

    stream: str
    protocol: str
    settings: dict[str, str]
    seeds: int
    differences: tuple[tuple[str, str, str], ...]
    """(score, learner, another; "" for the learner's own score)"""
    extra: tuple[str, ...] = ()
    """learners that no difference names"""


AGED = ("next_domain", "knn")
OF_TURNS = [f"(sampler=mixed,memory=77,batch=20,lr={lr})" for lr in (10, 30)]
STUDIES = {
    "Mobile": Study("usda", "clear-iid", {"splits": "random"}, 5, (
        ("in_domain", "majority", ""), ("accuracy", "ridge", "nearest-mean"), ("forward", "joint", "ranpac"),
        ("in_domain", "nap", "finetune"), ("accuracy", "scratch", "finetune"), ("accuracy", "er", "finetune"),
        ("accuracy", "cumulative", "er"), ("in_domain", "reservoir(alpha=5.0)", "reservoir(alpha=0.5)"),
        ("accuracy", "der", "finetune"), *(("in_domain", "gdumb", name) for name in ("er", "ewc", "agem")),
        *(("accuracy", name, "finetune") for name in ("agem", "ewc", "si")),
        *(("accuracy", "lwf", name) for name in ("ewc", "si")), ("accuracy", "cwr", "ewc"),
        ("forward", "slda", "nearest-mean"), ("forward", "ranpac", "nearest-mean"),
        ("in_domain", "fecam", "nearest-mean"), ("accuracy", "simple-cil", "finetune"),
        *(("accuracy", "der++", name) for name in ("der", "er")), ("accuracy", "icarl", "finetune"),
        *((*AGED[:1], f"knn(half_life={n})", AGED[1]) for n in (3000, 300)),
    ), ("random", "random-features")),
    "Fruit": Study("", "clear-iid", {"splits": "published"}, 5, (
        *((score, one, other) for one, other in (("zero-shot", "text-probe"), ("wise-ft", "text-probe"))
          for score in ("in_domain", "forward")),
        *(("accuracy", *pair) for pair in (("der", "finetune"), ("der++", "der"), ("der++", "er"),
                                           ("simple-cil", "finetune"))),
        ("in_domain", "fecam", "nearest-mean"),
        *(("forward", name, "nearest-mean") for name in ("slda", "ranpac")),
    )),
    "Turns": Study(  # each at its better learning rate
        "intents", "clear-iid", {}, 3, tuple(
        (score, f"ace{OF_TURNS[0]}", f"er-online{OF_TURNS[1]}") for score in ("accuracy", "backward")
    ), (f"ace{OF_TURNS[1]}", f"er-online{OF_TURNS[0]}")),
}  # fmt: skip
RECOVERED = Study("banking77", "ocrr", {"order": "file"}, 5, (
    *(("novel", name, "substrate") for name in ("online-linear", "knn-lm")), ("original", "substrate", "knn-lm"),
    *((score, "bounded-reservoir(capacity=1000)", "agem") for score in ("novel", "original")),
    ("novel", "static-linear", ""), ("novel", "static-knn", ""),
), ("ocrr-table", "ocrr-ablations"))  # fmt: skip
STUDIES |= {"Corrections": RECOVERED, "Corrections of CLINC150": replace(RECOVERED, stream="clinc150")}


def measured(name: str, study: Study, out: Path, usda_stream: Path | None) -> Iterator[dict[str, object]]:
    """Each difference of a study, and the mean scores of all its learners."""
    folder = out / study.stream if study.stream else usda_stream
    if folder is None:
        return
    named = [*study.extra, *(one for _, *pair in study.differences for one in pair if one)]
    learners = expand(named, ())
    results = evaluate(
        Stream.load(folder), study.protocol, learners, seeds=range(study.seeds), settings=study.settings,
        out=out / "runs" / name.replace(" ", "-"), stream_folder=folder,
    )  # fmt: skip
    frame = results.frame()
    values: dict[tuple[str, str], Floats] = {}
    for learner, score, value in frame.sort_values("seed")[["learner", "score", "value"]].itertuples(index=False):
        values[learner, score] = np.append(values.get((learner, score), ()), value)
    for score, one, other in study.differences:
        found = values[one, score] - (values[other, score] if other else 0)
        yield {"study": name, "score": score, "learner": one, "minus": other, **mean_of(found)}
    for (learner, score), found in values.items():
        if not score.startswith("corrections_to"):  # a count
            yield {"study": name, "score": score, "learner": learner, **mean_of(found)}


def mean_of(values: Floats) -> dict[str, float]:
    """Mean and half of its 95 % interval, in percentage points."""
    n = len(values)
    half = float(t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return {"mean": round(100 * float(values.mean()), 1), "half": round(100 * half, 1)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("findings"))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--usda", type=Path)
    options = parser.parse_args()
    for build in (usda, banking77, clinc150, intents):
        replace(build(options.data), name=build.__name__).save(options.out / build.__name__)
        print(options.out / build.__name__)
    for title, study in STUDIES.items() if options.measure else ():
        for line in measured(title, study, options.out, options.usda):
            print(json.dumps(line), flush=True)
