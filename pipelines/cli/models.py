"""`driftline models …`: the encoders of photos, listed, downloaded and trained."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Device, IncludeTests, command, group_app, show
from driftline.pipelines.cli.listing import list_models, named
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.stream_options import option

models_app = group_app("List, download and train the models that embed photos.", "driftline models list")


MODEL = "open_clip_config.json"  # the last file of a model
TRAINED = "seen.yaml"  # the first file of a trained one


def _check_free(out: Path, file: str) -> None:
    """Raise BadConfig for a folder with the file: another model is not replaced."""
    if (out / file).exists():
        raise BadConfig(f"{out} holds a model.", "", "Set another --out, or delete the folder.")


@command(models_app, "list", "driftline models list")
def models_list() -> None:
    """List well-known models: size, licence, newest data that they saw, whether they are here.

    Every other model of open_clip works, too. To measure drift, take a model whose training photos are older than
    yours: RN50:yfcc15m ends in 2014.
    """
    list_models()


def _known(incomplete: str) -> list[str]:
    from driftline.curate.encoders.weights import KNOWN

    return list(KNOWN)


@command(models_app, "get", "driftline models get RN50:yfcc15m --out rn50")
def models_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As models list shows it.", autocompletion=_known)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder to copy to a machine without internet (default: the cache)."),
    ] = None,
) -> None:
    """Download a model from the Hugging Face hub.

    Without --out into the hub's cache on this machine, where driftline run finds it.
    """
    from driftline.curate.encoders.weights import download

    if out is not None:
        _check_free(guarded_out(out, "model"), TRAINED)
    files = download(name, out)
    model, _, weights = name.partition(":")
    settings = [f"embed.model={model}", f"embed.weights={weights}"]
    if out is not None:
        settings = [f"embed.model={out.absolute()}", "embed.weights=null"]
    text = f"{files[-1]}\nUse it: --set {' --set '.join(settings)}"
    place = None if out is None else str(out)
    show({"out": place, "files": [str(file) for file in files], "settings": settings}, text)


_of_recipe = partial(option, panel="With --recipe")
_of_clip = partial(option, panel="Without --recipe")


@command(
    models_app,
    "train",
    "driftline models train photos2024 --recipe small --out moco",
    needs={"--bucket --set --probe --probe-every": "--recipe"},
)
def models_train(
    source: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A run; with --recipe also a release, stream or folder of images."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the model: set embed.model to it.")],
    recipe: Annotated[
        str | None, named("--recipe", "recipes", "Train an image encoder without labels (MoCo v2): hyper-parameters")
    ] = None,
    sets: Annotated[
        list[str] | None, _of_recipe("--set", "KEY=VALUE", "Of the recipe (driftline list recipes). Repeatable.")
    ] = None,
    bucket: Annotated[
        int, _of_recipe("--bucket", "N", "Number of the bucket, or of a stream's step (0: its past).", min=0)
    ] = 0,
    probe: Annotated[
        Path | None, _of_recipe("--probe", "STREAM", "Images of the recipe's size: k-NN accuracy during training.")
    ] = None,
    every: Annotated[int, _of_recipe("--probe-every", "N", "Epochs between two probes.", min=1)] = 5,
    epochs: Annotated[int | None, _of_clip("--epochs", "N", "Passes over the photos (default: 20).", min=1)] = None,
    size: Annotated[
        int | None,
        _of_clip("--size", "PIXELS", "Edge of the photos, a multiple of 32 (default: 64).", min=32, max=224),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    device: Annotated[Device, typer.Option("--device", help="Where the model is trained.")] = "auto",
    include_tests: IncludeTests = False,
) -> None:
    """Train a model of your own photos: a small CLIP, or an image encoder.

    Without --recipe: a CLIP of 3 million parameters, minutes on a CPU for some thousand photos. It knows what the
    photos' texts name and nothing else. A photo's text is its caption, else its label (collection.label: parent), else
    the words of its title; at least 200 must differ. A tenth is held out, and the answer says how well the model finds
    it, and which words of the prompts no text has.

    With --recipe: an image encoder, from images without labels. For several processes: torchrun
    --no-python driftline models train …

    Test images of every split, photos by their uploaders and near copies of them are left out and counted; a run
    without a release does not say which photos will be tests. The folder's seen.yaml has the day of the newest photo.
    """
    guarded_out(out, "model" if recipe is None else "encoder")
    if recipe is not None:
        from driftline.pipelines.cli.pretrain import train_encoder

        for name, value in (("--epochs", epochs), ("--size", size)):
            if value is not None:
                raise BadConfig(f"{name} was given with --recipe.", "Expected one of them.", "Set a recipe's by --set.")
        train_encoder(source, out, recipe, sets or [], bucket, probe, every, seed, device, include_tests)
        return
    from driftline.pipelines.cli.train_clip import train_clip

    _check_free(out, MODEL)
    train_clip(source, out, epochs or 20, size or 64, seed, device, include_tests)
