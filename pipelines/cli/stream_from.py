"""`driftline stream from-…`: streams from releases, arrays, tables, texts and datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Device, Json, command, log_of, next_step, show
from driftline.pipelines.cli.listing import completion

if TYPE_CHECKING:
    from driftline.curate.encoders import EncoderSpec
    from driftline.stream_builder.stream import Stream

from_app = typer.Typer()

Fidelity = Literal["clean", "paper-code"]
Out = Annotated[Path, typer.Option("--out", help="Folder for the stream.")]
Seed = Annotated[int, typer.Option("--seed", help="Random seed.")]
TieSeed = Annotated[int, typer.Option("--seed", help="Random seed of the order of equal times.")]
Base = Annotated[
    str,
    typer.Option(
        "--base",
        help="Dataset: a name (driftline list datasets), a path, or package.module:Name.",
        autocompletion=completion("datasets"),
    ),
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder with the files of a named dataset.")]
Labels = Annotated[
    Literal["fine", "coarse"] | None, typer.Option("--labels", help="For datasets that have both (default: coarse).")
]
Size = Annotated[int, typer.Option("--size", min=4, max=512, help="Edge of decoded images, in pixels.")]
Download = Annotated[bool, typer.Option("--download", help="Download a named dataset that is not in --data-dir.")]
Published = Annotated[
    str | None,
    typer.Option(
        "--published",
        help="Name of the data and features, as in clear10/moco-yfcc-b0: reports print the paper's values.",
    ),
]
TrainedUntil = Annotated[
    str | None,
    typer.Option(
        "--trained-until",
        metavar="DATE",
        help="Newest year, month or day that the vectors' encoder may have seen, as in 2021-01.",
    ),
]
Split = Annotated[
    Literal["grouped", "random"],
    typer.Option("--split", help="grouped: all samples of an uploader, and near copies, on one side, if known."),
]
Bits = Annotated[
    Literal["8", "16"],
    typer.Option("--bits", help="8: store vectors in 8 bits a number; prints the least cosine to the originals."),
]
EncoderDevice = Annotated[Device, typer.Option("--device", help="For the encoder.")]


def save(stream: Stream, out: Path, facts: dict[str, str] | None = None, bits: str = "16") -> dict[str, Any]:
    """Save a stream; returns its facts for the user. facts: recorded in addition to the stream's own."""
    return facts_of(stream.save(out, {**stream.facts, **(facts or {})}, 8 if bits == "8" else 16), out)


def facts_of(stream: Stream, out: Path) -> dict[str, Any]:
    """Facts about a saved stream, for the user."""
    return {
        "stream": stream.name,
        "sha256": stream.sha256,
        "steps": len(stream.steps),
        "samples": sum(len(split) for step in stream.steps for split in step.splits.values()),
        "classes": len(stream.classes),
        "folder": str(out),
        "shared_with_training": stream.shared_with_training(),
        "made": stream.facts.get("made"),
        "eight_bit_cosine": stream.facts.get("eight_bit_cosine"),
    }


def tell(as_json: bool, saved: Sequence[dict[str, Any]], protocol: str = "clear-iid", *more: str) -> None:
    """Print a line about each saved stream, and warn of test samples that are near training samples. protocol: which
    one such streams are made for, with `more` words of `driftline eval`."""
    lines = []
    for one in saved:
        size = f"{one['steps']} steps, {one['samples']:,} samples, {one['classes']} classes"
        lines.append(f"stream {one['stream']}: {size} in {one['folder']}")
        if one["eight_bit_cosine"] is not None:
            lines.append(f"In 8 bits the cosine of a vector to its original is at least {one['eight_bit_cosine']:.6f}.")
        if one["made"] is not None:
            lines.append(f"The file does not say everything, so the stream has {one['made']}.")
        if one["shared_with_training"]:
            typer.echo(
                f"Warning: {one['shared_with_training']:.1%} of its test samples share an uploader, or are near copies "
                "of, a training sample: tests in the same period are too easy.",
                err=True,
            )
    folder = Path(saved[0]["folder"])
    folder = folder if len(saved) == 1 else folder.parent
    lines.append(next_step("eval", folder, "--protocol", protocol, *more, "--learners", "all", "--out", "runs"))
    show(as_json, saved[0] if len(saved) == 1 else list(saved), "\n".join(lines))


def published_facts(published: str | None, trained_until: str | None = None) -> dict[str, str]:
    """What the user says of the data. Raises BadConfig for data without published values, and for no date."""
    from driftline.curate.encoders.seen import Seen, checked
    from driftline.eval.scoring.published_values import names

    if published is not None and published not in names():
        raise BadConfig(f"--published is {published!r}.", f"Expected one of {', '.join(names())}.")
    seen = Seen(checked(trained_until), "not stated", "--trained-until").facts() if trained_until else {}
    return ({"published": published} if published else {}) | seen


@command(from_app, "from-release", "driftline stream from-release photos2024 --out stream")
def stream_from_release(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A release folder, or the run folder that published it.")
    ],
    out: Out,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            help="A name in the release (default: its first), pixels:SIZE, or images:SIZE (decoded on access).",
        ),
    ] = None,
    split: Annotated[
        int,
        typer.Option(
            "--split",
            min=0,
            help="Which of the release's splits; the stream also knows the others (eval --set splits=published).",
        ),
    ] = 0,
    texts: Annotated[
        bool,
        typer.Option("--texts", help="Also store vectors of the release's prompts, for learners such as zero-shot."),
    ] = False,
    template: Annotated[
        list[str] | None,
        typer.Option("--template", help="With --texts: texts instead of the prompts, as in 'a photo of a {}'; repeat."),
    ] = None,
    text_encoder: Annotated[
        str | None,
        typer.Option("--text-encoder", help="With --texts: KIND:MODEL:WEIGHTS (default: as the release names it)."),
    ] = None,
    device: EncoderDevice = "auto",
    published: Published = None,
    trained_until: TrainedUntil = None,
    seed: TieSeed = 0,
    bits: Bits = "16",
    as_json: Json = False,
) -> None:
    """Turn a release into a stream: a step for each bucket."""
    from driftline.stream_builder.builders.release import from_release

    if (template or text_encoder) and not texts:
        raise BadConfig("--template and --text-encoder need --texts.")
    spec = _text_encoder(path, text_encoder, device) if texts else None
    facts = published_facts(published, trained_until)
    tell(as_json, [save(from_release(path, features, split, spec, template or (), seed), out, facts, bits)])


def _text_encoder(path: Path, name: str | None, device: str) -> EncoderSpec:
    """The encoder of the release's prompts. Raises BadConfig for a release that does not name it."""
    from driftline.curate.encoders import spec_of
    from driftline.curate.release import Release
    from driftline.pipelines.stages.embed import built_in

    if name is not None:
        spec = spec_of(name, device)
    else:
        maker = Release.open(path).facts["provenance"]["encoder"]
        if not maker.get("kind"):
            problem = f"The release does not say which encoder made its vectors ({maker['model']})."
            raise BadConfig(problem, "", "Name it: --text-encoder KIND:MODEL:WEIGHTS.")
        spec = spec_of(":".join(filter(None, (maker["kind"], maker["model"], maker.get("weights")))), device)
    return spec.model_copy(update={"model": built_in(spec.model) or spec.model})


@command(from_app, "from-arrays", "driftline stream from-arrays features.npz --out stream")
def stream_from_arrays(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.npz", help="Arrays x and y; optional step, time, split, group, id, classes."),
    ],
    out: Out,
    test_share: Annotated[
        float, typer.Option("--test-share", help="Without an array split: share of test samples that are drawn.")
    ] = 0.3,
    split: Split = "grouped",
    seed: Seed = 0,
    published: Published = None,
    trained_until: TrainedUntil = None,
    bits: Bits = "16",
    as_json: Json = False,
) -> None:
    """Turn arrays in an .npz file into a stream.

    Without steps, times are cut into ten steps; without splits, a test split is drawn.
    """
    from driftline.stream_builder.builders.arrays import from_arrays

    facts = published_facts(published, trained_until)
    tell(as_json, [save(from_arrays(file, test_share, seed, split), out, facts, bits)])


@command(from_app, "from-order", "driftline stream from-order photos2024 --periods 10 --out in-order")
def stream_from_order(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A release, a table (id, time, label), or order files of CGLM or CLOC."),
    ],
    out: Out,
    periods: Annotated[int, typer.Option("--periods", min=1, help="Steps, with equally many samples each.")] = 10,
    held_out: Annotated[
        float, typer.Option("--held-out", help="Share of each period in its test split, to measure retention.")
    ] = 0.1,
    order: Annotated[
        Literal["natural", "balanced"],
        typer.Option("--order", help="balanced: limit each class in a period to the median class's size."),
    ] = "natural",
    features: Annotated[
        str | None,
        typer.Option("--features", help="Of a release: a name or images:SIZE; of a table: an .npy file."),
    ] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Folder that image paths are relative to.")] = None,
    size: Size = 64,
    seed: Seed = 0,
    split: Split = "grouped",
    as_json: Json = False,
) -> None:
    """Put samples in time order, for online evaluation.

    A step is a period with equally many samples; some of them are its test samples.
    """
    from driftline.stream_builder.builders.time_order import in_time_order, open_timed

    stream = in_time_order(open_timed(path, features, root, size), periods, held_out, order, seed, split)
    tell(as_json, [save(stream, out)], "near-future")


@command(from_app, "from-texts", "driftline stream from-texts banking77 --encoder ngrams:2048 --out S")
def stream_from_texts(
    texts: Annotated[
        str,
        typer.Argument(metavar="TEXTS", help="A folder with tables *train* and *test*, a table, banking77, clinc150."),
    ],
    out: Out,
    data_dir: DataDir = None,
    download: Download = False,
    encoder: Annotated[
        str, typer.Option("--encoder", help="As in ngrams:2048 or sentence:MODEL (driftline list encoders), or none.")
    ] = "none",
    device: EncoderDevice = "auto",
    as_json: Json = False,
) -> None:
    """Turn labelled texts into a stream.

    Samples are texts, for learners that read, or vectors of an encoder.
    """
    from driftline.curate.encoders import spec_of
    from driftline.stream_builder.builders.encoded import count_samples, encode
    from driftline.stream_builder.builders.texts import from_texts
    from driftline.stream_builder.datasets import Options, open_dataset

    spec = None if encoder == "none" else spec_of(encoder, device)
    stream = from_texts(open_dataset(texts, Options(data_dir=data_dir, download=download)))
    if spec is not None:
        with log_of(None, as_json).progress("encode", count_samples(stream), "texts") as tick:
            stream = encode(stream, spec.load(), encoder, tick)
    tell(as_json, [save(stream, out)], "ocrr")


@command(from_app, "from-held-out", "driftline stream from-held-out --base intent.npz --out corrections")
def stream_from_held_out(
    base: Base,
    out: Out,
    held_out: Annotated[int, typer.Option("--held-out", help="Number of classes that come later.")] = 10,
    evaluate: Annotated[int, typer.Option("--evaluate", min=1, help="Test samples of each step, at most.")] = 400,
    order: Annotated[
        Literal["shuffled", "file"], typer.Option("--order", help="Order of the first step's training samples.")
    ] = "shuffled",
    data_dir: DataDir = None,
    labels: Labels = None,
    size: Size = 32,
    download: Download = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Hold classes out of the first step; they come later.

    A stream for corrections (OCRR).
    """
    from driftline.stream_builder.builders.held_out_classes import hold_out_classes
    from driftline.stream_builder.datasets import Options, open_dataset

    dataset = open_dataset(base, Options(data_dir, labels, size, download))
    tell(as_json, [save(hold_out_classes(dataset, held_out, evaluate, seed, order), out)], "ocrr")


@command(from_app, "portraits", "driftline stream portraits faces --out portraits")
def stream_portraits(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folders M and F with files YEAR_….png.")],
    out: Out,
    size: Size = 32,
    fidelity: Annotated[Fidelity, typer.Option("--fidelity", help="paper-code: as the reference did.")] = "clean",
    seed: Seed = 1007,
    as_json: Json = False,
) -> None:
    """Split yearbook portraits by decade, as in Seq-to-Final."""
    from driftline.stream_builder.builders.portraits import portraits

    tell(as_json, [save(portraits(folder, size, seed, fidelity), out)], "seq-to-final")


@command(from_app, "from-baseline", "driftline stream from-baseline painted-fruit --out fruit")
def stream_from_baseline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="painted-fruit, photo-world or banking77.")],
    out: Out,
    as_json: Json = False,
) -> None:
    """Write a stream whose results come with driftline.

    Compare your own with them: driftline leaderboard ours.zip --baselines --stream OUT --out board.md.
    """
    from driftline.eval.leaderboard.baselines import options_of, unpacked

    tell(as_json, [facts_of(unpacked(name, out), out)], *options_of(name))
