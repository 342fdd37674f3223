"""`driftline stream from-release`, `from-dataset`, `from-baseline`, `compose`: streams of what driftline knows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.actions.action import Device, Shown, action, flag_of
from driftline.pipelines.actions.common import executor_of, guarded_out
from driftline.pipelines.actions.makers import facts_of, maker, save, saved_text, stream_app
from driftline.pipelines.kinds import Counts, Data, Names, Place, Table, path_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from driftline.curate.encoders import EncoderSpec
    from driftline.curate.release.format import Release
    from driftline.stream_builder.datasets import Dataset
    from driftline.stream_builder.stream import Stream

Fidelity = Literal["clean", "paper-code"]
COMPOSE = 'driftline stream compose --base cifar10 --sequence "C:L:R"\n  --sizes 600,400,600,400 --out S'
PORTRAITS_LACK = ("sizes", "test_size", "overlap", "draws", "classes", "augment", "val_share", "priors", "data_dir",
                  "labels", "download", "oracle")  # fmt: skip


@maker(
    "driftline stream from-release photos2024 --out stream", facts=("paper", "trained_until"),
    needs={"--template --text-encoder --device": "--texts", "--test-share --grouping": "--period"},
)  # fmt: skip
def from_release(
    release: Place, features: str | None = None, *, split: int | None = None, period: str | int | None = None,
    test_share: float = 0.1, grouping: Literal["grouped", "random"] = "grouped", texts: bool = False,
    template: Names = (), text_encoder: str | None = None, device: Device = "auto", seed: int = 0,
) -> Stream:  # fmt: skip
    """Turn a release into a stream: a step for each bucket.

    With --period, steps are cut by upload time instead, for online evaluation (near-future); --test-share and
    --grouping are about these steps.

    release RELEASE: A release, or the run that published it.
    features NAME: Of the release (default: its first); pixels:SIZE; images:SIZE, decoded on access.
    split N: Which split of the release (default: 0); the others are stored, too.
    period year|month|week|day|N: Steps by upload time, instead of buckets and splits; N: so many steps.
    texts: Also store vectors of the prompts, for learners such as zero-shot.
    template TEXT: With --texts: instead of prompts, as in 'a photo of a {}'. Repeatable.
    text_encoder KIND:MODEL:WEIGHTS: With --texts (default: as the release says).
    """
    from driftline.curate.release.format import Release
    from driftline.stream_builder.builders import release as builder
    from driftline.stream_builder.builders.table import in_time_order, timed_release

    opened = release if isinstance(release, Release) else Release.open(path_of(release))
    if period is not None:
        if split is not None or texts:
            raise BadConfig(f"--{'texts' if texts else 'split'} was given with --period.", "Expected one of them.")
        return in_time_order(timed_release(opened.path, features), str(period), test_share, seed, grouping)
    load = _text_encoder(opened, text_encoder, device).load if texts else None
    return builder.from_release(
        opened, features, split or 0, load, [template] if isinstance(template, str) else template, seed
    )


def _text_encoder(release: Release, name: str | None, device: str) -> EncoderSpec:
    """The encoder of the release's prompts. Raises BadConfig for a release that does not name it."""
    from driftline.curate.encoders import spec_of
    from driftline.pipelines.stages.embed import built_in

    if name is not None:
        spec = spec_of(name, device)
    else:
        maker = release.facts["provenance"]["encoder"]
        if not maker.get("kind"):
            problem = f"The release does not say which encoder made its vectors ({maker['model']})."
            raise BadConfig(problem, "", "Name it: --text-encoder KIND:MODEL:WEIGHTS.")
        spec = spec_of(":".join(filter(None, (maker["kind"], maker["model"], maker.get("weights")))), device)
    return spec.model_copy(update={"model": built_in(spec.model) or spec.model})


@maker("driftline stream from-dataset banking77 --out texts", "ocrr", completes={"data": "datasets"})
def from_dataset(
    data: Data, *, data_dir: Place | None = None, labels: Literal["fine", "coarse"] | None = None, size: int = 32,
    download: bool = False,
) -> Stream:  # fmt: skip
    """Turn a dataset with train and test into a stream of one step.

    Images, vectors or texts (driftline stream encode).

    data DATA: A name (driftline list datasets), a path, or package.module:Name.
    """
    from driftline.stream_builder.builders.shift_sequence import from_dataset

    return from_dataset(_dataset(data, data_dir, labels, size, download))


def _dataset(
    data: Data, data_dir: Place | None, labels: Literal["fine", "coarse"] | None, size: int, download: bool
) -> Dataset:
    from driftline.stream_builder.datasets import Dataset, Options, open_dataset

    options = Options(None if data_dir is None else path_of(data_dir), labels, size, download)
    return data if isinstance(data, Dataset) else open_dataset(str(data), options)


@action(
    "driftline stream from-baseline painted-fruit --out fruit", name="from-baseline", group=stream_app,
    completes={"name": "baselines"},
)  # fmt: skip
def from_baseline(name: str, *, out: Place) -> Shown[dict[str, Any]]:
    """Write a stream whose results come with driftline.

    Compare your own with them: driftline leaderboard ours.zip --baselines --stream OUT --out board.md.

    name NAME: As driftline list baselines shows it.
    out DIR: Folder of the stream.
    """
    from driftline.eval.leaderboard.baselines import options_of, unpacked

    folder = guarded_out(path_of(out), "stream")
    saved = facts_of(unpacked(name, folder), folder)
    return Shown(saved, saved_text([saved], options_of(name)))


def _draws(make: Any, values: dict[str, Any], out: Path, seeds: str) -> list[dict[str, Any]]:
    """A stream for each seed, saved in out/seed-SEED; what they share is their family. Returns their facts."""
    from driftline.curate.core.atomic_io import fingerprint
    from driftline.eval.settings import seeds_of

    if values["sequence"] == "portraits":
        raise BadConfig("--seeds was given with --sequence portraits.", "Expected a sequence of shifts for it.")
    shares, saved = _table(values["priors"]), []
    for seed in seeds_of(seeds):
        stream = make(**values | {"seed": seed})
        alike = {key: value for key, value in stream.facts.items() if key not in ("seed", "shared")}
        options = [values[key] for key in ("test_size", "oracle", "val_share", "classes")]
        family = [alike, list(stream.classes), *options, [] if shares is None else shares.tolist()]
        saved.append(save(stream, out / f"seed-{seed}", {"family": fingerprint(family)}))
    return saved


@maker(
    COMPOSE, "seq-to-final", arguments=0, facts=("seeds",), many=_draws,
    completes={"base": "datasets", "sequence": "shifts"},
)  # fmt: skip
def compose(
    base: Data, sequence: str, sizes: Counts | None = None, *, test_size: int = 5000, seed: int = 0,
    overlap: Literal["auto", "independent", "validation", "disjoint"] = "auto",
    classes: Literal["balanced", "natural"] = "balanced", val_share: float = 0.2, priors: Table = None,
    fidelity: Fidelity = "clean", draws: Literal["auto", "published", "own"] = "auto",
    augment: Literal["auto", "none", "paper"] = "auto", oracle: bool = True, data_dir: Place | None = None,
    labels: Literal["fine", "coarse"] | None = None, size: int = 32, download: bool = False,
    workers: int | str = "auto",
) -> Stream:  # fmt: skip
    """Compose a stream from a dataset and a shift sequence.

    Shifts accumulate from step to step.

    base DATA: A name (driftline list datasets), a path, or package.module:Name.
    sequence SHIFTS: Shifts of the steps after the source, as in C:L:R (driftline list shifts); several at one step:
        C,T; with settings: R(45); ~R grows over its step; your own: {package.module:Name}. Or portraits: of yearbooks,
        folders M and F in --base, a step for each decade.
    sizes N,N,…: Samples of each step, the source step first (default: the paper's).
    test_size N: Test samples of the last step.
    seeds N-N: As in 0-4: a stream for each, in OUT/seed-0 …; eval takes OUT as one.
    overlap: Images that steps share. disjoint: none; validation: only training images; independent: any; auto: the
        strictest that the dataset is large enough for.
    classes: Equally many samples of each class, or as many as the dataset has.
    val_share SHARE: Share of validation samples.
    priors FILE: CSV without header: a row per step with the share of each class.
    draws: The samples published with the dataset, or own random ones.
    augment: Augmentation of training images, recorded for loaders.
    oracle: Also data for the learner oracle, if the dataset is large enough.
    """
    asked = dict(locals())
    from driftline.stream_builder.builders.sampling import Composition
    from driftline.stream_builder.builders.shift_sequence import compose as composed

    if sequence == "portraits":
        from driftline.stream_builder.builders.shift_sequence import portraits

        usual = inspect.signature(compose).parameters
        for key in PORTRAITS_LACK:
            if str(asked[key]) != str(usual[key].default):
                flag = flag_of(key).rpartition("/")[2]
                raise BadConfig(f"{flag} was given with --sequence portraits.", "Expected a sequence of shifts for it.")
        return portraits(Path(str(base)), size, seed, fidelity)
    dataset = _dataset(base, data_dir, labels, size, download)
    how = Composition(val_share, classes, overlap, draws, augment=augment, fidelity=fidelity, priors=_table(priors))
    number = executor_of("local", workers).workers
    return composed(dataset, sequence, _numbers(sizes), test_size, seed, how, workers=number, oracle=oracle)


def _numbers(sizes: Counts | None) -> list[int] | None:
    from driftline.curate.foreign.names import is_count

    parts = sizes.split(",") if isinstance(sizes, str) else sizes
    if isinstance(sizes, str) and not all(is_count(part.strip()) for part in sizes.split(",")):
        raise BadConfig(f"--sizes is {sizes!r}.", "Expected numbers separated by commas, as in 6000,4000,6000,4000.")
    return None if parts is None else [int(part) for part in parts]


def _table(priors: Table) -> npt.NDArray[np.float64] | None:
    import numpy as np

    if priors is None or not isinstance(priors, str | Path):
        return None if priors is None else np.asarray(priors, np.float64)
    try:
        return np.loadtxt(priors, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise BadConfig(f"--priors: {priors} cannot be read ({error}).", "Expected numbers, no header.") from None
