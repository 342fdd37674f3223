"""Streams, evaluation and reports from Python, as the commands make them; `driftline stream from-release` and its
neighbours call these functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from driftline.curate.core.errors import BadConfig

if TYPE_CHECKING:
    from driftline.curate.encoders import EncoderSpec
    from driftline.curate.release.format import Release
    from driftline.eval.protocol import Document
    from driftline.eval.results import Results
    from driftline.pipelines.run.run_folder import Run
    from driftline.stream_builder.datasets import Dataset
    from driftline.stream_builder.stream import Stream

    Place = str | Path | Run | Release
Names = str | Sequence[str]


def from_release(
    release: Place, features: str | None = None, *, split: int | None = None, period: str | int | None = None,
    test_share: float = 0.1, order: Literal["natural", "balanced"] = "natural",
    grouping: Literal["grouped", "random"] = "grouped", texts: bool = False, template: Names = (),
    text_encoder: str | None = None, device: str = "auto", paper: str | None = None,
    trained_until: str | None = None, seed: int = 0,
) -> Stream:  # fmt: skip
    """A step for each bucket of a release; with `period`, steps by upload time.

    features: a name in the release (default: its first); `pixels:SIZE` for uint8 images; `images:SIZE` for the same as
    lazy images. The other parameters are the options of `driftline stream from-release`. Raises BadConfig.
    """
    from driftline.curate.release.format import Release
    from driftline.pipelines.cli.stream_options import paper_facts
    from driftline.pipelines.run.run_folder import Run
    from driftline.stream_builder.builders import release as builder
    from driftline.stream_builder.builders.time_order import in_time_order, timed_release

    facts = paper_facts(paper, trained_until)
    opened = (
        release if isinstance(release, Release) else Release.open(release.path if isinstance(release, Run) else release)
    )
    if period is not None:
        if split is not None or texts:
            raise BadConfig(f"{'texts' if texts else 'split'} was given with a period.", "Expected one of them.")
        cut = str(period)
        stream = in_time_order(timed_release(opened.path, features), cut, test_share, order, seed, grouping)
    else:
        spec = _text_encoder(opened, text_encoder, device) if texts else None
        templates = [template] if isinstance(template, str) else template
        stream = builder.from_release(opened, features, split or 0, spec, templates, seed)
    return replace(stream, facts={**stream.facts, **facts})


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


def from_dataset(
    data: Dataset | str | Path, *, held_out: int | None = None, evaluate: int = 400,
    order: Literal["shuffled", "file"] = "shuffled", encoder: str | None = None, device: str = "auto",
    data_dir: str | Path | None = None, labels: str | None = None, size: int = 32, download: bool = False,
    seed: int = 0,
) -> Stream:  # fmt: skip
    """A dataset with train and test as a stream of one step; with `held_out` classes that come later, of two.

    The parameters are the options of `driftline stream from-dataset`. Raises BadConfig, IncompatibleStream.
    """
    from driftline.curate.core.run_log import RunLog
    from driftline.curate.encoders import spec_of
    from driftline.stream_builder.builders import dataset as builder
    from driftline.stream_builder.builders.encoded import count_samples
    from driftline.stream_builder.builders.encoded import encode as encoded

    spec = None if encoder is None else spec_of(encoder, device)
    stream = builder.from_dataset(_dataset(data, data_dir, labels, size, download), held_out, evaluate, order, seed)
    if spec is not None and encoder is not None:
        with RunLog(None).progress("encode", count_samples(stream), "samples") as tick:
            stream = encoded(stream, spec.load(), encoder, tick)
    return stream


def _dataset(
    data: Dataset | str | Path, data_dir: str | Path | None, labels: str | None, size: int, download: bool
) -> Dataset:
    from driftline.stream_builder.datasets import Dataset, Options, open_dataset

    options = Options(None if data_dir is None else Path(data_dir), labels, size, download)
    return data if isinstance(data, Dataset) else open_dataset(str(data), options)


def compose(
    base: Dataset | str | Path,
    sequence: str,
    sizes: Sequence[int] | None = None,
    *,
    test_size: int = 5000,
    seed: int = 0,
    overlap: Literal["auto", "independent", "validation", "disjoint"] = "auto",
    classes: Literal["balanced", "natural"] = "balanced",
    val_share: float = 0.2,
    priors: Any = None,
    fidelity: Literal["clean", "paper-code"] = "clean",
    draws: Literal["auto", "published", "own"] = "auto",
    augment: Literal["auto", "none", "paper"] = "auto",
    oracle: bool = True,
    data_dir: str | Path | None = None,
    labels: str | None = None,
    size: int = 32,
    download: bool = False,
    workers: int = 1,
) -> Stream:
    """A stream of shifts (`C:L:R`, see `driftline list shifts`) of a dataset, a name, or a folder.

    sizes: samples of each step, the source first (default: the paper's). priors: (steps, classes) shares. The other
    parameters are the options of `driftline stream compose`. Raises IncompatibleStream, Shortage and BadConfig.
    """
    import numpy as np

    from driftline.stream_builder.builders.sampling import Composition
    from driftline.stream_builder.builders.shift_sequence import compose as composed

    dataset = _dataset(base, data_dir, labels, size, download)
    shares = None if priors is None else np.asarray(priors, np.float64)
    how = Composition(val_share, classes, overlap, draws, augment=augment, fidelity=fidelity, priors=shares)
    return composed(dataset, sequence, sizes, test_size, seed, how, workers=workers, oracle=oracle)


def measure(
    stream: str | Path | Stream, *, distance: Names = "paper", labels: bool = False,
    fidelity: Literal["clean", "paper-code"] | None = None, exact: bool = False, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """How far each step is from the last one, as `driftline stream measure`."""
    from driftline.stream_builder.measures.floors import measured
    from driftline.stream_builder.stream import Stream

    opened = stream if isinstance(stream, Stream) else Stream.load(stream)
    names = distance.split(",") if isinstance(distance, str) else list(distance)
    return measured(opened, names, labels, fidelity, exact, seed)


def evaluate(
    stream: str | Path | Stream,
    protocol: Any,
    learners: Any,
    seeds: int | Sequence[int] = 1,
    *,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    tune: Mapping[str, Sequence[Any]] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    workers: int = 1,
    engine: Literal["local", "ray", "slurm"] = "local",
    out: str | Path | None = None,
    reuse: Literal["same", "any"] = "same",
    control: int | None = None,
    equal_data: bool = False,
) -> Results:
    """Run every learner with every seed.

    stream: a stream, its folder, or a folder with draws of one stream, each of which is evaluated with its own seed.
    protocol: a name, `package.module:Name`, a class or an instance. learners: one or several: names, also as
    `er(memory=500)`, learners, scikit-learn classifiers. seeds: their number, or each of them. settings: of the
    protocol and of all learners that have such a setting; `{"er.memory": 500}`: of one. preset: a paper's settings.
    tune: setting → candidates. device: for learners with a network. workers, engine: runs side by side, of a stream's
    folder and with `out`. out: folder for rows; finished runs in it are not repeated. reuse: "any" takes them whatever
    their code. control: runs with times permuted, in which nothing can age (default: 20 of closed forms, if they take
    at most a minute; 0: none). equal_data: also models that all learn equally many newest samples. Shows progress on
    stderr. A learner that cannot run or crashes is a warning, and a row of `frame()`.
    Raises IncompatibleStream and BadConfig before any work.
    """
    import warnings

    from driftline.curate.core.executor import Executor
    from driftline.curate.core.run_log import RunLog
    from driftline.eval import run
    from driftline.eval.control import check_draws, controlled
    from driftline.eval.experiment.inputs import numbers_of, several
    from driftline.eval.experiment.learner_spec import spec_of
    from driftline.eval.training.sgd_learner import place

    check_draws(control)
    chosen = several(learners)
    specs = [spec_of(one) for one in chosen]
    where = place(device)
    mine = [spec for spec in specs if "device" in spec.settings and spec.instance is None]
    own = [spec.name.partition("(")[0] for spec in mine if "device" not in spec.with_name]
    of_device = {f"{name}.device": where for name in own}
    more: dict[str, Any] = {"out": out, "preset": preset, "tune": tune, "reuse": reuse}
    more["executor"] = Executor(engine, workers) if workers > 1 or engine != "local" else None
    settings = {**of_device, **(settings or {})}
    folder = Path(stream) if isinstance(stream, str | Path) else None
    draws = run.draws_of(folder) if folder is not None and not (folder / "stream.json").is_file() else {}
    of_plan: Any = (settings, None if out is None else Path(out), tune, preset, reuse)
    planned = run.plan(draws or stream, protocol, chosen, numbers_of(seeds), *of_plan)
    log = RunLog()
    with log.progress("evaluate", planned.runs - planned.finished, "runs") as more["progress"]:
        results = run.evaluate(draws or stream, protocol, chosen, seeds, settings, **more)
    asked: dict[str, Any] = {"control": control, "equal_data": equal_data, "log": log, "stream_folder": folder}
    asked |= {key: more[key] for key in ("preset", "reuse", "executor")}
    controlled(results, chosen, settings, out, **asked)
    for entry in results["skipped"]:
        warnings.warn(f"{entry['learner']} was skipped: {entry['because']}", stacklevel=2)
    return results


def report(
    results: Document | str | Path | Sequence[Document | str | Path],
    out: str | Path,
    *,
    title: str = "driftline report",
    stream: Sequence[str | Path | Stream] = (),
    figures: str | Path | None = None,
    format: Names = (),
    plugin: Names = (),
) -> Path:
    """Write the pages of what `evaluate` returned, or of folders of rows, into `out`; returns the path of index.html.
    stream: the evaluated streams, which add steps, drift and images. figures: a folder for the charts. format: csv,
    latex; default: both."""
    from driftline.eval.reporting.files.exports import checked_formats
    from driftline.eval.reporting.report import report as written
    from driftline.pipelines.cli.common import admit
    from driftline.stream_builder.stream import Stream

    admit([plugin] if isinstance(plugin, str) else list(plugin))
    streams = [stream] if isinstance(stream, str | Path | Stream) else stream
    loaded = [s if isinstance(s, Stream) else Stream.load(s) for s in streams]
    formats = checked_formats([format] if isinstance(format, str) else list(format))
    return written(results, out, title, loaded, None if figures is None else Path(figures), formats)
