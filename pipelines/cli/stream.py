"""`driftline stream …`: create, show, measure and export streams."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig, did_you_mean
from driftline.pipelines.cli.common import (
    Json,
    Workers,
    comma_separated,
    command,
    counts_text,
    executor_of,
    group_app,
    log_of,
    several,
    show,
)
from driftline.pipelines.cli.feature_zoo import encoded_at, encoders_of, opened
from driftline.pipelines.cli.imports import import_app
from driftline.pipelines.cli.listing import completion
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.stream_from import from_app
from driftline.pipelines.cli.stream_options import (
    DATA,
    DRAWS,
    FIDELITY,
    INPUT,
    OUTPUT,
    PAPER,
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
    option,
    save,
    tell,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

stream_app = group_app(
    "Create, show, measure and export streams.", "driftline stream from-folder-by-time album --out by-year"
)
stream_app.add_typer(from_app)
stream_app.add_typer(import_app)

StreamFolder = Annotated[Path, typer.Argument(metavar="STREAM", help="A stream folder.")]
EXPORT = "driftline stream export STREAM --format imagefolder --out exports"


@command(stream_app, "encode", "driftline stream encode photos2024 --encoder ngrams:2048 --out E")
def stream_encode(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A stream of images or texts, a release, or a run.")],
    out: Annotated[Path, option("--out", "DIR", "Folder; the stream of each encoder is in OUT/NAME.", OUTPUT)],
    encoder: Annotated[
        list[str],
        option("--encoder", "[NAME=]SPEC", "KIND:MODEL:WEIGHTS (driftline list encoders). Repeatable."),
    ],
    device: EncoderDevice = "auto",
    bits: Bits = "16",
    as_json: Json = False,
) -> None:
    """Encode a stream's samples with other encoders.

    Writes one stream of vectors for each. What is already encoded is not encoded again.
    """
    guarded_out(out)
    places = {guarded_out(out / name, "stream"): (name, spec) for name, spec in encoders_of(several(encoder)).items()}
    stream, source = opened(path)
    log, stored = log_of(None, as_json), 8 if bits == "8" else 16
    saved = [
        facts_of(encoded_at(stream, source, name, spec, place, device, run_log=log, bits=stored), place)
        for place, (name, spec) in places.items()
    ]
    tell(as_json, saved, out=out)


@command(
    stream_app,
    "compose",
    'driftline stream compose --base cifar10 --sequence "C:L:R"\n  --sizes 600,400,600,400 --out S',
)
def stream_compose(
    base: Annotated[str, option("--base", "DATA", DATA, autocompletion=completion("datasets"))],
    sequence: Annotated[
        str,
        option(
            "--sequence",
            "SHIFTS",
            "Shifts of the steps after the source, as in C:L:R (driftline list shifts); several at one step: C,T; with "
            "settings: R(45); ~R grows over its step; your own: {package.module:Name}. Or portraits: of yearbooks, "
            "folders M and F in --base, a step for each decade.",
            INPUT,
            autocompletion=completion("shifts"),
        ),
    ],
    out: Out,
    sizes: Annotated[
        str | None,
        option("--sizes", "N,N,…", "Samples of each step, the source step first (default: the paper's).", DRAWS),
    ] = None,
    test_size: Annotated[int, option("--test-size", "N", "Test samples of the last step.", DRAWS, min=1)] = 5000,
    seed: Seed = 0,
    seeds: Annotated[
        str | None,
        option("--seeds", "N-N", "As in 0-4: one stream for each, in OUT/seed-0 …; eval takes OUT as one.", DRAWS),
    ] = None,
    fidelity: Annotated[Fidelity, option("--fidelity", None, FIDELITY, PAPER)] = "clean",
    overlap: Annotated[
        Literal["auto", "independent", "validation", "disjoint"],
        option(
            "--overlap",
            None,
            "Images that steps share. disjoint: none; validation: only training images; independent: any; auto: the "
            "strictest that the dataset is large enough for.",
            DRAWS,
        ),
    ] = "auto",
    draws: Annotated[
        Literal["auto", "published", "own"],
        option("--draws", None, "The samples published with the dataset, or own random ones.", PAPER),
    ] = "auto",
    balanced: Annotated[
        Literal["balanced", "natural"],
        option("--classes", None, "Equally many samples of each class, or as many as the dataset has.", DRAWS),
    ] = "balanced",
    augment: Annotated[
        Literal["auto", "none", "paper"],
        option("--augment", None, "Augmentation of training images, recorded for loaders.", PAPER),
    ] = "auto",
    val_share: Annotated[
        float, option("--val-share", "SHARE", "Share of validation samples.", DRAWS, min=0, max=0.9)
    ] = 0.2,
    priors: Annotated[
        Path | None,
        option("--priors", "FILE", "CSV without header: a row per step with the share of each class.", DRAWS),
    ] = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    size: Size = 32,
    download: Download = False,
    workers: Workers = "auto",
    oracle: Annotated[
        bool,
        option(
            "--oracle/--no-oracle", None, "Also data for the learner oracle, if the dataset is large enough.", PAPER
        ),
    ] = True,
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

    guarded_out(out, "stream" if seeds is None else "draws")
    if sizes is not None and not all(is_count(part.strip()) for part in sizes.split(",")):
        raise BadConfig(f"--sizes is {sizes!r}.", "Expected numbers separated by commas, as in 6000,4000,6000,4000.")
    if sequence == "portraits":
        from driftline.stream_builder.builders.portraits import portraits

        others = {
            "--sizes": sizes, "--test-size": test_size != 5000, "--seeds": seeds, "--overlap": overlap != "auto",
            "--draws": draws != "auto", "--classes": balanced != "balanced", "--augment": augment != "auto",
            "--val-share": val_share != 0.2, "--priors": priors, "--data-dir": data_dir, "--labels": labels,
            "--download": download, "--workers": workers != "auto", "--no-oracle": not oracle,
        }  # fmt: skip
        if typed := [name for name, value in others.items() if value]:
            raise BadConfig(f"{typed[0]} was given with --sequence portraits.", "Expected a sequence of shifts for it.")
        tell(as_json, [save(portraits(Path(base), size, seed, fidelity), out)], "seq-to-final")
        return
    composition = Composition(
        val_share, balanced, overlap, draws, augment=augment, fidelity=fidelity, priors=_table(priors)
    )
    one_draw = partial(
        compose, open_dataset(base, Options(data_dir, labels, size, download)), sequence,
        None if sizes is None else [int(part) for part in sizes.split(",")], test_size, composition=composition,
        workers=executor_of("local", workers).workers, oracle=oracle,
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
    tell(as_json, saved, "seq-to-final", out=out)


def _table(path: Path | None) -> npt.NDArray[np.float64] | None:
    import numpy as np

    if path is None:
        return None
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise BadConfig(f"--priors: {path} cannot be read ({error}).", "Expected numbers, no header.") from None


@command(stream_app, "measure", "driftline stream measure STREAM --distance w2,sliced --json")
def stream_measure(
    path: StreamFolder,
    distance: Annotated[
        str,
        option(
            "--distance",
            "NAME,…",
            "paper (W2, divided as in its table 5), names (driftline list distances), package.module:Name.",
            autocompletion=completion("distances"),
        ),
    ] = "paper",
    labels: Annotated[
        bool, option("--labels", None, "Also measure labels: drift of class frequencies, shift S.")
    ] = False,
    fidelity: Annotated[
        Fidelity | None,
        option(
            "--fidelity", None, "paper-code: stop the solver where the paper's code did (default: as composed).", PAPER
        ),
    ] = None,
    exact: Annotated[
        bool, option("--exact", None, "Use all samples of a large stream: minutes to hours, gigabytes.")
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


@command(stream_app, "show", "driftline stream show STREAM --out sheets")
def stream_show(
    path: StreamFolder,
    out: Annotated[Path | None, option("--out", "DIR", "Folder of contact sheets, one for each split.", OUTPUT)] = None,
    verify: Annotated[bool, option("--verify", None, "Hash every array again.")] = False,
    as_json: Json = False,
) -> None:
    """Show a stream's steps, splits and sizes.

    With --out, also draw contact sheets with a row per step.
    """
    from driftline.stream_builder.stream import Stream

    if out is not None:
        guarded_out(out)
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
        "out": None if out is None else str(out),
        "sheets": sheets,
    }
    lines = [f"{stream.name}  {stream.sha256[:12]}  samples of shape {stream.x_shape}, {len(stream.classes)} classes"]
    lines += [f"  {s.name:<12}" + "  ".join(f"{k} {len(v):,}" for k, v in s.splits.items()) for s in stream.steps]
    lines += [stream.ties_text(), *(f"  contact sheet: {name}" for name in sheets)]
    show(as_json, document, "\n".join(lines))


@command(stream_app, "export", EXPORT)
def stream_export(
    path: StreamFolder,
    formats: Annotated[
        list[str],
        option(
            "--format",
            "NAME,…",
            "Names (driftline list stream-exports), package.module:Name.",
            OUTPUT,
            autocompletion=completion("stream-exports"),
        ),
    ],
    out: Annotated[Path, option("--out", "DIR", "Folder; each format gets a folder in it.", OUTPUT)],
    sets: Annotated[
        list[str] | None,
        option(
            "--set",
            "KEY=VALUE",
            "Setting of a format. codabench: image, a Docker image with driftline, needed; protocol, clear-iid; seeds, "
            "0-4; title, the stream's name. Repeatable.",
            OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Export a stream in layouts that other libraries load.

    codabench: a bundle in which others submit learners, and our loop runs them without test labels.
    """
    from driftline.curate.core.outputs import refill
    from driftline.stream_builder.export import EXPORTS
    from driftline.stream_builder.stream import Stream

    guarded_out(out)
    exporters = _with_settings({name: EXPORTS.resolve(name) for name in several(formats)}, sets or ())
    stream = Stream.load(path)
    counts = {name: refill(out / name, partial(export, stream)) for name, export in exporters.items()}
    show(as_json, {"out": str(out), "stream": stream.name, "exports": counts}, counts_text(counts, out))


def _with_settings(exporters: Mapping[str, Callable[..., Any]], sets: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The exporters with their settings, which are their parameters after stream and folder. Raises BadConfig for one
    that no format has, and for a format that lacks one."""
    from driftline.pipelines.config.loader import setting_of

    chosen = dict(map(setting_of, sets))
    settings = {
        name: dict(list(inspect.signature(export).parameters.items())[2:]) for name, export in exporters.items()
    }
    available = {key for of_format in settings.values() for key in of_format}
    for key in chosen:
        if key not in available:
            hint = f"Available: {', '.join(sorted(available)) or 'none for these formats'}."
            raise BadConfig(f"Unknown setting {key!r} of an export.", did_you_mean(key, available), hint)
    for name, of_format in settings.items():
        if lacking := [key for key, one in of_format.items() if one.default is one.empty and key not in chosen]:
            raise BadConfig(f"The format {name} needs {lacking[0]}.", f"Expected --set {lacking[0]}=….")
    return {
        name: partial(export, **{key: chosen[key] for key in settings[name] if key in chosen})
        for name, export in exporters.items()
    }
