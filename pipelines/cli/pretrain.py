"""`driftline pretrain`: features of the past."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.core.errors import BadConfig, UnknownName
from curate.core.run_log import RunLog
from pipelines.cli.common import Json, Sets, command

if TYPE_CHECKING:
    from curate.pretrain import Recipe

pretrain_app = typer.Typer()


@command(pretrain_app, "pretrain", "driftline pretrain photos2024 --recipe small --out moco")
def pretrain(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A run, a release, a stream of images, or a folder of images."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for weights.safetensors and pretrain.json.")],
    bucket: Annotated[
        int, typer.Option("--bucket", min=0, help="Of a run or release; of a stream, 0 is its past.")
    ] = 0,
    recipe: Annotated[str, typer.Option("--recipe", help="moco-v2 (the paper's) or small.")] = "moco-v2",
    sets: Sets = None,
    probe: Annotated[
        Path | None,
        typer.Option("--probe", help="A stream of images of the recipe's room: k-NN accuracy while it trains."),
    ] = None,
    every: Annotated[int, typer.Option("--probe-every", min=1, help="Epochs between two probes.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="Decides everything random.")] = 0,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    as_json: Json = False,
) -> None:
    """Learn features from a bucket's images, without labels (MoCo v2); several processes: torchrun -m pipelines.cli."""
    from curate.encoders.network import resolve_device
    from curate.pretrain import RECIPES
    from curate.pretrain.gather import gather
    from curate.pretrain.train import Team
    from curate.pretrain.train import pretrain as train

    if recipe not in RECIPES:
        raise UnknownName(f"There is no recipe {recipe!r}.", f"Known: {', '.join(RECIPES)}.")
    rules = _changed(RECIPES[recipe], sets or [])
    team = Team.join(resolve_device(device))
    run_log = RunLog(out / "log.jsonl", as_json) if team.rank == 0 else RunLog(None, True)
    asked = None if probe is None else _probe(probe, rules.room)
    if (source / "stream.json").is_file():
        pictures = _of_stream(source, bucket, rules.room)
    else:
        with team.turns(), run_log.progress("images", None, "images") as tick:
            pictures = gather(source, bucket, rules.room, out, tick)
    facts = train(pictures, rules, out, seed, device, run_log, asked, every)
    if as_json and team.rank == 0:
        print(json.dumps(facts))
    elif team.rank == 0:
        told = f", k-NN accuracy {100 * facts['probe'][-1][1]:.1f} %" if facts["probe"] else ""
        print(f"pretrain: {facts['images']:,} images, loss {facts['loss'][-1]:.3f}{told}, in {out}")


def _changed(recipe: Recipe, sets: list[str]) -> Recipe:
    from pipelines.config.loader import given

    known = {f.name: f.type for f in fields(recipe)}
    changes: dict[str, Any] = {}
    for key, value in map(given, sets):
        if key not in known:
            raise BadConfig(f"A recipe has no {key!r}.", f"Known: {', '.join(known)}.")
        now = getattr(recipe, key)
        if isinstance(value, bool) or not isinstance(value, (int, float) if isinstance(now, float) else type(now)):
            raise BadConfig(f"{key} is {value!r}.", f"Expected a {type(now).__name__}, as {now!r}.")
        changes[key] = float(value) if isinstance(now, float) else value
    return replace(recipe, **changes)


def _of_stream(place: Path, bucket: int, room: int) -> Any:
    """The stream's past: its prior, or what is unlabelled of a step, or that step's training images."""
    import numpy as np

    from curate.pretrain.gather import Pictures
    from stream_builder.builders.encoded import is_image
    from stream_builder.stream import Stream

    stream = Stream.load(place)
    if not is_image(stream):
        raise BadConfig(f"{place} has samples of shape {stream.x_shape}.", "Expected images.")
    if bucket >= len(stream.steps):
        raise BadConfig(f"{place} has {len(stream.steps)} steps.", "", "Set --bucket to one of 0 … steps - 1.")
    step = stream.steps[bucket]
    bare = stream.prior if bucket == 0 and stream.prior is not None else step.unlabelled
    x = np.asarray(step["train"].x if bare is None else bare)
    if x.shape[1] != room or x.shape[2] != room:
        raise BadConfig(
            f"{place} has images of {x.shape[1]} × {x.shape[2]}, the recipe keeps {room}.",
            "Expected one size.",
            f"Make the stream with --features images:{room}, or set --set room=…",
        )
    return Pictures(x, {}, f"{stream.sha256}-{bucket}")


def _probe(place: Path, room: int) -> Any:
    import numpy as np

    from curate.pretrain.probe import Probe
    from stream_builder.stream import Stream

    stream = Stream.load(place)
    train, test = stream.flat("train"), stream.flat("test")
    if stream.x_shape != (room, room, 3):
        raise BadConfig(f"--probe has samples of shape {stream.x_shape}.", f"Expected images of {room} × {room}.")
    return Probe(np.asarray(train.x), train.y, np.asarray(test.x), test.y)
