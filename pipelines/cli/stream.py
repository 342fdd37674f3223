"""`driftline stream …`: create, show, measure and export streams."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Json, comma_separated, command, counts_text, log_of, show
from driftline.pipelines.cli.imports import import_app
from driftline.pipelines.cli.listing import completion
from driftline.pipelines.cli.stream_from import (
    Base,
    Bits,
    DataDir,
    Download,
    EncoderDevice,
    Fidelity,
    Labels,
    Out,
    Seed,
    Size,
    facts_of,
    from_app,
    save,
    tell,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

stream_app = typer.Typer(no_args_is_help=True, help="Create, show, measure and export streams.")
stream_app.add_typer(from_app)
stream_app.add_typer(import_app)

StreamFolder = Annotated[Path, typer.Argument(metavar="S", help="A stream folder.")]
Sequence = Annotated[
    str,
    typer.Option(
        "--sequence",
        help="Shifts of the steps after the source: C:L:R (driftline list shifts); several at one step: C,T; "
        "settings: R(45); ~R grows over its step; your own: {package.module:Name}.",
        autocompletion=completion("shifts"),
    ),
]
Sizes = Annotated[
    str | None, typer.Option("--sizes", help="Samples of each step, the source step first (default: the paper's).")
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", help="One draw for each seed, as in 0-4, in OUT/seed-0 …; eval OUT takes them together."),
]
Overlap = Annotated[
    Literal["auto", "independent", "validation", "disjoint"],
    typer.Option(
        "--overlap", help="Images that steps share: disjoint, none; validation, only training images; independent, any."
    ),
]
Draws = Annotated[
    Literal["auto", "published", "own"],
    typer.Option("--draws", help="Draws published with the dataset, or own ones."),
]
Balanced = Annotated[
    Literal["balanced", "natural"],
    typer.Option("--classes", help="Equal class frequencies, or those of the dataset."),
]
Augment = Annotated[
    Literal["auto", "none", "paper"], typer.Option("--augment", help="Augmentation, recorded for loaders.")
]
Priors = Annotated[
    Path | None, typer.Option("--priors", help="CSV without header: a row per step with the share of each class.")
]
Oracle = Annotated[
    bool, typer.Option("--oracle/--no-oracle", help="Also draw data for the oracle, if the dataset is large enough.")
]


@command(
    stream_app, "features", "driftline stream features photos2024 --features moco-b0=backbone:resnet18:moco --out F"
)
def stream_features(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A stream of images or texts, a release, or a run.")],
    out: Annotated[Path, typer.Option("--out", help="Folder; the stream of each encoder is in OUT/NAME.")],
    features: Annotated[
        list[str] | None,
        typer.Option("--features", metavar="NAME=KIND:MODEL:WEIGHTS", help="An encoder; may be repeated."),
    ] = None,
    zoo: Annotated[Path | None, typer.Option("--zoo", help="YAML file with lines NAME: KIND:MODEL:WEIGHTS.")] = None,
    device: EncoderDevice = "auto",
    bits: Bits = "16",
    as_json: Json = False,
) -> None:
    """Encode a stream's samples with other encoders.

    Writes one stream per encoder. What is already encoded is not encoded again.
    """
    from driftline.pipelines.cli.feature_zoo import encoded_at, opened, zoo_of

    encoders = zoo_of(zoo) if zoo is not None else {}
    for text in features or ():
        name, equals, encoder = text.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum():
            raise BadConfig(f"--features is {text!r}.", "Expected NAME=KIND:MODEL:WEIGHTS.")
        encoders[name] = encoder
    if not encoders:
        raise BadConfig("There is no encoder.", "Expected --features or --zoo.")
    stream, source = opened(path)
    log = log_of(None, as_json)
    streams = {
        out / name: encoded_at(
            stream, source, name, text, out / name, device, run_log=log, bits=8 if bits == "8" else 16
        )
        for name, text in encoders.items()
    }
    tell(as_json, [facts_of(encoded, place) for place, encoded in streams.items()])


@command(
    stream_app, "compose", 'driftline stream compose --base cifar10 --sequence "C:L:R" --sizes 600,400,600,400 --out S'
)
def stream_compose(
    base: Base,
    sequence: Sequence,
    out: Out,
    sizes: Sizes = None,
    test_size: Annotated[int, typer.Option("--test-size", min=1, help="Test samples of the last step.")] = 5000,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of draws and noise.")] = 0,
    seeds: Seeds = None,
    fidelity: Annotated[Fidelity, typer.Option("--fidelity", help="paper-code: as the reference did.")] = "clean",
    overlap: Overlap = "auto",
    draws: Draws = "auto",
    balanced: Balanced = "balanced",
    augment: Augment = "auto",
    val_share: Annotated[float, typer.Option("--val-share", min=0, max=0.9, help="Share of validation samples.")] = 0.2,
    priors: Priors = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    size: Size = 32,
    download: Download = False,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Steps rendered in parallel.")] = 1,
    oracle: Oracle = True,
    as_json: Json = False,
) -> None:
    """Compose a stream from a dataset and a shift sequence.

    Shifts accumulate from step to step.
    """
    from driftline.curate.core.atomic_io import fingerprint
    from driftline.curate.core.outside.names import is_count
    from driftline.eval.experiment.settings import seeds_of
    from driftline.stream_builder.builders.sampling import Composition
    from driftline.stream_builder.builders.shift_sequence import compose
    from driftline.stream_builder.datasets import Options, open_dataset

    if sizes is not None and not all(is_count(part.strip()) for part in sizes.split(",")):
        raise BadConfig(f"--sizes is {sizes!r}.", "Expected numbers separated by commas, as in 6000,4000,6000,4000.")
    if seeds is not None and sequence == "portraits":
        raise BadConfig(f"--seeds is {seeds!r} and the sequence is portraits.", "Expected a sequence of shifts.")
    if sequence == "portraits":
        from driftline.stream_builder.builders.portraits import portraits

        tell(as_json, [save(portraits(Path(base), size, seed, fidelity), out)], "seq-to-final")
        return
    composition = Composition(
        val_share, balanced, overlap, draws, augment=augment, fidelity=fidelity, priors=_table(priors)
    )
    one_draw = partial(
        compose, open_dataset(base, Options(data_dir, labels, size, download)), sequence,
        None if sizes is None else [int(part) for part in sizes.split(",")], test_size, composition=composition,
        workers=workers, oracle=oracle,
    )  # fmt: skip
    if seeds is None:
        tell(as_json, [save(one_draw(seed=seed), out)], "seq-to-final")
        return
    saved = []
    for each in seeds_of(seeds):
        stream = one_draw(seed=each)
        alike = {key: value for key, value in stream.facts.items() if key not in ("seed", "shared")}
        shares = [] if composition.priors is None else composition.priors.tolist()
        family = [alike, list(stream.classes), test_size, oracle, val_share, balanced, shares]
        saved.append(save(stream, out / f"seed-{each}", {"family": fingerprint(family)}))
    tell(as_json, saved, "seq-to-final")


def _table(path: Path | None) -> npt.NDArray[np.float64] | None:
    import numpy as np

    if path is None:
        return None
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise BadConfig(f"--priors: {path} cannot be read ({error}).", "Expected numbers, no header.") from None


@command(stream_app, "measure", "driftline stream measure S --distance w2,sliced --json")
def stream_measure(
    path: StreamFolder,
    distance: Annotated[
        str,
        typer.Option(
            "--distance",
            help="Separated by commas: paper (W2, divided as in its table 5), names (driftline list measures), "
            "package.module:Name.",
            autocompletion=completion("measures"),
        ),
    ] = "paper",
    labels: Annotated[
        bool, typer.Option("--labels", help="Also measure label statistics: drift of class frequencies, shift S.")
    ] = False,
    fidelity: Annotated[
        Fidelity | None, typer.Option("--fidelity", help="paper-code: stop the solver where the reference did.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Use all samples of a large stream: minutes to hours, gigabytes.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure how far each step is from the last step.

    Distances are from each step's training data to the last step's test data. Of a large stream, evenly spaced samples
    of each split are used, and the output says so.
    """
    from driftline.stream_builder.measures.shift_distance import (
        affordable,
        distances,
        label_statistics,
        measure,
        sharing,
    )
    from driftline.stream_builder.stream import Stream

    # The transport library imports torch, JAX and others if it may: 400 MB; only arrays are given to it.
    for backend in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")
    stream = Stream.load(path)
    names = comma_separated(distance)
    used, sampled = (stream, None) if exact else affordable(stream)
    measured: dict[str, Any] = measure(used, fidelity=fidelity) if "paper" in names else {}
    measured |= distances(used, [n for n in names if n != "paper"], seed=seed) if names != ["paper"] else {}
    statistics = label_statistics(stream) if labels else None
    rows = measured | ({} if statistics is None else {"priors": statistics["priors"]})
    lines = [f"{name:<12}" + "  ".join(f"{v:.3f}" for v in values) for name, values in rows.items()]
    if statistics is not None:
        blind, shift = statistics["blind"], statistics["suggested_shift"]
        best = zip(blind["shifts"], blind["best"], strict=True)
        lines.append(f"{'blind':<12}" + "  ".join(f"{s}: {b:.3f}" for s, b in best))
        lines.append(
            f"suggested shift S = {'none in range' if shift is None else shift} (chance {blind['chance']:.3f})"
        )
        lines.append(statistics["ties_text"])
    document = measured | ({} if statistics is None else {"labels": statistics})
    if note := sharing(stream):
        lines.append(f"Warning: {note}")
        document["warning"] = note
    if sampled is not None:
        lines.append(f"from {sampled:,} evenly spaced samples of each split; --exact uses all")
        document["samples_of_each_split"] = sampled
    show(as_json, document, "\n".join(lines))


@command(stream_app, "show", "driftline stream show stream --out sheets")
def stream_show(
    path: StreamFolder,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for contact sheets, one per split.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every array again.")] = False,
    as_json: Json = False,
) -> None:
    """Show a stream's steps, splits and sizes.

    With --out, also draw contact sheets with a row per step.
    """
    from driftline.stream_builder.stream import Stream

    stream = Stream.load(path)
    if verify:
        stream.verify(path)
    sheets = []
    if out is not None:
        from driftline.stream_builder.export.contact_sheet import write_contact_sheet

        splits = dict.fromkeys(name for step in stream.steps for name in step.splits)
        sheets = [str(write_contact_sheet(stream, out / f"{name}.png", name)) for name in splits]
    document = {
        "name": stream.name,
        "sha256": stream.sha256,
        "classes": list(stream.classes),
        "x_shape": list(stream.x_shape),
        "steps": [
            {"index": s.index, "name": s.name, "splits": {k: len(v) for k, v in s.splits.items()}} for s in stream.steps
        ],
        "facts": dict(stream.facts),
        "ties": stream.ties(),
        "sheets": sheets,
    }
    lines = [f"{stream.name}  {stream.sha256[:12]}  samples of shape {stream.x_shape}, {len(stream.classes)} classes"]
    lines += [f"  {s.name:<12}" + "  ".join(f"{k} {len(v):,}" for k, v in s.splits.items()) for s in stream.steps]
    lines += [stream.ties_text(), *(f"  contact sheet: {name}" for name in sheets)]
    show(as_json, document, "\n".join(lines))


@command(stream_app, "export", "driftline stream export S --format imagefolder --out exports")
def stream_export(
    path: StreamFolder,
    formats: Annotated[
        str,
        typer.Option(
            "--format",
            help="Separated by commas: names (driftline list stream-exports), package.module:Name.",
            autocompletion=completion("stream-exports"),
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder; each format gets a folder in it.")],
    as_json: Json = False,
) -> None:
    """Export a stream in layouts that other libraries load."""
    from driftline.curate.core.outputs import refill
    from driftline.stream_builder.export import EXPORTS
    from driftline.stream_builder.stream import Stream

    exporters = {name: EXPORTS.resolve(name) for name in comma_separated(formats)}
    stream = Stream.load(path)
    counts = {name: refill(out / name, partial(export, stream)) for name, export in exporters.items()}
    show(as_json, {"stream": stream.name, "exports": counts}, counts_text(counts, out))
