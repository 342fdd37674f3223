"""`driftline models get` and `train`: the encoders of photos, downloaded and trained."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.actions.action import NOTHING, Answer, Device, Shown, action
from driftline.pipelines.actions.common import group_app, guarded_out, log_of
from driftline.pipelines.kinds import Place, Settings, changes_of, path_of

if TYPE_CHECKING:
    from driftline.curate.pretrain import Recipe

BLOCK = 64  # images that are encoded at once
models_app = group_app("Download and train the models that embed photos.", "driftline models get RN50:yfcc15m")
MODEL = "open_clip_config.json"  # the last file of a model
TRAINED = "training_data.yaml"  # the first file of a trained one


def _check_free(out: Path, file: str) -> None:
    """Raise BadConfig for a folder with the file: another model is not replaced."""
    if (out / file).exists():
        raise BadConfig(f"{out} holds a model.", "", "Set another --out, or delete the folder.")


def _known(incomplete: str) -> list[str]:
    from driftline.curate.encoders.weights import KNOWN

    return list(KNOWN)


@action("driftline models get RN50:yfcc15m --out rn50", group=models_app, completes={"name": _known})
def get(name: str, *, out: Place | None = None) -> Shown[Answer]:
    """Download a model from the Hugging Face hub.

    Without --out into the hub's cache on this machine, where driftline run finds it.

    name NAME: As driftline list models shows it.
    out DIR: Folder to copy to a machine without internet (default: the cache).
    """
    from driftline.curate.encoders.weights import download

    folder = None if out is None else guarded_out(path_of(out), "model")
    if folder is not None:
        _check_free(folder, TRAINED)
    files = download(name, folder)
    model, _, weights = name.partition(":")
    settings = [f"embed.model={model}", f"embed.weights={weights}"]
    if folder is not None:
        settings = [f"embed.model={folder.absolute()}", "embed.weights=null"]
    place = None if folder is None else str(folder)
    document = {"out": place, "files": [str(file) for file in files], "settings": settings}
    return Shown(document, f"{files[-1]}\nUse it: --set {' --set '.join(map(shlex.quote, settings))}")


@action(
    "driftline models train photos2024 --recipe small --out moco", group=models_app, completes={"settings": None},
    needs={"--bucket --set": "--recipe"},
)  # fmt: skip
def train(
    path: Place, *, out: Place, recipe: str | None = None, settings: Settings = (), bucket: int = 0,
    epochs: int | None = None, size: int | None = None,
    seed: int = 0, device: Device = "auto", include_tests: bool = False,
) -> Shown[Answer]:  # fmt: skip
    """Train a model of your own photos: a small CLIP, or an image encoder.

    Without --recipe: a CLIP of 3 million parameters, minutes on a CPU for some thousand photos. It recognises only
    what the photos' texts name. A photo's text is its caption, else its label (collection.label: parent), else
    the words of its title; at least 200 must differ. A tenth is held out; the output shows how well the model
    finds it.

    With --recipe: an image encoder, from images without labels. For several processes: torchrun
    --no-python driftline models train …

    Test images of every split, photos by their uploaders and near-duplicates of them are left out and counted; in a run
    without a release the later test photos are not known. The folder's training_data.yaml has the day of the newest
    photo.

    path PATH: A run; with --recipe also a release or folder of images.
    out DIR: Folder of the model: set embed.model to it.
    recipe NAME: Train an image encoder without labels (MoCo v2): hyper-parameters (driftline list recipes).
    settings KEY=VALUE: --recipe: of the recipe (driftline list recipes). Repeatable.
    bucket N: --recipe: number of the bucket.
    epochs N: Without --recipe: passes over the photos (default: 20).
    size PIXELS: Without --recipe: edge of the photos, a multiple of 32 (default: 64).
    seed N: Random seed.
    device: Where the model is trained.
    """
    folder = guarded_out(path_of(out), "model" if recipe is None else "encoder")
    if recipe is not None:
        for name, value in (("--epochs", epochs), ("--size", size)):
            if value is not None:
                raise BadConfig(f"{name} was given with --recipe.", "Expected one of them.", "Set a recipe's by --set.")
        changes = changes_of(settings)
        return _train_encoder(path_of(path), folder, recipe, changes, bucket, seed, device, include_tests)
    _check_free(folder, MODEL)
    return _train_clip(path_of(path), folder, epochs or 20, size or 64, seed, device, include_tests)


def _train_encoder(
    source: Path, out: Path, recipe: str, sets: list[str], bucket: int, seed: int, device: Device, include_tests: bool
) -> Shown[Any]:
    """Train an encoder by a recipe, in each process of torchrun, and tell the user; parameters as in `models train`."""
    from driftline.curate.encoders.backbone import resolve_device
    from driftline.curate.pretrain import RECIPES
    from driftline.curate.pretrain.pool import gather, tests_note
    from driftline.curate.pretrain.train import ProcessGroup
    from driftline.curate.pretrain.train import pretrain as train

    rules = _changed(RECIPES[recipe], sets)
    group = ProcessGroup.join(resolve_device(device))
    run_log = log_of(out / "log.jsonl") if group.rank == 0 else RunLog(None, True)
    with group.first_then_others(), run_log.progress("images", None, "images") as tick:
        pictures = gather(source, bucket, rules.room, out, tick, include_tests)
    if group.rank == 0:
        run_log.say(tests_note(source, pictures.tests, pictures.dropped))
    facts = train(pictures, rules, out, seed, device, run_log)
    if group.rank > 0:
        return NOTHING
    return Shown({"out": str(out), **facts}, f"{facts['images']:,} images, loss {facts['loss'][-1]:.3f}, in {out}")


def _changed(recipe: Recipe, sets: list[str]) -> Recipe:
    from driftline.eval.settings import check_settings
    from driftline.pipelines.config.loader import setting_of

    settings = check_settings(type(recipe), dict(map(setting_of, sets)), "recipe")
    return replace(recipe, **{key: type(getattr(recipe, key))(value) for key, value in settings.items()})


def _train_clip(
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
    document = {"out": str(out), "images": n, "texts": different, "loss": losses, "held_out": asdict(found)}
    document |= {"dropped": dict(pairs.dropped), "tests": pairs.tests, "trained_until": pairs.seen.trained_until}
    lines = [
        f"{out}: loss {losses[0]:.2f} → {losses[-1]:.2f}",
        f"Held out: {found.found:.1%} of {found.texts:,} texts find their photo among the {found.first} nearest of "
        f"{found.texts:,}; by chance {found.chance:.1%}.",
        f"Use it: --set {shlex.quote(f'embed.model={out.absolute()}')} --set embed.weights=null"
        if found.is_better
        else "That is no more than chance: do not use it. Give the photos captions that name what they show.",
    ]
    return Shown(document, "\n".join(lines))
