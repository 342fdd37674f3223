"""The control of what `evaluate` returned: the same learners on streams where nothing can age (see `visits`).

The control of a stream is K draws of permuted times, each an ordinary run below RUNS/control; draw k uses the seed
k mod S of the S seeds. What it says of ageing is in `driftline.eval.scoring.net`.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.eval.predictions import groups_of
from driftline.eval.protocol import Protocol, stored_protocol
from driftline.eval.protocols.clear import EqualIid, EqualStreaming, HalfIid, HalfStreaming, Iid, Streaming
from driftline.eval.reporting.text import seconds_text
from driftline.eval.results import Results
from driftline.eval.rows import CONTROL, Run, folder_name, stored_name
from driftline.eval.run import evaluate as run_all
from driftline.eval.run import several
from driftline.eval.scoring import net
from driftline.eval.scoring.aggregate import plain
from driftline.eval.settings import setting_names, spec_of
from driftline.eval.training.closed_form import ClosedForm
from driftline.eval.visits import invalid, permuted, visits_of
from driftline.stream_builder.stream import Stream

DRAWS, LEAST = 20, 5  # by default, and at least
STEPS = 3  # dated steps of a stream that has a control by default
MOST_SECONDS = 60.0  # that a default control may take


def controlled(
    results: Results,
    learners: Any,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    *,
    control: int | None = None,
    equal_data: bool = False,
    log: RunLog | None = None,
    **more: Any,
) -> Results:
    """What `driftline.eval.run.evaluate` returned, with `ageing` in each result of a CLEAR protocol.

    learners, settings, out and more (`executor`, `stream_folder`, `preset`, `reuse`): as for `evaluate`. control: draws
    of the control, 0 for none; None: 20 for closed forms, if the stream has at least three dated steps and they take at
    most a minute. Runs with several values of a setting of the protocol have none. equal_data: also what models lose
    that all learn the newest n samples, n the training samples of the least step. log: tells the cost before."""
    if results["protocol"] not in net.PROTOCOLS or not results.runs:
        return results
    if results.on is not None and len({str(run.about["protocol_settings"]) for run in results.runs}) == 1:
        seeds = list(dict.fromkeys(run.about["seed"] for run in results.runs))
        place = None if out is None else Path(out)
        work = _Work(results.on, seeds, dict(settings or {}), place, list(results.runs), more)
        drawn = _control(work, several(learners), control, log)
        if equal_data:
            _keep_plan(work, drawn.because, drawn.wanted)
            numbers, cost = [("equal", seed, seed) for seed in seeds], f"{len(seeds)} × this run, or less"
            equal = _run(work, several(learners), numbers, log, f"  equal data: {cost}")
            drawn = replace(drawn, draws=[*drawn.draws, *equal])
        results.control = drawn
    clusters = None if results.on is None else groups_of(results.on)
    for result, one in zip(results["results"], net.nets_of(results.runs, results.control, clusters), strict=True):
        result |= {} if one is None else {"ageing": one.said()}
    return results


def check_draws(control: int | None) -> None:
    """Raise BadConfig for fewer than five draws."""
    if control is not None and (control < 0 or 0 < control < LEAST):
        raise BadConfig(f"control is {control}.", f"Expected 0 for none, or at least {LEAST} draws.")


@dataclass(frozen=True)
class _Work:
    """What the runs of a control have in common with those that they are the control of."""

    stream: Stream
    seeds: list[int]
    settings: dict[str, Any]
    out: Path | None
    runs: list[Run]
    """on the stream itself"""
    more: dict[str, Any]
    """further arguments of `run.evaluate`"""


@dataclass(frozen=True)
class _Task:
    """One draw."""

    stream: Stream | Path
    protocol: Protocol
    """of the runs whose control it is"""
    learners: list[Any]
    kind: net.Kind
    draw: int
    seed: int
    settings: dict[str, Any]
    out: Path | None
    more: dict[str, Any]


def _control(work: _Work, learners: Sequence[Any], wanted: int | None, log: RunLog | None) -> net.Control:
    """The draws, run or found."""
    years = net.years_of(work.runs[0].about)
    if wanted is None:
        learners = [one for one in learners if issubclass(spec_of(one).kind, ClosedForm)]
    if wanted == 0 or not learners or years is None or (wanted is None and len(work.stream.steps) < STEPS):
        return net.NO_CONTROL
    count, protocol = DRAWS if wanted is None else wanted, _protocol(work)
    split = _split(work.stream, protocol, work.seeds[0])
    visits = visits_of(split)
    kinds = ("within", "all") if visits.mixes() else ("within",)
    names = {spec_of(one).name for one in learners}
    seconds = sum(run.about["seconds"] for run in work.runs if run.about["learner"] in names) / len(work.seeds)
    numbers = [(kind, k, work.seeds[k % len(work.seeds)]) for k in range(count) for kind in kinds]
    numbers += [("half", k, work.seeds[k % len(work.seeds)]) for k in range(max(LEAST, count // 2))]
    cost = f"{len(numbers)} × this run, about {seconds_text(len(numbers) * seconds)}"
    because = invalid(split, visits)
    if not because and wanted is None and len(numbers) * seconds > MOST_SECONDS:
        because = f"It has no control, which would take {cost}: --control {DRAWS} runs it."
    _keep_plan(work, because, count)
    if because:
        return net.Control(count, because)
    return net.Control(count, "", _run(work, learners, numbers, log, f"  control, times permuted: {cost}"))


def _run(
    work: _Work, learners: Sequence[Any], numbers: Sequence[tuple[Any, int, int]], log: RunLog | None, cost: str
) -> list[net.Draw]:
    """Draws by kind, number and seed."""
    protocol = _protocol(work)
    finished = {run.about["learner"] for run in work.runs}
    learners = [one for one in learners if spec_of(one).name in finished]
    more: dict[str, Any] = {key: work.more[key] for key in ("preset", "reuse") if key in work.more}
    executor, folder = work.more.get("executor") or Executor(), work.more.get("stream_folder")
    apart = folder is not None and work.out is not None and all(isinstance(one, str) for one in learners)
    on = Path(folder) if folder is not None and apart and executor.workers > 1 else work.stream
    tasks = [
        _Task(on, protocol, list(learners), kind, draw, seed, _settings(work, learners, protocol, seed),
              work.out and work.out / CONTROL / f"{kind}-{draw}", more)
        for kind, draw, seed in numbers
    ]  # fmt: skip
    draws_of_run: dict[int, list[net.Draw]] = {}
    if log is not None:
        log.say(cost)
    with log.progress("control", len(tasks), "draws") if log is not None else nullcontext(lambda n: None) as tick:
        for i, draws in (executor if apart else Executor()).run_tasks(_draw, tasks):
            draws_of_run[i] = draws
            tick(1)
    return [draw for i in sorted(draws_of_run) for draw in draws_of_run[i]]


def _protocol(work: _Work) -> Protocol:
    """That of the runs."""
    about = work.runs[0].about
    return stored_protocol(about["protocol"])(**about["protocol_settings"])


def _split(stream: Stream, protocol: Protocol, seed: int) -> Stream:
    """The stream with the sides that a run of this seed has."""
    if not isinstance(protocol, Iid) or protocol.splits == "stream":
        return stream
    split = protocol.split(stream, rng_for(seed, "clear-iid", "walk"), seed)
    return replace(split, sha256=fingerprint([stream.sha256, asdict(protocol), seed]))


def _keep_plan(work: _Work, because: str, count: int) -> None:
    """Store how many draws are wanted, for reports."""
    if work.out is None:
        return
    protocol = work.runs[0].about["protocol"]
    path = work.out / CONTROL / f"{folder_name(protocol)}-{work.stream.sha256[:12]}.json"
    before = read_json(path)["wanted"] if path.is_file() else 0
    about = {"protocol": protocol, "of": work.stream.sha256, "because": because}
    write_json(path, about | {"wanted": max(count, before)})


def _settings(work: _Work, learners: Sequence[Any], protocol: Protocol, seed: int) -> dict[str, Any]:
    """Of these learners, with what they chose on the stream itself."""
    specs, own = [spec_of(one) for one in learners], setting_names(type(protocol))
    settings: dict[str, Any] = {}
    for key, value in work.settings.items():
        owner, dot, field = key.rpartition(".")
        theirs = (s for s in specs if field in s.settings and owner in ("", s.name, s.name.partition("(")[0]))
        if any(theirs) and (dot or field not in own):
            settings[key] = value
    names = {spec.name for spec in specs}
    for run in work.runs:
        if run.about["seed"] == seed and run.about["learner"] in names:
            settings |= {f"{run.about['learner']}.{key}": v for key, v in run.about.get("chosen", {}).items()}
    return settings


def _draw(task: _Task) -> list[net.Draw]:
    """Run one draw, and store beside each run what it loses."""
    stream, protocol = task.stream if isinstance(task.stream, Stream) else Stream.load(task.stream), task.protocol
    on, iid = _split(stream, protocol, task.seed), isinstance(protocol, Iid)
    if task.kind == "equal":
        protocol = EqualIid() if iid else EqualStreaming()
    elif task.kind == "half":
        protocol = HalfIid(draw=task.draw) if iid else HalfStreaming(task.draw)
    else:
        on = permuted(on, visits_of(on), task.kind, task.draw, task.seed)
        protocol = Iid() if iid else protocol
    results = run_all(on, protocol, task.learners, [task.seed], task.settings, task.out, scored=False, **task.more)
    draws, clusters = [], groups_of(on)
    for run in results.runs:
        key = net.key_of({**run.about, "protocol_settings": asdict(task.protocol)})
        variance = net.over_samples([run], net.pairs_in(run).cells(len(stream.steps))[None], clusters)[0].variance
        draws.append(net.Draw(task.kind, task.draw, task.seed, key, net.matrix_of(run), variance))
        if task.out is not None:
            folder = task.out / folder_name(run.about["protocol"]) / stored_name(run.about)
            of = {"protocol": net.PROTOCOLS[isinstance(task.protocol, Streaming)], "of": stream.sha256}
            write_json(folder / net.LOSS, plain(draws[-1]) | of)
    return draws
