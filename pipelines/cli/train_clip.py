"""`driftline models train` without a recipe: a small CLIP of captioned photos."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.action import Device, Shown
from driftline.pipelines.cli.common import log_of

BLOCK = 64  # images that are encoded at once


def train_clip(
    source: Path, out: Path, epochs: int, size: int, seed: int, device: Device, include_tests: bool
) -> Shown[Any]:
    """Train a CLIP, and tell the user how well it finds photos that were held out."""
    import numpy as np
    import torch
    from PIL import Image

    from driftline.curate.core.executor import idle_cores
    from driftline.curate.core.seeding import rng_for
    from driftline.curate.encoders.backbone import resolve_device
    from driftline.curate.encoders.clip import Clip
    from driftline.curate.encoders.weights import write_seen
    from driftline.curate.pretrain import small_clip
    from driftline.curate.pretrain.pool import tests_note
    from driftline.curate.pretrain.small_clip import captioned, held_out

    if size % 32:
        raise BadConfig(f"--size is {size}.", "Expected a multiple of 32.")
    place = resolve_device(device)
    pairs = captioned(source, size, include_tests)
    shuffled = rng_for(seed, "held out").permutation(len(pairs.texts))
    number = max(50, len(shuffled) // 10)
    kept, learned = np.sort(shuffled[:number]), np.sort(shuffled[number:])
    texts = [pairs.texts[i] for i in learned]
    n, different = len(texts), len(set(pairs.texts))
    with idle_cores() as threads:
        log = log_of()
        log.say(tests_note(source, pairs.tests, pairs.dropped))
        write_seen(out, pairs.seen)  # before there is a model that may be used
        log.say(f"train: {n:,} photos, {number:,} held out, {different:,} different texts, threads: {threads}")
        losses = small_clip.train(
            pairs.images[learned], lambda i, rng: pairs.caption(int(learned[i]), rng), texts, out, log, seed,
            epochs=epochs, batch=min(256, max(8, n // 4)), device=place,
        )  # fmt: skip
        encoder = Clip(str(out), device=place)
        prepared = [encoder.prepare(Image.fromarray(pairs.images[i])) for i in kept]
        blocks = [encoder.images(torch.stack(prepared[low : low + BLOCK])) for low in range(0, number, BLOCK)]
        words = [pairs.texts[i] for i in kept]
        found = held_out(np.concatenate(blocks), encoder.texts(words), words)
    unknown = unknown_words(source, pairs.texts)
    document = {"out": str(out), "images": n, "texts": different, "loss": losses, "held_out": asdict(found)}
    document |= {"dropped": dict(pairs.dropped), "tests": pairs.tests, "trained_until": pairs.seen.trained_until}
    lines = [
        f"{out}: loss {losses[0]:.2f} → {losses[-1]:.2f}",
        f"Held out: {found.found:.1%} of {found.texts:,} texts find their photo among the {found.first} nearest of "
        f"{found.texts:,}; by chance {found.chance:.1%}.",
        *(f"No text has these words of the concept {name}: {', '.join(lacks)}." for name, lacks in unknown.items()),
        f"Use it: --set embed.model={out.absolute()} --set embed.weights=null"
        if found.is_better
        else "That is no more than chance: do not use it. Give the photos captions that name what they show.",
    ]
    return Shown(document | {"unknown_words": unknown}, "\n".join(lines))


def unknown_words(source: Path, texts: Sequence[str]) -> dict[str, list[str]]:
    """Concept of a run → words of its prompts that none of the texts has."""
    from driftline.curate.pretrain.small_clip import TEMPLATES, WORD
    from driftline.pipelines.config.loader import load
    from driftline.pipelines.run.state import kept_changes

    known = {word for text in (*texts, *TEMPLATES) for word in WORD.findall(text.lower())}
    lacking: dict[str, list[str]] = {}
    for concept in load(source / "driftline.yaml", kept_changes(source)).retrieve.complete_concepts():
        words = dict.fromkeys(WORD.findall(" ".join(text for group in concept.texts() for text in group).lower()))
        if lacks := [word for word in words if word not in known]:
            lacking[concept.name] = lacks
    return lacking
