"""`driftline stream from-…`: streams from releases, datasets and the shipped baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Json, command, log_of
from driftline.pipelines.cli.listing import completion
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.stream_options import (
    DATA,
    DRAWS,
    PERIOD,
    Bits,
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
    paper_facts,
    save,
    tell,
)

if TYPE_CHECKING:
    from driftline.curate.encoders import EncoderSpec

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
    bits: Bits = "16",
    as_json: Json = False,
) -> None:
    """Turn a release into a stream: a step for each bucket.

    With --period, steps are cut by upload time instead, for online evaluation (near-future); --test-share, --order and
    --grouping are about these steps.
    """
    guarded_out(out, "stream")
    facts = paper_facts(paper, trained_until)
    if period is not None:
        from driftline.stream_builder.builders.time_order import in_time_order, timed_release

        if split is not None or texts:
            raise BadConfig(f"{'--texts' if texts else '--split'} was given with --period.", "Expected one of them.")
        stream = in_time_order(timed_release(path, features), period, test_share, order, seed, grouping)
        tell(as_json, [save(stream, out, facts, bits)], "near-future")
        return
    from driftline.stream_builder.builders.release import from_release

    spec = _text_encoder(path, text_encoder, device) if texts else None
    tell(as_json, [save(from_release(path, features, split or 0, spec, template or (), seed), out, facts, bits)])


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
    as_json: Json = False,
) -> None:
    """Turn a dataset with train and test into a stream.

    Images, vectors or texts. One step; with --held-out two, for corrections (OCRR).
    """
    from driftline.curate.encoders import spec_of
    from driftline.stream_builder.builders.dataset import from_dataset
    from driftline.stream_builder.builders.encoded import count_samples, encode
    from driftline.stream_builder.datasets import Options, open_dataset

    guarded_out(out, "stream")
    spec = None if encoder is None else spec_of(encoder, device)
    dataset = open_dataset(data, Options(data_dir, labels, size, download))
    stream = from_dataset(dataset, held_out, evaluate, order, seed)
    if spec is not None and encoder is not None:
        with log_of(None, as_json).progress("encode", count_samples(stream), "samples") as tick:
            stream = encode(stream, spec.load(), encoder, tick)
    tell(as_json, [save(stream, out)], "ocrr")


@command(from_app, "from-baseline", "driftline stream from-baseline painted-fruit --out fruit")
def stream_from_baseline(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="As driftline list baselines shows it.", autocompletion=completion("baselines")
        ),
    ],
    out: Out,
    as_json: Json = False,
) -> None:
    """Write a stream whose results come with driftline.

    Compare your own with them: driftline leaderboard ours.zip --baselines --stream OUT --out board.md.
    """
    from driftline.eval.leaderboard.baselines import options_of, unpacked

    guarded_out(out, "stream")
    tell(as_json, [facts_of(unpacked(name, out), out)], *options_of(name))
