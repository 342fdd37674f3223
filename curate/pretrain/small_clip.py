"""Train a small CLIP on captions, in minutes: for collections unlike the data of public models.

The result is a folder for open_clip (`open_clip_config.json` and float16 weights): set `embed.model` to it.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import open_clip
import pyarrow.parquet as pq
import torch
from safetensors.torch import save as to_bytes
from torch.nn.functional import cross_entropy

from driftline.curate.core.atomic_io import write_bytes, write_json
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import Vectors
from driftline.curate.encoders.weights import Seen
from driftline.curate.pretrain.pool import open_pool, seen_of

Images = npt.NDArray[np.uint8]


def model_config(image_size: int = 64, width: int = 16, embed_dim: int = 64) -> dict[str, Any]:
    """open_clip configuration of a ResNet image tower and a two-layer text tower; about 3 million parameters."""
    return {
        "embed_dim": embed_dim,
        "vision_cfg": {"image_size": image_size, "layers": [1, 1, 1, 1], "width": width, "patch_size": None},
        "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
    }


def train(
    images: Images,
    captions: Callable[[int, np.random.Generator], str],
    keys: Sequence[str],
    out: Path,
    run_log: RunLog,
    seed: int = 0,
    epochs: int = 8,
    batch: int = 256,
    lr: float = 1e-3,
    width: int = 16,
    device: str = "cpu",
) -> list[float]:
    """Train and write the model folder `out`; returns the mean loss of every epoch.

    images: uint8 (N, S, S, 3). captions: index and generator → one of the image's captions. keys: content of each
    image; pairs whose keys have equal words are not negatives of each other (soft targets, as in UniCL). AdamW,
    one-cycle schedule, flips and shifts.
    """
    size = images.shape[1]
    config = model_config(size, width)
    rng = rng_for(seed, "small clip")
    torch.manual_seed(int(rng.integers(2**31)))
    model = open_clip.model.CLIP(**config).to(device)
    tokenizer = open_clip.SimpleTokenizer(context_length=config["text_cfg"]["context_length"])
    mean, std = (
        torch.tensor(v, device=device).view(1, 3, 1, 1)
        for v in (open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05, betas=(0.9, 0.98))
    seen_tokens = torch.zeros(config["text_cfg"]["vocab_size"], dtype=torch.bool)

    steps, labels = len(keys) // batch, torch.tensor(numbered(keys), device=device)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=epochs * steps, pct_start=0.1)
    losses = []
    with run_log.progress("train", epochs * steps, "steps") as tick:
        for epoch in range(epochs):
            order, total = rng.permutation(len(keys)), 0.0
            for start in range(0, steps * batch, batch):
                chosen = order[start : start + batch]
                pixels = torch.from_numpy(flip_and_shift(images[chosen], rng)).to(device)
                x = pixels.permute(0, 3, 1, 2).float().div_(255)
                tokens = tokenizer([captions(int(i), rng) for i in chosen])
                seen_tokens[tokens] = True
                image, text, _ = model((x - mean) / std, tokens.to(device))[:3]
                loss = contrast(image, text, labels[chosen], model.logit_scale.exp())
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                with torch.no_grad():
                    model.logit_scale.clamp_(0, float(np.log(100)))
                total += float(loss.detach())
                tick(1)
            losses.append(total / steps)
            run_log.say(f"epoch {epoch + 1}: loss {losses[-1]:.3f}")
    with torch.no_grad():  # zero the random embeddings of tokens that did not occur
        model.token_embedding.weight[~seen_tokens.to(device)] = 0
    save(model, config, out)
    return losses


def numbered(keys: Sequence[str]) -> list[int]:
    """The number of each text; texts of equal words, as tokenizers of CLIP read them, are one."""
    words = [" ".join(key.lower().split()) for key in keys]
    code = {key: i for i, key in enumerate(sorted(set(words)))}
    return [code[key] for key in words]


def contrast(image: Any, text: Any, labels: Any, scale: Any) -> Any:
    """The loss that makes an image and its text nearer than others. image, text: (B, D) unit vectors. labels: (B,)
    numbers of texts; an image's target is shared equally by all texts like its own."""
    same = (labels[:, None] == labels[None]).float()
    target = same / same.sum(1, keepdim=True)
    logits = scale * image @ text.T
    return (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2


def flip_and_shift(images: Images, rng: np.random.Generator) -> Images:
    """Random horizontal flips and shifts by up to a twelfth of the size."""
    flipped = np.where((rng.random(len(images)) < 0.5)[:, None, None, None], images[:, :, ::-1], images)
    reach = images.shape[1] // 12
    padded = np.pad(flipped, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    out = np.empty_like(images)
    size = images.shape[1]
    for i, (dy, dx) in enumerate(rng.integers(0, 2 * reach + 1, (len(images), 2)).tolist()):
        out[i] = padded[i, dy : dy + size, dx : dx + size]
    return out


def save(model: Any, config: dict[str, Any], out: Path) -> None:
    """Write `open_clip_config.json` and `open_clip_model.safetensors` (float16)."""
    state = {k: (v.half() if v.dtype == torch.float32 else v).contiguous().cpu() for k, v in model.state_dict().items()}
    document = {
        "model_cfg": config,
        "preprocess_cfg": {
            "mean": list(open_clip.OPENAI_DATASET_MEAN),
            "std": list(open_clip.OPENAI_DATASET_STD),
            "interpolation": "bicubic",
            "resize_mode": "shortest",
        },
    }
    write_bytes(out / "open_clip_model.safetensors", to_bytes(state))
    write_json(out / "open_clip_config.json", document)


FEWEST = 200  # different texts: of fewer, a model learns names of photos, and one concept takes every photo
TEXTS = ("caption", "label", "title")  # columns of the collection, the best first
WORD = re.compile(r"[^\W\d_]{3,}")
NO_WORDS = {"img", "image", "dsc", "dscn", "dscf", "photo", "pxl", "mvi", "pict", "picture", "screenshot", "scan", "wa"}
TEMPLATES = ("a photo of {}", "{}", "a picture of {}", "my {}", "this is {}")


@dataclass(frozen=True)
class Captioned:
    """N images, each with a text."""

    images: npt.NDArray[np.uint8]
    """(N, size, size, 3)"""
    texts: list[str]
    """(N,) caption, label or title; photos of equal text are not negatives of each other"""
    dropped: Mapping[str, int]
    """reason → photos with a text that were left out"""
    seen: Seen
    """what a model that learns from them has seen"""
    tests: str
    """"left out" (those of every split), "included" or "unknown\""""

    def caption(self, i: int, rng: np.random.Generator) -> str:
        """One of the captions of image `i`: its text in a random template."""
        return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(self.texts[i])


def captioned(source: Path, size: int, include_tests: bool = False) -> Captioned:
    """The images with a text, without the tests of every split (see `open_pool`). source: a run whose fetch is done. A
    text is the caption, else the label, else the words of the title.

    Exact copies of an image are dropped. Raises MissingFile, and BadInput for fewer than FEWEST different texts.
    """
    if source.is_dir() and not list(source.glob("stages/*_fetch/index.parquet")):
        raise MissingFile(
            f"{source} is no run with fetched photos.", "", f"First: driftline run {source} --until fetch"
        )
    pool = open_pool(source, None, include_tests)
    texts = _texts(source)
    _check_texts(source, texts.values())  # before the photos are read
    photos = list(pool.images(size, texts.keys()))
    used = [photo for photo, _ in photos]
    _check_texts(source, [texts[photo.id] for photo in used], pool.dropped.total())
    seen = seen_of(used, source, pool.tests)
    images = np.stack([pixels for _, pixels in photos])
    return Captioned(images, [texts[photo.id] for photo in used], pool.dropped, seen, pool.tests)


def _check_texts(source: Path, texts: Collection[str], left_out: int = 0) -> None:
    """left_out: photos that are not learned, because of the tests."""
    different = len({" ".join(text.lower().split()) for text in texts})
    if different < FEWEST:
        without = f"; {left_out:,} photos were left out because of the tests" if left_out else ""
        raise BadInput(
            f"{source} has {different:,} different captions, labels or titles of words{without}.",
            f"Expected at least {FEWEST}, better thousands: with fewer, one concept takes every photo.",
            "Give the photos captions (collection.columns), or copy a model from a machine with internet: driftline "
            "models get RN50:yfcc15m --out rn50.",
        )


def _texts(source: Path) -> dict[str, str]:
    parts = sorted(source.glob("stages/*_ingest/table/*.parquet"))
    rows = pq.read_table(parts, columns=["id", *TEXTS]).to_pylist() if parts else []
    return {row["id"]: text for row in rows if (text := text_of(row))}


def text_of(row: Mapping[str, Any]) -> str:
    """The caption, else the label, else the words of the title; "" without one.

    >>> text_of({"caption": None, "label": None, "title": "IMG_2012 Red-bus"}), text_of({"title": "IMG_0042"})
    ('Red bus', '')
    """
    for column in TEXTS[:2]:
        if row.get(column):
            return str(row[column]).replace("_", " ")
    words = WORD.findall(row.get("title") or "")
    return " ".join(word for word in words if word.lower() not in NO_WORDS)


@dataclass(frozen=True)
class HeldOut:
    """How well a model finds photos that it has not learned."""

    texts: int
    """texts, and photos among which each was looked for"""
    first: int
    """a text finds its photo if that, or one of equal text, is among so many nearest ones"""
    found: float
    """share of the texts that do"""
    chance: float
    """the share in a random order"""

    @property
    def is_better(self) -> bool:
        """Whether that is more than chance, by two standard errors."""
        return self.found - self.chance > 2 * float(np.sqrt(self.chance * (1 - self.chance) / self.texts))


def held_out(images: Vectors, texts: Vectors, words: Sequence[str]) -> HeldOut:
    """images, texts: (N, D) unit vectors of photos and of their texts. words: (N,) these texts."""
    n, first = len(words), max(1, len(words) // 20)
    equal = np.array(words)[:, None] == np.array(words)[None]
    nearest = np.argsort(-(texts @ images.T), axis=1, kind="stable")[:, :first]
    missed = np.prod([(n - equal.sum(1) - i).clip(0) / (n - i) for i in range(first)], axis=0)
    return HeldOut(n, first, float(np.take_along_axis(equal, nearest, 1).any(1).mean()), float(1 - missed.mean()))
