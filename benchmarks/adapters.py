"""LoRA's samples per CPU second against a bare loop: same network, loss and optimiser, inputs that lie ready.

    python benchmarks/adapters.py            a minute on one core

The bare loops read no labels' range, draw no order, clip or count nothing that the algorithm does not need; tokens and
normalised pixels are made before the clock starts. Networks have random weights. Goal: at least 90 % of their samples
per second [issue 28].
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from driftline.eval.learner import Task
from driftline.eval.learners.lora import Lora

CLASSES, WORDS, EPOCHS = 10, 24, 2
Ways = tuple[Callable[[], Any], Callable[[], Any]]  # ours, the bare loop


def lora(x: Any, y: Any, folder: Path) -> Ways:
    """Adapters of rank 8; what is fed to the network is made once."""
    import torch

    ours, bare = (Lora(model=str(folder), epochs=EPOCHS) for _ in range(2))
    for learner in (ours, bare):
        learner.begin(Task(CLASSES, x.shape[1:]), np.random.default_rng(0))
    inputs, labels = bare._inputs(x), torch.from_numpy(y)

    def loop() -> None:
        optimiser = torch.optim.AdamW(bare.learned(), lr=bare.lr)
        bare.net.train()
        for _ in range(EPOCHS):
            for low in range(0, len(y), bare.batch):
                rows = slice(low, low + bare.batch)
                scores = bare.net(**{name: value[rows] for name, value in inputs.items()}).logits
                loss = torch.nn.functional.cross_entropy(scores, labels[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

    return lambda: ours.learn(x, y), loop


def bert(folder: Path) -> Path:
    """A small transformer of texts, saved."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(1000))]
    size = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    BertForSequenceClassification(BertConfig(vocab_size=len(vocabulary), **size)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    vocab = {word: i for i, word in enumerate(vocabulary)}
    BertTokenizerFast(vocab=vocab, vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def vit(folder: Path, side: int) -> Path:
    """A small transformer of images, saved."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    size = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
    ViTForImageClassification(ViTConfig(image_size=side, patch_size=16, **size)).save_pretrained(folder)
    ViTImageProcessor(size={"height": side, "width": side}).save_pretrained(folder)
    return folder


def main() -> None:
    """Interleave, print shares of medians as JSON."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--side", type=int, default=96, help="of images, pixels")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, options.samples)
    images = rng.integers(0, 256, (options.samples, options.side, options.side, 3), np.uint8)
    texts = np.array([" ".join(f"word{i}" for i in rng.integers(0, 1000, WORDS)) for _ in y])
    with tempfile.TemporaryDirectory() as made:
        ways = {
            "lora_texts": lora(texts, y, bert(Path(made) / "bert")),
            "lora_images": lora(images, y, vit(Path(made) / "vit", options.side)),
        }
        found: dict[str, Any] = {"samples_per_second": {}, "share_of_bare": {}}
        for name, both in ways.items():
            spent: list[list[float]] = [[], []]
            for _ in range(options.repeats + 1):
                for way, times in zip(both, spent, strict=True):
                    clock = time.process_time()
                    way()
                    times.append(time.process_time() - clock)
            ours, bare = (float(np.median(times[1:])) for times in spent)
            found["samples_per_second"][name] = round(EPOCHS * options.samples / ours, 1)
            found["share_of_bare"][name] = round(bare / ours, 3)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
