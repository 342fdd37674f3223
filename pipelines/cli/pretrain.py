"""`driftline models train --recipe`: an image encoder from unlabelled images of the past."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.cli.action import NOTHING, Device, Shown
from driftline.pipelines.cli.common import log_of

if TYPE_CHECKING:
    from driftline.curate.pretrain import Recipe
    from driftline.curate.pretrain.pool import ImageArray
    from driftline.curate.pretrain.train import Probe


def train_encoder(
    source: Path, out: Path, recipe: str, sets: list[str], bucket: int, probe: Path | None, every: int, seed: int,
    device: Device, include_tests: bool,
) -> Shown[Any]:  # fmt: skip
    """Train an encoder by a recipe, in each process of torchrun, and tell the user; parameters as in `models train`."""
    from driftline.curate.encoders.backbone import resolve_device
    from driftline.curate.pretrain import RECIPES
    from driftline.curate.pretrain.pool import gather, tests_note
    from driftline.curate.pretrain.train import ProcessGroup
    from driftline.curate.pretrain.train import pretrain as train

    rules = _changed(RECIPES[recipe], sets)
    group = ProcessGroup.join(resolve_device(device))
    run_log = log_of(out / "log.jsonl") if group.rank == 0 else RunLog(None, True)
    prober = None if probe is None else _probe(probe, rules.room)
    if (source / "stream.json").is_file():
        pictures = _of_stream(source, bucket, rules.room, include_tests)
    else:
        with group.first_then_others(), run_log.progress("images", None, "images") as tick:
            pictures = gather(source, bucket, rules.room, out, tick, include_tests)
    if group.rank == 0:
        run_log.say(tests_note(source, pictures.tests, pictures.dropped))
    facts = train(pictures, rules, out, seed, device, run_log, probe=prober, probe_every=every)
    if group.rank > 0:
        return NOTHING
    knn = f", k-NN accuracy {100 * facts['probe'][-1][1]:.1f} %" if facts["probe"] else ""
    text = f"{facts['images']:,} images, loss {facts['loss'][-1]:.3f}{knn}, in {out}"
    return Shown({"out": str(out), **facts}, text)


def _changed(recipe: Recipe, sets: list[str]) -> Recipe:
    from driftline.eval.experiment.settings import check_settings
    from driftline.pipelines.config.loader import setting_of

    settings = check_settings(type(recipe), dict(map(setting_of, sets)), "recipe")
    return replace(recipe, **{key: type(getattr(recipe, key))(value) for key, value in settings.items()})


def _of_stream(place: Path, bucket: int, room: int, include_tests: bool) -> ImageArray:
    """Images of the stream's past (its prior), else the unlabelled or the training images of a step.

    Training images that another published split tests are left out, and those linked with a test of this one.
    """
    import numpy as np

    from driftline.curate.core.atomic_io import sha256_bytes
    from driftline.curate.pretrain.pool import ImageArray, Photo, seen_of
    from driftline.curate.release.unlabelled import TEST, UPLOADER
    from driftline.stream_builder.builders.encoded import is_image
    from driftline.stream_builder.stream import Stream

    stream = Stream.load(place)
    if not is_image(stream):
        raise BadConfig(f"{place} has samples of shape {stream.x_shape}.", "Expected images.")
    if bucket >= len(stream.steps):
        raise BadConfig(f"{place} has {len(stream.steps)} steps.", "", "Set --bucket to one of 0 … steps - 1.")
    step, dropped = stream.steps[bucket], {}
    x = stream.prior if bucket == 0 and stream.prior is not None else step.unlabelled
    if x is not None:  # unlabelled images have no times: they are older than the first of the step after them
        later = [step] if x is stream.prior else stream.steps[bucket + 1 : bucket + 2]
        times = [split.time for s in later for split in s.splits.values() if split.time is not None and len(split)]
        until = min((int(time.min()) for time in times), default=None)
    else:
        split, tests = step["train"], [s["test"].group for s in stream.steps if "test" in s.splits]
        if not include_tests:
            elsewhere = np.zeros(len(split), bool) if split.test_in is None else split.test_in.any(1)
            groups = np.concatenate([np.zeros(0, np.int64), *(g for g in tests if g is not None)])
            linked = np.zeros(len(split), bool) if split.group is None else np.isin(split.group, groups) & ~elsewhere
            dropped = {TEST: int(elsewhere.sum()), UPLOADER: int(linked.sum())}
            split = split.take(np.flatnonzero(~(elsewhere | linked)))
        x, until = split.x, None if split.time is None or not len(split) else int(split.time.max())
    x = np.asarray(x)
    if x.shape[1] != room or x.shape[2] != room:
        raise BadConfig(
            f"{place} has images of {x.shape[1]} × {x.shape[2]} pixels.",
            f"Expected {room} × {room}, the size that the recipe reads.",
            f"Make the stream with --features images:{room}, or change the recipe with --set room=…",
        )
    _, first = np.unique([sha256_bytes(image.tobytes()) for image in x], return_index=True)
    if len(first) < len(x):
        dropped, x = dropped | {"copy": len(x) - len(first)}, x[np.sort(first)]
    tests_are = "included" if include_tests else "left out"
    seen = seen_of((Photo("", None, "", until) for _ in range(len(x))), place, tests_are)
    return ImageArray(x, dropped, f"{stream.sha256}-{bucket}-{tests_are}", seen, tests_are)


def _probe(place: Path, room: int) -> Probe:
    import numpy as np

    from driftline.curate.pretrain.train import Probe
    from driftline.stream_builder.stream import Stream

    stream = Stream.load(place)
    train, test = stream.flat("train"), stream.flat("test")
    if stream.x_shape != (room, room, 3):
        raise BadConfig(f"--probe has samples of shape {stream.x_shape}.", f"Expected images of {room} × {room}.")
    return Probe(np.asarray(train.x), train.y, np.asarray(test.x), test.y)
