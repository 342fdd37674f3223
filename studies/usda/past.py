"""Does the unlabelled past help? MoCo on the USDA's watercolours before 1904, then every learner on the years after.

    python studies/usda/past.py --data DATA/usda --out past

Bucket 0 (1886–1903, some 1,700 pictures) has no labels. Five labelled buckets follow. Each learner runs twice: with a
network trained from scratch on the pictures, and with a linear layer on the features learned from bucket 0.
"""

import argparse
import csv
import hashlib
import json
import zipfile
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import driftline as dl
from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import time_order
from driftline.curate.pretrain import RECIPES
from driftline.curate.pretrain.pool import ImageArray, fit_image
from driftline.curate.pretrain.train import pretrain
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

FRUITS = ("apples", "peaches", "pears", "plums", "grapes", "strawberries", "oranges", "cherries")
EDGES = (1904, 1908, 1911, 1913, 1918, 1943)  # bucket 0 ends where the first labelled one begins
LEARNERS = ("scratch", "finetune", "cumulative", "joint", "er", "reservoir", "gdumb", "agem", "ewc", "si", "lwf", "cwr")
ONLINE = ("er-online", "ace", "acm", "cosine-fc", "fc-only", "nearest-mean", "majority", "overadapt")


@dataclass(frozen=True)
class Scale:
    """Size of the experiment."""

    edge: int
    """of pictures, in pixels"""
    per_class: int
    """pictures per class and bucket, at most"""
    recipe: dict[str, Any]
    """settings of pre-training that differ from the recipe `small`"""
    network: str
    """network that is trained from scratch"""
    epochs: int
    """per step, from scratch"""
    learners: tuple[str, ...]
    """both on pictures and on features"""
    seeds: int
    """runs on features"""
    picture_seeds: int
    """runs on pictures"""


FULL = Scale(72, 60, {}, "resnet10t", 30, LEARNERS, 5, 1)
QUICK = Scale(
    36, 30,
    {"room": 36, "size": 32, "epochs": 2},
    "resnet10t", 6, ("finetune",), 1, 1,
)  # fmt: skip


def stream_of(data: Path, scale: Scale) -> Stream:
    """Five labelled steps of pictures, seven tenths for training, and the past as `unlabelled`."""
    rows = list(csv.DictReader((data / "usda_metadata.csv").read_text(encoding="utf-8").splitlines()))
    dated = [row for row in rows if row["year"]]
    with zipfile.ZipFile(data / "usda_pomological.zip") as archive:

        def pixels(chosen: list[dict[str, str]]) -> Any:
            return np.stack([fit_image(archive.read(f"images/{row['filename']}"), scale.edge) for row in chosen])

        steps = []
        for t, (low, high) in enumerate(pairwise(EDGES)):
            in_bucket = [row for row in dated if low <= int(row["year"]) < high and row["label"] in FRUITS]
            in_bucket.sort(key=lambda row: hashlib.sha256(row["filename"].encode()).digest())
            count = dict.fromkeys(FRUITS, 0)
            sides: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
            for row in in_bucket:
                if count[row["label"]] < scale.per_class:
                    sides["test" if count[row["label"]] % 10 in (2, 5, 8) else "train"].append(row)
                    count[row["label"]] += 1
            splits = {side: _split(_in_order(part), pixels) for side, part in sides.items()}
            steps.append(Step(t, f"{low}–{high - 1}", splits))
        prior = pixels([row for row in dated if int(row["year"]) < EDGES[0]])
    return Stream("usda", steps, FRUITS, prior)


def _in_order(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """By year; pictures of one year in random order."""
    return [rows[i] for i in time_order([int(row["year"]) for row in rows], [row["filename"] for row in rows])]


def _split(rows: list[dict[str, str]], pixels: Any) -> Split:
    labels = np.array([FRUITS.index(row["label"]) for row in rows], np.int64)
    years = [np.datetime64(row["year"], "s").astype(np.int64) for row in rows]
    return Split(pixels(rows), labels, np.array([row["filename"] for row in rows]), np.array(years, np.int64))


def main() -> None:
    """Pictures, pre-training, features, evaluation, report; finished parts are not repeated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="smaller pictures, network and budget: about a minute")
    options = parser.parse_args()
    out, scale = options.out, QUICK if options.quick else FULL
    run_log = RunLog(out / "log.jsonl")
    saved = out / "pictures"
    stream = Stream.load(saved) if (saved / "stream.json").is_file() else stream_of(options.data, scale).save(saved)
    pictures = ImageArray(np.asarray(stream.unlabelled), {}, stream.sha256)
    recipe = replace(RECIPES["small"], **scale.recipe)
    pretrain(pictures, recipe, out / "moco", run_log=run_log)
    encoder = f"moco-b0=backbone:{recipe.network}:{out / 'moco'}"
    features = dl.encode(saved, encoder=encoder, out=out / "features", device="cpu")["moco-b0"]
    seeds = list(range(scale.seeds))
    evaluate(features, "clear-iid", [*scale.learners, "nearest-mean"], seeds, out=out / "runs")
    evaluate(features, "clear-streaming", [*scale.learners, "nearest-mean"], seeds, out=out / "runs")
    evaluate(features, "near-future", list(ONLINE), seeds[:1], {"lr": 0.1, "batch": 10, "updates": 10}, out / "runs")
    deep = {"net": scale.network, "epochs": scale.epochs, "precision": "bfloat16", "batch": 64}
    evaluate(stream, "clear-iid", list(scale.learners), list(range(scale.picture_seeds)), deep, out / "runs")
    documents = results_of([out / "runs"])
    write(documents, out / "report", "What the past taught: USDA watercolours", streams=[stream, features])
    results = {
        "nearest": nearest(features.flat("train"), features.flat("test")),
        "clear-iid": compared(documents, scale.learners),
        "near-future and retention": agreement(documents),
    }
    write_json(out / "compared.json", results)
    draw(results["clear-iid"], out / "compared.png")
    print(json.dumps(results))


def nearest(train: Any, test: Any, k: int = 20, temperature: float = 0.07) -> float:
    """Accuracy of the k nearest neighbours; a vote weighs exp(cosine / temperature) [Wu et al. 2018, sec. 3.4]."""
    cosines = np.asarray(test.x, np.float32) @ np.asarray(train.x, np.float32).T
    near = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
    votes = np.zeros((len(cosines), int(train.y.max()) + 1))
    weights = np.exp(np.take_along_axis(cosines, near, 1) / temperature)
    np.add.at(votes, (np.arange(len(cosines))[:, None], train.y[near]), weights)
    return float((votes.argmax(1) == test.y).mean())


def compared(documents: list[dict[str, Any]], learners: tuple[str, ...]) -> dict[str, dict[str, list[float]]]:
    """Learner → "pictures" (from scratch) and "features" (of the past): in-domain and next-domain accuracy."""
    accuracies: dict[str, dict[str, list[float]]] = {name: {} for name in learners}
    for document in documents:
        if document["protocol"] != "clear-iid":
            continue
        kind = "features" if "moco-b0" in document["stream"]["name"] else "pictures"
        for result in document["results"]:
            name = result["learner"].partition("(")[0]
            if name in accuracies:
                accuracies[name][kind] = [round(result["scores"][s]["mean"], 4) for s in ("in_domain", "next_domain")]
    return accuracies


def draw(accuracies: dict[str, dict[str, list[float]]], path: Path) -> None:
    """A line for each learner: its next-domain accuracy from scratch and on the features of the past."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    both = [(name, found) for name, found in accuracies.items() if len(found) == 2]
    both.sort(key=lambda one: one[1]["features"][1])
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    for kind, colour, label in (
        ("pictures", "#c2410c", "from scratch"),
        ("features", "#0369a1", "on features of the past"),
    ):
        values = [100 * found[kind][1] for _, found in both]
        axes.scatter(values, range(len(both)), color=colour, label=label, zorder=2)
    ends = [[100 * found[kind][1] for kind in ("pictures", "features")] for _, found in both]
    for row, (low, high) in enumerate(ends):
        axes.plot([low, high], [row, row], color="#a8a29e", zorder=1)
    axes.set_yticks(range(len(both)), [name for name, _ in both])
    axes.set_xlabel("next-domain accuracy, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def agreement(documents: list[dict[str, Any]]) -> float:
    """Spearman's correlation of learners' near-future accuracy and retention."""
    from scipy.stats import spearmanr

    (document,) = [d for d in documents if d["protocol"] == "near-future"]
    pairs = [[r["scores"][s]["mean"] for s in ("near_future", "retention")] for r in document["results"]]
    return round(float(spearmanr(*zip(*pairs, strict=True)).statistic), 3)


if __name__ == "__main__":
    main()
