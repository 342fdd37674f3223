"""`driftline stream …`: make, show, measure and export streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.core.errors import BadConfig
from pipelines.cli.common import Json, command

stream_app = typer.Typer(no_args_is_help=True, help="Make, show and check streams.", rich_markup_mode=None)

Out = Annotated[Path, typer.Option("--out", help="Folder for the stream.")]
Place = Annotated[Path, typer.Argument(metavar="S", help="A stream folder.")]
Seed = Annotated[int, typer.Option("--seed", help="Decides everything random.")]
Base = Annotated[
    str, typer.Option("--base", help="cifar10, cifar100, mnist, fashion-mnist, imagenet; or a folder, .npz, release.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Where the files of a named base lie.")]
Labels = Annotated[str | None, typer.Option("--labels", help="fine or coarse, of bases that have both.")]
Size = Annotated[int, typer.Option("--size", min=4, max=512, help="Edge of images that are decoded, pixels.")]
Published = Annotated[
    str | None,
    typer.Option(
        "--published", help="These are the data and features of clear10/moco-yfcc-b0: reports print its paper's values."
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch a named base that is not in --data-dir.")]


def _told(published: str | None) -> dict[str, str]:
    """The stream's word on whose data it holds. Raises BadConfig for a table that we do not have."""
    from eval.scoring.published_values import TABLES

    if published is not None and published not in TABLES:
        raise BadConfig(f"--published is {published!r}.", f"Expected one of {', '.join(TABLES)}.")
    return {"published": published} if published else {}


@command(stream_app, "from-release", "driftline stream from-release photos2024 --out stream")
def stream_from_release(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A release folder, or the run folder that published it.")
    ],
    out: Out,
    features: Annotated[
        str | None,
        typer.Option("--features", help="A name in the release, pixels:SIZE, or images:SIZE (decoded when asked for)."),
    ] = None,
    published: Published = None,
) -> None:
    """Turn a release into a stream: each bucket becomes a step."""
    from curate.release import Release
    from stream_builder.builders.release import from_release

    told = _told(published)
    stream = from_release(Release.open(path), features)
    _made(stream.save(out, {**stream.facts, **told}), out)


@command(
    stream_app, "features", "driftline stream features photos2024 --features moco-b0=backbone:resnet18:moco --out F"
)
def stream_features(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A stream of images or texts, a release, or a run.")],
    out: Annotated[Path, typer.Option("--out", help="Folder: a stream for each encoder, OUT/NAME.")],
    features: Annotated[
        list[str] | None,
        typer.Option("--features", metavar="NAME=KIND:MODEL:WEIGHTS", help="An encoder; may be repeated."),
    ] = None,
    zoo: Annotated[
        Path | None, typer.Option("--zoo", help="YAML file with a line NAME: KIND:MODEL:WEIGHTS each.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
) -> None:
    """The same samples as vectors of other encoders: of each, a stream."""
    from curate.core.run_log import RunLog
    from pipelines.feature_zoo import encoded_at, opened, zoo_of

    named = zoo_of(zoo) if zoo is not None else {}
    for told in features or ():
        name, equals, text = told.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum():
            raise BadConfig(f"--features is {told!r}.", "Expected NAME=KIND:MODEL:WEIGHTS.")
        named[name] = text
    if not named:
        raise BadConfig("No encoder was given.", "Expected --features or --zoo.")
    stream, source = opened(path)
    for name, encoder in named.items():
        _made(encoded_at(stream, source, name, encoder, out / name, device, RunLog(None)), out / name)


@command(stream_app, "from-arrays", "driftline stream from-arrays features.npz --out stream")
def stream_from_arrays(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.npz", help="Arrays x and y; optional step, time, split, id, classes."),
    ],
    out: Out,
    published: Published = None,
) -> None:
    """Turn arrays in an .npz file into a stream."""
    from stream_builder.builders.arrays import from_arrays

    told = _told(published)
    stream = from_arrays(file)
    _made(stream.save(out, {**stream.facts, **told}), out)


@command(stream_app, "from-order", "driftline stream from-order photos2024 --periods 10 --out in-order")
def stream_from_order(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A release, a table (id, time, label), or CGLM/CLOC order files."),
    ],
    out: Out,
    periods: Annotated[int, typer.Option("--periods", min=1, help="Steps of equally many samples.")] = 10,
    held_out: Annotated[float, typer.Option("--held-out", help="Share of each period kept for retention.")] = 0.1,
    order: Annotated[str, typer.Option("--order", help="natural or balanced.")] = "natural",
    features: Annotated[
        str | None, typer.Option("--features", help="Of a release: a name or images:SIZE; else .npy.")
    ] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Where image paths begin.")] = None,
    size: Size = 64,
    seed: Seed = 0,
) -> None:
    """Put single samples in their order of time: a stream for online evaluation, with held-out samples of every
    period."""
    from stream_builder.builders.time_order import open_timed, ordered

    if order not in ("natural", "balanced"):
        raise BadConfig(f"--order is {order!r}.", "Expected natural or balanced.")
    data = open_timed(path, features, root, size)
    _made(ordered(data, periods, held_out, order, seed).save(out), out)  # type: ignore[arg-type]


@command(stream_app, "from-texts", "driftline stream from-texts banking77 --encoder ngrams:2048 --out S")
def stream_from_texts(
    place: Annotated[
        str,
        typer.Argument(metavar="TEXTS", help="Folder with *train* and *test* tables, a table, banking77 or clinc150."),
    ],
    out: Out,
    data_dir: DataDir = None,
    download: Download = False,
    encoder: Annotated[
        str, typer.Option("--encoder", help="sentence:MODEL, clip:MODEL:WEIGHTS, table:FOLDER, ngrams:WIDTH, or none.")
    ] = "none",
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Labelled texts: as they are (for learners that read) or as vectors of an encoder."""
    from curate.core.run_log import RunLog
    from curate.encoders import spec_of
    from stream_builder.builders.encoded import encoded, samples_of
    from stream_builder.builders.texts import from_texts
    from stream_builder.datasets import Options, open_base

    spec = None if encoder == "none" else spec_of(encoder, device)
    stream = from_texts(open_base(place, Options(data_dir=data_dir, download=download)))
    if spec is not None:
        with RunLog(None).progress("encode", samples_of(stream), "texts") as tick:
            stream = encoded(stream, spec.load(), encoder, tick)
    _made(stream.save(out), out)


@command(stream_app, "from-held-out", "driftline stream from-held-out --base intent.npz --out corrections")
def stream_from_held_out(
    base: Base,
    out: Out,
    held_out: Annotated[int, typer.Option("--held-out", help="Classes that come later.")] = 10,
    evaluate: Annotated[int, typer.Option("--evaluate", min=1, help="Samples of an evaluation set, at most.")] = 400,
    order: Annotated[str, typer.Option("--order", help="Of the start's rows: shuffled, or file.")] = "shuffled",
    data_dir: DataDir = None,
    labels: Labels = None,
    size: Size = 32,
    download: Download = False,
    seed: Seed = 0,
) -> None:
    """Hold classes out of the start and let them come afterwards: a stream for correction (OCRR)."""
    from stream_builder.builders.held_out_classes import held_out as hold
    from stream_builder.datasets import Options, open_base

    if order not in ("shuffled", "file"):
        raise BadConfig(f"--order is {order!r}.", "Expected shuffled or file.")
    opened = open_base(base, Options(data_dir, labels, size, download))
    _made(hold(opened, held_out, evaluate, seed, order).save(out), out)  # type: ignore[arg-type]


@command(stream_app, "portraits", "driftline stream portraits faces --out portraits")
def stream_portraits(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folders M and F with files YEAR_….png.")],
    out: Out,
    size: Size = 32,
    fidelity: Annotated[str, typer.Option("--fidelity", help="clean or paper-code.")] = "clean",
    seed: Seed = 1007,
) -> None:
    """Cut the yearbook portraits by decade, as Seq-to-Final does."""
    from stream_builder.builders.portraits import portraits

    if fidelity not in ("clean", "paper-code"):
        raise BadConfig(f"--fidelity is {fidelity!r}.", "Expected clean or paper-code.")
    _made(portraits(folder, size, seed, fidelity).save(out), out)  # type: ignore[arg-type]


@command(
    stream_app, "compose", 'driftline stream compose --base cifar10 --sequence "C:L:R" --sizes 600,400,600,400 --out S'
)
def stream_compose(
    base: Base,
    sequence: Annotated[str, typer.Option("--sequence", help="Shifts of each target step: driftline list shifts.")],
    out: Out,
    sizes: Annotated[
        str | None, typer.Option("--sizes", help="Samples of each step, the source first (default: the paper's).")
    ] = None,
    test_size: Annotated[int, typer.Option("--test-size", min=1, help="Test samples of the last step.")] = 5000,
    seed: Annotated[int, typer.Option("--seed", help="Decides the draws and the noise.")] = 0,
    fidelity: Annotated[str, typer.Option("--fidelity", help="clean, or paper-code: as the reference did.")] = "clean",
    overlap: Annotated[
        str, typer.Option("--overlap", help="auto, independent, validation or disjoint: images that steps may share.")
    ] = "auto",
    draws: Annotated[str, typer.Option("--draws", help="auto, published or own.")] = "auto",
    balanced: Annotated[
        str, typer.Option("--classes", help="balanced, or natural: as the base has them.")
    ] = "balanced",
    augment: Annotated[str, typer.Option("--augment", help="auto, none or paper: recorded for loaders.")] = "auto",
    val_share: Annotated[float, typer.Option("--val-share", min=0, max=0.9, help="Share of validation samples.")] = 0.2,
    priors: Annotated[
        Path | None, typer.Option("--priors", help="CSV without header: a row a step, a class's share in each column.")
    ] = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    size: Size = 32,
    download: Download = False,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Steps that are rendered at a time.")] = 1,
    oracle: Annotated[
        bool, typer.Option("--oracle/--no-oracle", help="Also draw data for the oracle, where the base has enough.")
    ] = True,
) -> None:
    """Compose a synthetic shift sequence: several shifts at one step with a comma, parameters as in R(45), ~R grows."""
    from stream_builder.builders.sampling import Composition
    from stream_builder.builders.shift_sequence import compose
    from stream_builder.datasets import Options, open_base

    if sizes is not None and not all(part.strip().isdigit() for part in sizes.split(",")):
        raise BadConfig(f"--sizes is {sizes!r}.", "Expected numbers with commas, as in 6000,4000,6000,4000.")
    if sequence == "portraits":
        from stream_builder.builders.portraits import portraits

        _made(portraits(Path(base), size, seed, fidelity).save(out), out)  # type: ignore[arg-type]
        return
    numbers = None if sizes is None else [int(part) for part in sizes.split(",")]
    for name, value, allowed in (
        ("fidelity", fidelity, ("clean", "paper-code")),
        ("overlap", overlap, ("auto", "independent", "validation", "disjoint")),
        ("draws", draws, ("auto", "published", "own")),
        ("classes", balanced, ("balanced", "natural")),
        ("augment", augment, ("auto", "none", "paper")),
    ):
        if value not in allowed:
            raise BadConfig(f"--{name} is {value!r}.", f"Expected one of {', '.join(allowed)}.")
    how = Composition(
        val_share,
        balanced,  # type: ignore[arg-type]
        overlap,  # type: ignore[arg-type]
        draws,  # type: ignore[arg-type]
        augment,  # type: ignore[arg-type]
        fidelity,  # type: ignore[arg-type]
        _table(priors),
    )
    opened = open_base(base, Options(data_dir, labels, size, download))
    _made(compose(opened, sequence, numbers, test_size, seed, how, workers, oracle).save(out), out)


def _table(path: Path | None) -> Any:
    import numpy as np

    if path is None:
        return None
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise BadConfig(f"--priors: {path} cannot be read ({error}).", "Expected numbers, no header.") from None


@command(stream_app, "measure", "driftline stream measure S --distance w2,sliced --json")
def stream_measure(
    path: Place,
    distance: Annotated[
        str, typer.Option("--distance", help="paper (W2, divided as in its table 5), w2, sliced, entropic, mmd, c2st.")
    ] = "paper",
    labels: Annotated[bool, typer.Option("--labels", help="And what labels tell: priors, shift S.")] = False,
    fidelity: Annotated[
        str | None, typer.Option("--fidelity", help="paper-code: end the solver where the reference's did.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure how much shift: distances from each step's training data to the last step's test data."""
    from stream_builder.measures.shift_distance import distances, label_facts, measure
    from stream_builder.stream import Stream

    if fidelity not in (None, "clean", "paper-code"):
        raise BadConfig(f"--fidelity is {fidelity!r}.", "Expected clean or paper-code.")
    stream = Stream.load(path)
    names = [n.strip() for n in distance.split(",") if n.strip()]
    found: dict[str, Any] = {}
    if "paper" in names:
        found |= measure(stream, fidelity=fidelity)  # type: ignore[arg-type]
    found |= distances(stream, [n for n in names if n != "paper"], seed=seed) if names != ["paper"] else {}
    told = label_facts(stream) if labels else None
    if as_json:
        print(json.dumps(found | ({} if told is None else {"labels": told})))
        return
    for name, values in found.items():
        print(f"{name:<12}" + "  ".join(f"{v:.3f}" for v in values))
    if told is not None:
        print(f"{'priors':<12}" + "  ".join(f"{v:.3f}" for v in told["priors"]))
        blind, shift = told["blind"], told["suggested_shift"]
        best = zip(blind["shifts"], blind["best"], strict=True)
        print(f"{'blind':<12}" + "  ".join(f"{s}: {b:.3f}" for s, b in best))
        print(f"suggested shift S = {'none in reach' if shift is None else shift} (chance {blind['chance']:.3f})")


def _made(stream: Any, out: Path) -> None:
    n = sum(len(s) for step in stream.steps for s in step.splits.values())
    print(f"stream {stream.name}: {len(stream.steps)} steps, {n:,} samples, {len(stream.classes)} classes in {out}")


@command(stream_app, "show", "driftline stream show stream --out pictures")
def stream_show(
    path: Place,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for picture sheets, one a split.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every array again.")] = False,
    as_json: Json = False,
) -> None:
    """Show a stream's steps, splits and sizes; with --out, draw a sheet of its pictures, a row a step."""
    from stream_builder.stream import Stream

    stream = Stream.load(path)
    if verify:
        stream.verify(path)
    sheets = []
    if out is not None:
        from stream_builder.export.contact_sheet import sheet

        splits = dict.fromkeys(name for step in stream.steps for name in step.splits)
        sheets = [str(sheet(stream, out / f"{name}.png", name)) for name in splits]
    facts = {
        "name": stream.name,
        "sha256": stream.sha256,
        "classes": list(stream.classes),
        "x_shape": list(stream.x_shape),
        "steps": [
            {"index": s.index, "name": s.name, "splits": {k: len(v) for k, v in s.splits.items()}} for s in stream.steps
        ],
        "facts": dict(stream.facts),
        "sheets": sheets,
    }
    if as_json:
        print(json.dumps(facts))
        return
    print(f"{stream.name}  {stream.sha256[:12]}  samples of shape {stream.x_shape}, {len(stream.classes)} classes")
    for s in stream.steps:
        print(f"  {s.name:<12}" + "  ".join(f"{k} {len(v):,}" for k, v in s.splits.items()))
    for name in sheets:
        print(f"  pictures: {name}")


@command(stream_app, "export", "driftline stream export S --format imagefolder --out exports")
def stream_export(
    path: Place,
    formats: Annotated[
        str, typer.Option("--format", help="arrays, imagefolder, filelists, webdataset, huggingface; with commas.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder; each format gets one inside.")],
    as_json: Json = False,
) -> None:
    """Export a stream in the layouts that the ecosystem loads."""
    from stream_builder.export import EXPORTS
    from stream_builder.stream import Stream

    exporters = {name: EXPORTS[name] for name in (n.strip() for n in formats.split(",")) if name}
    stream = Stream.load(path)
    counts = {name: export(stream, out / name) for name, export in exporters.items()}
    if as_json:
        print(json.dumps({"stream": stream.name, "exports": counts}))
        return
    for name, count in counts.items():
        print(f"{name}: {', '.join(f'{v:,} {k}' for k, v in count.items())} in {out / name}")
