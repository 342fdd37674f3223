"""`driftline models train` without a recipe: a small CLIP of captioned photos, or two frozen towers made one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Device, log_of, show


def train_clip(
    source: Path, out: Path, epochs: int, size: int, encoders: Sequence[str], seed: int, device: Device,
    include_tests: bool, as_json: bool,
) -> None:  # fmt: skip
    """Train a model of images and texts, and tell the user. encoders: of images and of texts, frozen; else a CLIP."""
    from driftline.curate.core.executor.torch_threads import idle_cores
    from driftline.curate.encoders import spec_of
    from driftline.curate.encoders.locked import load_encoder
    from driftline.curate.encoders.network import resolve_device
    from driftline.curate.encoders.seen import joint, seen, write_seen
    from driftline.curate.pretrain import locked, small_clip
    from driftline.curate.pretrain.captions import captioned
    from driftline.curate.pretrain.pool import tests_note

    if size % 32:
        raise BadConfig(f"--size is {size}.", "Expected a multiple of 32.")
    place = resolve_device(device)
    towers = [(name, load_encoder(name, place)) for name in encoders]
    pairs = captioned(source, locked.EDGE if towers else size, include_tests)
    specs = [spec_of(name) for name, _ in towers]
    provenance = joint(
        [pairs.seen, *(seen(spec.encoder, spec.model, spec.weights) for spec in specs)], pairs.seen.source
    )
    n = len(pairs.texts)
    with idle_cores() as threads:
        log = log_of(None, as_json)
        log.say(tests_note(source, pairs.tests, pairs.dropped))
        write_seen(out, provenance)  # before there is a model that may be used
        log.say(f"train: {n:,} photos, {len(set(pairs.texts)):,} different texts, threads: {threads}")
        batch = min(256, max(8, n // 4))
        if towers:
            vectors = locked.encoded(towers[0][1], pairs.images)
            both = (towers[0], towers[1])
            losses = locked.train(
                vectors, pairs.caption, pairs.texts, both, out, log, seed=seed, epochs=epochs, batch=batch
            )
        else:
            losses = small_clip.train(
                pairs.images, pairs.caption, pairs.texts, out, log, seed, epochs=epochs, batch=batch, device=place
            )
    document = {"out": str(out), "images": n, "texts": len(set(pairs.texts)), "loss": losses}
    document |= {"dropped": dict(pairs.dropped), "tests": pairs.tests, "trained_until": provenance.trained_until}
    use = f"--set embed.model={out.absolute()} --set embed.weights=null"
    if towers:
        use += " --set embed.encoder=locked"
    show(as_json, document, f"{out}: loss {losses[0]:.2f} → {losses[-1]:.2f}\nUse it: {use}")
