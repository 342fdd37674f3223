"""`driftline doctor`, `models …`: this machine, and the models that embed photos."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Device, IncludeTests, Json, command, context_of_last, log_of, show
from driftline.pipelines.cli.listing import columns

doctor_app = typer.Typer()
models_app = typer.Typer(no_args_is_help=True, help="List, download and train the models that embed photos.")


@command(doctor_app, "doctor", "driftline doctor", panel="Start")
def doctor(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Also say what a run in this folder would miss.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine this machine: versions, hardware, parts, speed.

    Takes about ten seconds.
    """
    from driftline.pipelines.cli.doctor import examine, text

    context = None if directory is None else context_of_last(directory, None, True)
    facts = examine()
    if context is not None:
        from driftline.pipelines.forecast.needs import forecast
        from driftline.pipelines.run.plan import plan

        facts["problems"] = forecast(context, plan(context))["problems"]
    show(as_json, facts, text(facts))


@command(models_app, "list", "driftline models list")
def models_list(as_json: Json = False) -> None:
    """List well-known models: size, licence, newest data that they saw, whether they are here.

    Every other model of open_clip works, too. To measure drift, take a model whose training photos are older than
    yours: RN50:yfcc15m ends in 2014.
    """
    from driftline.curate.encoders.weights import KNOWN, is_here
    from driftline.pipelines.stages.embed import BUILT_IN

    rows: list[dict[str, Any]] = [
        {
            "name": BUILT_IN, "model": BUILT_IN, "weights": None, "megabytes": 6, "licence": "Apache-2.0",
            "data": "drawn photos of the demo: no model of real photos", "until": None, "claim": "part of driftline",
            "source": "part of driftline",
            "present": True,
        }
    ]  # fmt: skip
    rows += [
        {
            "name": model.name, "model": model.model, "weights": model.tag, "megabytes": model.megabytes,
            "licence": model.licence, "data": model.seen.data, "until": model.seen.trained_until,
            "claim": model.seen.source, "source": model.repository,
            "present": is_here(model.repository),
        }
        for model in KNOWN.values()
    ]  # fmt: skip
    table = [
        (
            row["name"],
            row["data"] + (f", until {row['until']}" if row["until"] else ""),
            f"{row['megabytes']:,} MB",
            row["licence"],
            "here" if row["present"] else "to download",
        )
        for row in rows
    ]
    show(as_json, rows, f"{columns(table)}\nDownload: driftline models get NAME. Of your own photos: models train.")


def _known(incomplete: str) -> list[str]:
    from driftline.curate.encoders.weights import KNOWN

    return list(KNOWN)


@command(models_app, "get", "driftline models get RN50:yfcc15m --out rn50")
def models_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As models list shows it.", autocompletion=_known)],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to copy to a machine without internet: set embed.model to it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Download a model from the Hugging Face hub.

    Without --out into the hub's cache on this machine, where driftline run finds it.
    """
    from driftline.curate.encoders.weights import download

    files = download(name, out)
    model, _, weights = name.partition(":")
    settings = [f"embed.model={model}", f"embed.weights={weights}"]
    if out is not None:
        settings = [f"embed.model={out.absolute()}", "embed.weights=null"]
    text = f"{files[-1]}\nUse it: --set {' --set '.join(settings)}"
    show(as_json, {"files": [str(file) for file in files], "settings": settings}, text)


@command(models_app, "train", "driftline models train photos2024 --out small-clip")
def models_train(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="A release, or a run whose photos are fetched.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the model: set embed.model to it.")],
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the photos.")] = 20,
    size: Annotated[int, typer.Option("--size", min=32, max=224, help="Edge of the photos in pixels.")] = 64,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0,
    image: Annotated[
        str | None, typer.Option("--image", metavar="ENCODER", help="Frozen image encoder: KIND:MODEL:WEIGHTS.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="ENCODER", help="Frozen text encoder: KIND:MODEL.")
    ] = None,
    device: Annotated[Device, typer.Option("--device", help="Where the model is trained.")] = "auto",
    include_tests: IncludeTests = False,
    as_json: Json = False,
) -> None:
    """Train a small CLIP on the captions or class names of your own photos.

    3 million parameters, minutes on a CPU for some thousand photos. It knows what these captions name and nothing
    else. A photo's text is its caption, else its label (collection.label: parent), else the words of its title; of a
    release, the class. Test images of every split, photos by their uploaders and near copies of them are left out and
    counted; a run without a release does not say which photos will be tests. The folder's seen.yaml has the day of the
    newest photo. With --image and --text both towers are encoders that you have, which stay as they are; only a linear
    map of each is trained, on the CPU.
    """
    from driftline.curate.core.executor.torch_threads import idle_cores
    from driftline.curate.encoders import spec_of
    from driftline.curate.encoders.locked import RECORD, load_encoder
    from driftline.curate.encoders.network import resolve_device
    from driftline.curate.encoders.seen import joint, seen, write_seen
    from driftline.curate.encoders.weights import CONFIG
    from driftline.curate.pretrain import locked, small_clip
    from driftline.curate.pretrain.captions import captioned
    from driftline.curate.pretrain.pool import tests_note

    if size % 32:
        raise BadConfig(f"--size is {size}.", "Expected a multiple of 32.")
    if (image is None) != (text is None):
        raise BadConfig("Only one of --image and --text is given.", "Expected both, or none for a small CLIP.")
    if (out / CONFIG).exists() or (out / RECORD).exists():  # the last file of each kind of model
        raise BadConfig(f"{out} holds a model.", "", "Set another --out, or delete the folder.")
    place = resolve_device(device)
    towers = [(name, load_encoder(name, place)) for name in (image, text) if name is not None]
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
            losses = locked.train(
                vectors,
                pairs.caption,
                pairs.texts,
                (towers[0], towers[1]),
                out,
                log,
                seed=seed,
                epochs=epochs,
                batch=batch,
            )
        else:
            losses = small_clip.train(
                pairs.images, pairs.caption, pairs.texts, out, log, seed, epochs=epochs, batch=batch, device=place
            )
    document = {"model": str(out.absolute()), "images": n, "texts": len(set(pairs.texts)), "loss": losses}
    document |= {"dropped": dict(pairs.dropped), "tests": pairs.tests, "trained_until": provenance.trained_until}
    use = f"--set embed.model={out.absolute()} --set embed.weights=null"
    if towers:
        use += " --set embed.encoder=locked"
    show(as_json, document, f"{out}: loss {losses[0]:.2f} → {losses[-1]:.2f}\nUse it: {use}")
