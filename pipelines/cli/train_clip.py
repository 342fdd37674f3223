"""`driftline models train` without a recipe: a small CLIP of captioned photos."""

from __future__ import annotations

from pathlib import Path

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Device, log_of, show


def train_clip(
    source: Path, out: Path, epochs: int, size: int, seed: int, device: Device, include_tests: bool, as_json: bool
) -> None:
    """Train a CLIP, and tell the user."""
    from driftline.curate.core.executor.torch_threads import idle_cores
    from driftline.curate.encoders.network import resolve_device
    from driftline.curate.encoders.seen import write_seen
    from driftline.curate.pretrain import small_clip
    from driftline.curate.pretrain.captions import captioned
    from driftline.curate.pretrain.pool import tests_note

    if size % 32:
        raise BadConfig(f"--size is {size}.", "Expected a multiple of 32.")
    place = resolve_device(device)
    pairs = captioned(source, size, include_tests)
    n = len(pairs.texts)
    with idle_cores() as threads:
        log = log_of(None, as_json)
        log.say(tests_note(source, pairs.tests, pairs.dropped))
        write_seen(out, pairs.seen)  # before there is a model that may be used
        log.say(f"train: {n:,} photos, {len(set(pairs.texts)):,} different texts, threads: {threads}")
        batch = min(256, max(8, n // 4))
        losses = small_clip.train(
            pairs.images, pairs.caption, pairs.texts, out, log, seed, epochs=epochs, batch=batch, device=place
        )
    document = {"out": str(out), "images": n, "texts": len(set(pairs.texts)), "loss": losses}
    document |= {"dropped": dict(pairs.dropped), "tests": pairs.tests, "trained_until": pairs.seen.trained_until}
    use = f"--set embed.model={out.absolute()} --set embed.weights=null"
    show(as_json, document, f"{out}: loss {losses[0]:.2f} → {losses[-1]:.2f}\nUse it: {use}")
