"""`driftline stream compose`: a stream from a dataset and a sequence of shifts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Workers, command, executor_of
from driftline.pipelines.cli.listing import completion
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.stream_options import (
    DATA,
    DRAWS,
    FIDELITY,
    INPUT,
    PAPER,
    DataDir,
    Download,
    Fidelity,
    Labels,
    Out,
    Seed,
    Size,
    option,
    save,
    tell,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

compose_app = typer.Typer()

TEST_SIZE, VAL_SHARE = 5000, 0.2
EXAMPLE = 'driftline stream compose --base cifar10 --sequence "C:L:R"\n  --sizes 600,400,600,400 --out S'
Base = Annotated[str, option("--base", "DATA", DATA, autocompletion=completion("datasets"))]
Sequence = Annotated[
    str,
    option(
        "--sequence",
        "SHIFTS",
        "Shifts of the steps after the source, as in C:L:R (driftline list shifts); several at one step: C,T; with "
        "settings: R(45); ~R grows over its step; your own: {package.module:Name}. Or portraits: of yearbooks, folders "
        "M and F in --base, a step for each decade.",
        INPUT,
        autocompletion=completion("shifts"),
    ),
]
Sizes = Annotated[
    str | None,
    option("--sizes", "N,N,…", "Samples of each step, the source step first (default: the paper's).", DRAWS),
]
TestSize = Annotated[int, option("--test-size", "N", "Test samples of the last step.", DRAWS, min=1)]
Seeds = Annotated[
    str | None,
    option("--seeds", "N-N", "As in 0-4: a stream for each, in OUT/seed-0 …; eval takes OUT as one.", DRAWS),
]
Overlap = Annotated[
    Literal["auto", "independent", "validation", "disjoint"],
    option(
        "--overlap",
        None,
        "Images that steps share. disjoint: none; validation: only training images; independent: any; auto: the "
        "strictest that the dataset is large enough for.",
        DRAWS,
    ),
]
Draws = Annotated[
    Literal["auto", "published", "own"],
    option("--draws", None, "The samples published with the dataset, or own random ones.", PAPER),
]
Balanced = Annotated[
    Literal["balanced", "natural"],
    option("--classes", None, "Equally many samples of each class, or as many as the dataset has.", DRAWS),
]
Augment = Annotated[
    Literal["auto", "none", "paper"],
    option("--augment", None, "Augmentation of training images, recorded for loaders.", PAPER),
]
ValShare = Annotated[float, option("--val-share", "SHARE", "Share of validation samples.", DRAWS, min=0, max=0.9)]
Priors = Annotated[
    Path | None, option("--priors", "FILE", "CSV without header: a row per step with the share of each class.", DRAWS)
]
Oracle = Annotated[
    bool,
    option("--oracle/--no-oracle", None, "Also data for the learner oracle, if the dataset is large enough.", PAPER),
]


@command(compose_app, "compose", EXAMPLE)
def stream_compose(
    base: Base,
    sequence: Sequence,
    out: Out,
    sizes: Sizes = None,
    test_size: TestSize = TEST_SIZE,
    seed: Seed = 0,
    seeds: Seeds = None,
    fidelity: Annotated[Fidelity, option("--fidelity", None, FIDELITY, PAPER)] = "clean",
    overlap: Overlap = "auto",
    draws: Draws = "auto",
    balanced: Balanced = "balanced",
    augment: Augment = "auto",
    val_share: ValShare = VAL_SHARE,
    priors: Priors = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    size: Size = 32,
    download: Download = False,
    workers: Workers = "auto",
    oracle: Oracle = True,
) -> None:
    """Compose a stream from a dataset and a shift sequence.

    Shifts accumulate from step to step.
    """
    from driftline.curate.core.atomic_io import fingerprint
    from driftline.curate.core.outside.names import is_count
    from driftline.eval.experiment.settings import seeds_of
    from driftline.pipelines.face.streams import compose
    from driftline.stream_builder.datasets import Options, open_dataset

    guarded_out(out, "stream" if seeds is None else "draws")
    if sizes is not None and not all(is_count(part.strip()) for part in sizes.split(",")):
        raise BadConfig(f"--sizes is {sizes!r}.", "Expected numbers separated by commas, as in 6000,4000,6000,4000.")
    if sequence == "portraits":
        from driftline.stream_builder.builders.portraits import portraits

        others = {
            "--sizes": sizes, "--test-size": test_size != TEST_SIZE, "--seeds": seeds, "--overlap": overlap != "auto",
            "--draws": draws != "auto", "--classes": balanced != "balanced", "--augment": augment != "auto",
            "--val-share": val_share != VAL_SHARE, "--priors": priors, "--data-dir": data_dir, "--labels": labels,
            "--download": download, "--workers": workers != "auto", "--no-oracle": not oracle,
        }  # fmt: skip
        if typed := [name for name, value in others.items() if value]:
            raise BadConfig(f"{typed[0]} was given with --sequence portraits.", "Expected a sequence of shifts for it.")
        tell([save(portraits(Path(base), size, seed, fidelity), out)], "seq-to-final")
        return
    shares = _table(priors)
    one_draw = partial(
        compose, open_dataset(base, Options(data_dir, labels, size, download)), sequence,
        None if sizes is None else [int(part) for part in sizes.split(",")], test_size=test_size, overlap=overlap,
        classes=balanced, val_share=val_share, priors=shares, fidelity=fidelity, draws=draws, augment=augment,
        oracle=oracle, workers=executor_of("local", workers).workers,
    )  # fmt: skip
    if seeds is None:
        tell([save(one_draw(seed=seed), out)], "seq-to-final")
        return
    saved = []
    for each in seeds_of(seeds):
        stream = one_draw(seed=each)
        alike = {key: value for key, value in stream.facts.items() if key not in ("seed", "shared")}
        priors_of = [] if shares is None else shares.tolist()
        family = [alike, list(stream.classes), test_size, oracle, val_share, balanced, priors_of]
        saved.append(save(stream, out / f"seed-{each}", {"family": fingerprint(family)}))
    tell(saved, "seq-to-final", out=out)


def _table(path: Path | None) -> npt.NDArray[np.float64] | None:
    import numpy as np

    if path is None:
        return None
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise BadConfig(f"--priors: {path} cannot be read ({error}).", "Expected numbers, no header.") from None
