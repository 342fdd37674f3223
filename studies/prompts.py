"""The effect of prompt ensembles, templates, sub-categories and negatives on retrieval, by known labels.

    python studies/usda/build.py --data ../shared/data/usda --out usda
    python studies/prompts.py --usda usda --coco ../shared/data/coco --out prompts

USDA: the small model and the pictures of `studies/usda` (trained on captions of other pictures). COCO: 233 photos, of
which three fifths train another model; that is far too few, and the figures show it. Prints the tables from
which docs/guides/prompts.md has the means.
"""

import argparse
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image, ImageOps

from driftline.curate.core.atomic_io import read_json, write_bytes, write_text
from driftline.curate.core.run_log import RunLog
from driftline.curate.embedding.vector_store import VectorStore
from driftline.curate.encoders import Encoder, EncoderSpec
from driftline.curate.pretrain.small_clip import train
from driftline.curate.retrieval.candidates import query_vectors
from driftline.curate.retrieval.exact_search import search
from driftline.curate.retrieval.settings import Concept
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.state import folder_of

K = 20  # pictures of a bucket that count
SIZE = 64
COCO = ["person", "car", "chair", "bottle", "cup", "dining table", "cat", "dog"]
SPECIES = {
    "apples": "Malus domestica", "peaches": "Prunus persica", "pears": "Pyrus communis", "plums": "Prunus",
    "grapes": "Vitis", "strawberries": "Fragaria", "oranges": "Citrus sinensis", "cherries": "Prunus avium",
}  # fmt: skip


def variants(
    names: Sequence[str], known: str, many: Sequence[str], species: Mapping[str, str]
) -> dict[str, list[Concept]]:
    """The ways to ask. known: a template that the model has seen; many: several."""
    plain = [Concept(name=n, prompts=(n,)) for n in names]
    ensemble = [c.model_copy(update={"templates": tuple(many)}) for c in plain]
    ways = {
        "name alone": plain,
        "one template of training": [c.model_copy(update={"templates": (known,)}) for c in plain],
        "one template never seen": [
            c.model_copy(update={"templates": ("a rendering of the {} in a video game",)}) for c in plain
        ],
        f"ensemble of {len(many)} templates": ensemble,
        "ensemble, others as negatives": [
            c.model_copy(update={"negatives": tuple(n for n in names if n != c.name)}) for c in ensemble
        ],
    }
    if species:
        ways["ensemble + species as sub-category"] = [
            c.model_copy(update={"subcategories": (f"{c.name} ({species[c.name]})",)}) for c in ensemble
        ]
    return ways


def precision(
    folder: Path, encoder: Encoder, concepts: Sequence[Concept], shows: Mapping[str, set[str]]
) -> dict[str, dict[str, tuple[int, int]]]:
    """Concept → bucket → (number right, number retrieved) among the best K. shows: id → what the picture shows."""
    store = VectorStore.open(folder_of(folder, "embed"))
    buckets = {b["index"]: str(b["name"]) for b in read_json(folder_of(folder, "bucket") / "buckets.json")}
    texts, groups = query_vectors(encoder, concepts)
    ranked = search(store, texts, K, list(buckets), groups, ("top",)).ranked["top"]
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    for c, concept in enumerate(concepts):
        for bucket, name in buckets.items():
            ids = store.names(ranked[bucket][c].rows)
            counts.setdefault(concept.name, {})[name] = (sum(concept.name in shows[i] for i in ids), len(ids))
    return counts


def table(ways: Mapping[str, Mapping[str, Mapping[str, tuple[int, int]]]], chance: Mapping[str, float]) -> str:
    """Markdown: one row per way, one column per concept, the mean last."""
    names = list(chance)
    lines = ["| query | " + " | ".join(names) + " | mean |", "|---" * (len(names) + 2) + "|"]
    for way, counts in ways.items():
        shares = [sum(r for r, _ in counts[n].values()) / sum(k for _, k in counts[n].values()) for n in names]
        lines.append(f"| {way} | " + " | ".join(f"{s:.2f}" for s in [*shares, float(np.mean(shares))]) + " |")
    by_chance = [*chance.values(), float(np.mean(list(chance.values())))]
    lines.append("| by chance | " + " | ".join(f"{s:.2f}" for s in by_chance) + " |")
    return "\n".join(lines)


def by_bucket(counts: Mapping[str, Mapping[str, tuple[int, int]]]) -> str:
    """Markdown: one row per concept, one column per bucket."""
    buckets = list(next(iter(counts.values())))
    lines = ["| | " + " | ".join(buckets) + " |", "|---" * (len(buckets) + 1) + "|"]
    for name, cells in counts.items():
        lines.append(f"| {name} | " + " | ".join(f"{cells[b][0] / cells[b][1]:.2f}" for b in buckets) + " |")
    return "\n".join(lines)


def measure_usda(folder: Path) -> None:
    """Tables of the USDA pictures."""
    names = list(SPECIES)
    labels = pq.read_table(sorted((folder_of(folder, "filter") / "table").glob("*.parquet")), columns=["id", "label"])
    shows = {i: {label} for i, label in zip(labels["id"].to_pylist(), labels["label"].to_pylist(), strict=True)}
    many = ["{}", "a watercolor of {}", "a painting of {}"]
    encoder = EncoderSpec(model=str(folder / "model")).load()
    ways = {
        way: precision(folder, encoder, concepts, shows)
        for way, concepts in variants(names, "a watercolor of {}", many, SPECIES).items()
    }
    kept = VectorStore.open(folder_of(folder, "embed")).ids.to_pylist()
    chance = {n: float(np.mean([n in shows[i] for i in kept])) for n in names}
    print(f"## USDA: precision at {K}, {len(kept):,} pictures\n\n{table(ways, chance)}\n")
    print(by_bucket(ways[f"ensemble of {len(many)} templates"]) + "\n")


def measure_coco(data: Path, out: Path, epochs: int) -> None:
    """Train on three fifths of the photos, search the others."""
    rows = list(csv.DictReader((data / "coco_subset.csv").read_text(encoding="utf-8").splitlines()))
    lines = (data / "coco_subset_captions.jsonl").read_text(encoding="utf-8").splitlines()
    records = {r["filename"]: r for r in map(json.loads, lines)}
    training = {f for f in records if hashlib.sha256(f.encode()).digest()[0] % 5 < 3}
    with zipfile.ZipFile(data / "coco_subset_256.zip") as archive:
        for name in archive.namelist():
            if Path(name).name in records:
                write_bytes(out / "images" / Path(name).name, archive.read(name))
    chosen = sorted(training)
    pixels = np.empty((len(chosen), SIZE, SIZE, 3), np.uint8)
    for i, name in enumerate(chosen):
        with Image.open(out / "images" / name) as image:
            pixels[i] = np.asarray(ImageOps.fit(image.convert("RGB"), (SIZE, SIZE), Image.Resampling.BICUBIC))
    texts = [
        [*records[n]["captions"], *(f"a photo of a {c}" for c in records[n].get("categories") or [])] for n in chosen
    ]
    if not (out / "model" / "open_clip_config.json").is_file():
        train(
            pixels, lambda i, rng: texts[i][int(rng.integers(len(texts[i])))], chosen, out / "model",
            RunLog(quiet=True), epochs=epochs, batch=32,
        )  # fmt: skip
    rest = [r for r in rows if r["filename"] not in training and r["coco_categories"]]
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(["id", "filename", "uploaded"])
    writer.writerows([r["coco_id"], r["filename"], r["est_upload_month"] + "-01"] for r in rest)
    write_text(out / "table.csv", sink.getvalue())
    write_text(
        out / "driftline.yaml",
        "collection: {source: delimited, path: table.csv, root: images, "
        "columns: {id: id, path: filename, uploaded: uploaded}}\n"
        "filter: {upload_after_capture: false}\n"
        "buckets: {kind: equal, count: 2, unlabelled: []}\n"
        "embed: {model: model}\n"
        "retrieve: {concepts: [{name: person, prompts: [a person]}]}\n",
    )
    run(Context(out, load(out / "driftline.yaml"), RunLog(quiet=True)), until="embed")
    shows = {r["coco_id"]: set(r["coco_categories"].split(";")) for r in rest}
    encoder = EncoderSpec(model=str(out / "model")).load()
    many = ["a photo of a {}", "a picture of a {}", "there is a {} in the picture"]
    names = [n for n in COCO if sum(n in v for v in shows.values()) >= 5]
    ways = {
        way: precision(out, encoder, concepts, shows)
        for way, concepts in variants(names, "a photo of a {}", many, {}).items()
    }
    chance = {n: float(np.mean([n in v for v in shows.values()])) for n in names}
    print(f"## COCO: precision at {K}, trained on {len(chosen)} photos, searched in {len(shows)}\n")
    print(table(ways, chance) + "\n")
    print(by_bucket(ways[f"ensemble of {len(many)} templates"]))


def main() -> None:
    """Measure the given collections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--usda", type=Path, help="output folder of studies/usda/build.py")
    parser.add_argument("--coco", type=Path, help="folder with coco_subset_256.zip and its tables")
    parser.add_argument("--out", type=Path, default=Path("prompts"), help="folder for the COCO run")
    parser.add_argument("--epochs", type=int, default=60, help="of the COCO model")
    options = parser.parse_args()
    if options.usda:
        measure_usda(options.usda)
    if options.coco:
        measure_coco(options.coco, options.out, options.epochs)


if __name__ == "__main__":
    main()
