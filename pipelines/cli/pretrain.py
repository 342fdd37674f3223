"""`driftline pretrain`: features from unlabelled images of the past."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.cli.common import Device, IncludeTests, Json, Sets, command, log_of, show
from driftline.pipelines.cli.listing import named

if TYPE_CHECKING:
    from driftline.curate.pretrain import Recipe
    from driftline.curate.pretrain.gather import ImageArray
    from driftline.curate.pretrain.probe import Probe

pretrain_app = typer.Typer()


@command(pretrain_app, "pretrain", "driftline pretrain photos2024 --recipe small --out moco", panel="Stream")
def pretrain(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A run, a release, a stream of images, or a folder of images."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for weights.safetensors and pretrain.json.")],
    bucket: Annotated[
        int, typer.Option("--bucket", min=0, help="Number of the bucket; of a stream, of the step (0: its past).")
    ] = 0,
    recipe: Annotated[str, named("--recipe", "recipes", "Hyper-parameters")] = "moco-v2",
    sets: Sets = None,
    probe: Annotated[
        Path | None,
        typer.Option("--probe", help="Stream of images (edge: the recipe's room): k-NN accuracy during training."),
    ] = None,
    every: Annotated[int, typer.Option("--probe-every", min=1, help="Epochs between two probes.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0,
    device: Annotated[Device, typer.Option("--device", help="Where the network is trained.")] = "auto",
    include_tests: IncludeTests = False,
    as_json: Json = False,
) -> None:
    """Learn features from images without labels (MoCo v2).

    Test images of every split, photos by their uploaders and near copies of them are left out and counted.
    For several processes: torchrun -m driftline.pipelines.cli pretrain …
    """
    from driftline.curate.encoders.network import resolve_device
    from driftline.curate.pretrain import RECIPES
    from driftline.curate.pretrain.gather import gather
    from driftline.curate.pretrain.pool import tests_note
    from driftline.curate.pretrain.train import ProcessGroup
    from driftline.curate.pretrain.train import pretrain as train

    rules = _changed(RECIPES[recipe], sets or [])
    group = ProcessGroup.join(resolve_device(device))
    run_log = log_of(out / "log.jsonl", as_json) if group.rank == 0 else RunLog(None, True)
    prober = None if probe is None else _probe(probe, rules.room)
    if (source / "stream.json").is_file():
        pictures = _of_stream(source, bucket, rules.room, include_tests)
    else:
        with group.first_then_others(), run_log.progress("images", None, "images") as tick:
            pictures = gather(source, bucket, rules.room, out, tick, include_tests)
    if group.rank == 0:
        run_log.say(tests_note(source, pictures.tests, pictures.dropped))
    facts = train(pictures, rules, out, seed, device, run_log, probe=prober, probe_every=every)
    if group.rank == 0:
        knn = f", k-NN accuracy {100 * facts['probe'][-1][1]:.1f} %" if facts["probe"] else ""
        show(as_json, facts, f"pretrain: {facts['images']:,} images, loss {facts['loss'][-1]:.3f}{knn}, in {out}")


def _changed(recipe: Recipe, sets: list[str]) -> Recipe:
    from driftline.pipelines.config.loader import setting_of

    types = {f.name: f.type for f in fields(recipe)}
    changes: dict[str, Any] = {}
    for key, value in map(setting_of, sets):
        if key not in types:
            raise BadConfig(f"Unknown setting {key!r} of a recipe.", f"Available: {', '.join(types)}.")
        old = getattr(recipe, key)
        if isinstance(value, bool) or not isinstance(value, (int, float) if isinstance(old, float) else type(old)):
            raise BadConfig(f"{key} is {value!r}.", f"Expected a {type(old).__name__}, as in {key}={old!r}.")
        changes[key] = float(value) if isinstance(old, float) else value
    return replace(recipe, **changes)


def _of_stream(place: Path, bucket: int, room: int, include_tests: bool) -> ImageArray:
    """Images of the stream's past (its prior), else the unlabelled or the training images of a step.

    Training images that another published split tests are left out, and those linked with a test of this one.
    """
    import numpy as np

    from driftline.curate.core.atomic_io import sha256_bytes
    from driftline.curate.pretrain.gather import ImageArray
    from driftline.curate.pretrain.pool import Photo, seen_of
    from driftline.curate.release.pool import TEST, UPLOADER
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
            f"Expected {room} × {room}, the room of the recipe.",
            f"Make the stream with --features images:{room}, or change the recipe with --set room=…",
        )
    _, first = np.unique([sha256_bytes(image.tobytes()) for image in x], return_index=True)
    if len(first) < len(x):
        dropped, x = dropped | {"copy": len(x) - len(first)}, x[np.sort(first)]
    tests_are = "included" if include_tests else "left out"
    seen = seen_of((Photo("", None, "", until) for _ in range(len(x))), place, tests_are, "driftline pretrain")
    return ImageArray(x, dropped, f"{stream.sha256}-{bucket}-{tests_are}", seen, tests_are)


def _probe(place: Path, room: int) -> Probe:
    import numpy as np

    from driftline.curate.pretrain.probe import Probe
    from driftline.stream_builder.stream import Stream

    stream = Stream.load(place)
    train, test = stream.flat("train"), stream.flat("test")
    if stream.x_shape != (room, room, 3):
        raise BadConfig(f"--probe has samples of shape {stream.x_shape}.", f"Expected images of {room} × {room}.")
    return Probe(np.asarray(train.x), train.y, np.asarray(test.x), test.y)
