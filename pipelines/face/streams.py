"""Streams, evaluation and reports from Python, as the commands make them; `driftline stream from-release` and its
neighbours call these functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from driftline.curate.release.format import Release
    from driftline.eval.protocol import Document
    from driftline.eval.results import Results
    from driftline.pipelines.run.run_folder import Run
    from driftline.stream_builder.stream import Stream

    Place = str | Path | Run | Release
Names = str | Sequence[str]


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
