"""`driftline models get` and `train`: the encoders of photos, downloaded and trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.action import Device, Shown, action
from driftline.pipelines.cli.common import group_app
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.kinds import Place, Settings, changes_of, path_of

Answer = dict[str, Any]
models_app = group_app("Download and train the models that embed photos.", "driftline models get RN50:yfcc15m")
MODEL = "open_clip_config.json"  # the last file of a model
TRAINED = "seen.yaml"  # the first file of a trained one


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
    return Shown(document, f"{files[-1]}\nUse it: --set {' --set '.join(settings)}")


@action(
    "driftline models train photos2024 --recipe small --out moco", group=models_app, completes={"settings": None},
    needs={"--bucket --set --probe --probe-every": "--recipe"},
)  # fmt: skip
def train(
    path: Place, *, out: Place, recipe: str | None = None, settings: Settings = (), bucket: int = 0,
    probe: Place | None = None, probe_every: int = 5, epochs: int | None = None, size: int | None = None,
    seed: int = 0, device: Device = "auto", include_tests: bool = False,
) -> Shown[Answer]:  # fmt: skip
    """Train a model of your own photos: a small CLIP, or an image encoder.

    Without --recipe: a CLIP of 3 million parameters, minutes on a CPU for some thousand photos. It knows what the
    photos' texts name and nothing else. A photo's text is its caption, else its label (collection.label: parent), else
    the words of its title; at least 200 must differ. A tenth is held out, and the answer says how well the model finds
    it, and which words of the prompts no text has.

    With --recipe: an image encoder, from images without labels. For several processes: torchrun
    --no-python driftline models train …

    Test images of every split, photos by their uploaders and near copies of them are left out and counted; a run
    without a release does not say which photos will be tests. The folder's seen.yaml has the day of the newest photo.

    path PATH: A run; with --recipe also a release, stream or folder of images.
    out DIR: Folder of the model: set embed.model to it.
    recipe NAME: Train an image encoder without labels (MoCo v2): hyper-parameters (driftline list recipes).
    settings KEY=VALUE: --recipe: of the recipe (driftline list recipes). Repeatable.
    bucket N: --recipe: number of the bucket, or of a stream's step (0: its past).
    probe STREAM: --recipe: images of the recipe's size: k-NN accuracy during training.
    probe_every N: --recipe: epochs between two probes.
    epochs N: Without --recipe: passes over the photos (default: 20).
    size PIXELS: Without --recipe: edge of the photos, a multiple of 32 (default: 64).
    seed N: Random seed.
    device: Where the model is trained.
    """
    folder = guarded_out(path_of(out), "model" if recipe is None else "encoder")
    if recipe is not None:
        from driftline.pipelines.cli.pretrain import train_encoder

        for name, value in (("--epochs", epochs), ("--size", size)):
            if value is not None:
                raise BadConfig(f"{name} was given with --recipe.", "Expected one of them.", "Set a recipe's by --set.")
        of_probe = None if probe is None else path_of(probe)
        changes = changes_of(settings)
        return train_encoder(
            path_of(path), folder, recipe, changes, bucket, of_probe, probe_every, seed, device, include_tests
        )
    from driftline.pipelines.cli.train_clip import train_clip

    _check_free(folder, MODEL)
    return train_clip(path_of(path), folder, epochs or 20, size or 64, seed, device, include_tests)
