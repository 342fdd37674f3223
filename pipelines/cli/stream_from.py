"""`driftline stream from-…`: streams from releases, datasets and the shipped baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from driftline.pipelines.cli.common import command
from driftline.pipelines.cli.listing import completion
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.stream_options import (
    DATA,
    DRAWS,
    PERIOD,
    DataDir,
    Download,
    EncoderDevice,
    Grouping,
    Labels,
    Order,
    Out,
    Paper,
    Seed,
    Size,
    TestShare,
    TrainedUntil,
    facts_of,
    option,
    save,
    tell,
)
from driftline.pipelines.face import streams

from_app = typer.Typer()


@command(
    from_app,
    "from-release",
    "driftline stream from-release photos2024 --out stream",
    needs={"--template --text-encoder --device": "--texts", "--test-share --order --grouping": "--period"},
)
def stream_from_release(
    path: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="A release folder, or the run folder that published it.")
    ],
    out: Out,
    features: Annotated[
        str | None,
        option(
            "--features", "NAME", "Of the release (default: its first); pixels:SIZE; images:SIZE, decoded on access."
        ),
    ] = None,
    split: Annotated[
        int | None,
        option("--split", "N", "Which split of the release (default: 0); the others are stored, too.", DRAWS, min=0),
    ] = None,
    period: Annotated[
        str | None,
        option("--period", PERIOD, "Steps by upload time, instead of buckets and splits; N: so many steps.", DRAWS),
    ] = None,
    test_share: TestShare = 0.1,
    order: Order = "natural",
    grouping: Grouping = "grouped",
    texts: Annotated[
        bool, option("--texts", None, "Also store vectors of the prompts, for learners such as zero-shot.")
    ] = False,
    template: Annotated[
        list[str] | None,
        option("--template", "TEXT", "With --texts: instead of prompts, as in 'a photo of a {}'. Repeatable."),
    ] = None,
    text_encoder: Annotated[
        str | None, option("--text-encoder", "KIND:MODEL:WEIGHTS", "With --texts (default: as the release says).")
    ] = None,
    device: EncoderDevice = "auto",
    paper: Paper = None,
    trained_until: TrainedUntil = None,
    seed: Seed = 0,
) -> None:
    """Turn a release into a stream: a step for each bucket.

    With --period, steps are cut by upload time instead, for online evaluation (near-future); --test-share, --order and
    --grouping are about these steps.
    """
    guarded_out(out, "stream")
    stream = streams.from_release(
        path, features, split=split, period=period, test_share=test_share, order=order, grouping=grouping, texts=texts,
        template=template or (), text_encoder=text_encoder, device=device, paper=paper, trained_until=trained_until,
        seed=seed,
    )  # fmt: skip
    tell([save(stream, out)], *(["near-future"] if period is not None else []))


@command(
    from_app,
    "from-dataset",
    "driftline stream from-dataset banking77 --encoder ngrams:2048 --out S",
    needs={"--evaluate --order": "--held-out", "--device": "--encoder"},
)
def stream_from_dataset(
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA, autocompletion=completion("datasets"))],
    out: Out,
    held_out: Annotated[
        int | None,
        option("--held-out", "N", "Number of classes that come later, in a second step, for corrections.", DRAWS),
    ] = None,
    evaluate: Annotated[int, option("--evaluate", "N", "Test samples of each step, at most.", DRAWS, min=1)] = 400,
    order: Annotated[
        Literal["shuffled", "file"], option("--order", None, "Of the first step's training samples.", DRAWS)
    ] = "shuffled",
    encoder: Annotated[
        str | None,
        option("--encoder", "SPEC", "Vectors instead of the samples: ngrams:2048, … (driftline list encoders)."),
    ] = None,
    device: EncoderDevice = "auto",
    data_dir: DataDir = None,
    labels: Labels = None,
    size: Size = 32,
    download: Download = False,
    seed: Seed = 0,
) -> None:
    """Turn a dataset with train and test into a stream.

    Images, vectors or texts. One step; with --held-out two, for corrections (OCRR).
    """
    guarded_out(out, "stream")
    stream = streams.from_dataset(
        data, held_out=held_out, evaluate=evaluate, order=order, encoder=encoder, device=device, data_dir=data_dir,
        labels=labels, size=size, download=download, seed=seed,
    )  # fmt: skip
    tell([save(stream, out)], "ocrr")


@command(from_app, "from-baseline", "driftline stream from-baseline painted-fruit --out fruit")
def stream_from_baseline(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="As driftline list baselines shows it.", autocompletion=completion("baselines")
        ),
    ],
    out: Out,
) -> None:
    """Write a stream whose results come with driftline.

    Compare your own with them: driftline leaderboard ours.zip --baselines --stream OUT --out board.md.
    """
    from driftline.eval.leaderboard.baselines import options_of, unpacked

    guarded_out(out, "stream")
    tell([facts_of(unpacked(name, out), out)], *options_of(name))
