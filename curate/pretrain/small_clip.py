"""Train a small CLIP on captions, in minutes: for collections unlike the data of public models.

The result is a folder for open_clip (`open_clip_config.json` and float16 weights): set `embed.model` to it.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import write_bytes, write_json
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for

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
    import open_clip
    import torch

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
    from torch.nn.functional import cross_entropy

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
    import open_clip
    import torch
    from safetensors.torch import save as to_bytes

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
    write_json(out / "open_clip_config.json", json.loads(json.dumps(document)))
