"""protocol × learner × seed → rows → the numbers of `driftline eval --json`."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curate.ground.errors import BadConfig, Diverged, Unfit
from curate.ground.files import fingerprint
from curate.ground.rng import rng_for
from curate.ground.text import value_of
from curate.ground.workers import Engine
from eval import published
from eval import rows as row_files
from eval.compare import half_width, paired
from eval.learner import Learner
from eval.learners import LEARNERS
from eval.protocol import PROTOCOLS, Walk
from eval.rows import Run
from eval.tune import Grid, choose
from stream_builder.stream import Stream

Settings = Mapping[str, Any]


def evaluate(
    stream: Stream,
    protocol: str,
    learners: Sequence[str | Learner | type[Learner]],
    seeds: Sequence[int] = (0,),
    settings: Settings | None = None,
    out: Path | None = None,
    tell: Callable[[int], None] = lambda n: None,
    where: Path | None = None,
    engine: Engine | None = None,
    tune: Grid | None = None,
) -> dict[str, Any]:
    """Run every learner with every seed; returns the document of `driftline eval --json`.

    learners: catalogue names, also with settings as in `reservoir(alpha=5)`, instances, or classes of your own.
    settings: `{"epochs": 10}` goes to the protocol or to every learner that has such a setting, `{"er.memory": 500}`
    to one learner. out: folder for rows; finished runs found there are not repeated. tell: called with 1 after each
    run. where, engine: the stream's folder, and processes or Ray that share the runs of catalogue learners; rows are
    the same as those of one process.

    tune: setting → candidates; each learner that has such settings chooses among them on a part of the first step's
    training data, for every seed, and its rows tell what it chose.

    Raises Unfit (the stream lacks what the protocol needs) and BadConfig (unknown setting) before any work.
    A learner that fails is listed under "skipped" with the reason; the others go on.
    """
    chosen = [_named(one) for one in learners]
    walk, per_learner = _settle(protocol, chosen, settings or {})
    walk.fit(stream)
    tuned = {name: {k: list(v) for k, v in (tune or {}).items() if k in _fields(make)} for name, make in chosen}
    if tune and (lost := sorted(set(tune) - {k for of in tuned.values() for k in of})):
        raise BadConfig(f"--tune names {lost[0]!r}.", "Expected a setting that a learner of this run has.")
    runs: list[Run] = []
    skipped: list[dict[str, str]] = []
    failed: dict[str, str] = {}
    shared: list[str] = []  # learners whose runs other processes do first
    if engine is not None and where is not None and out is not None and (engine.workers > 1 or engine.kind == "ray"):
        shared = [one for one in learners if isinstance(one, str)]
        tasks = [_Task(where, protocol, walk, n, per_learner[n], s, out, tuned[n]) for s in seeds for n in shared]
        for _, (name, because) in engine.spread(_shared_run, tasks):
            if because:
                failed.setdefault(name, because)
            tell(1)
    for name, make in chosen:
        if name in failed:
            skipped.append({"learner": name, "because": failed[name]})
            continue
        try:
            for seed in seeds:
                runs.append(_one(stream, protocol, walk, name, make, per_learner[name], seed, out, tuned[name]))
                tell(0 if name in shared else 1)
        except (Unfit, Diverged) as error:
            skipped.append({"learner": name, "because": str(error)})
            runs = [run for run in runs if run.about["learner"] != name]
    return {**summary(runs, stream.name, stream.sha256, protocol), "skipped": skipped}


@dataclasses.dataclass(frozen=True)
class _Task:
    where: Path
    protocol: str
    walk: Any
    name: str
    changed: dict[str, Any]
    seed: int
    out: Path
    tune: dict[str, list[Any]]


def _shared_run(task: _Task) -> tuple[str, str]:
    """One run in a process of its own; its row folder is written whole or not at all. Returns the learner and why it
    failed, if it did."""
    try:
        stream = Stream.load(task.where)
        _, make = _named(task.name)
        _one(stream, task.protocol, task.walk, task.name, make, task.changed, task.seed, task.out, task.tune)
    except (Unfit, Diverged) as error:
        return task.name, str(error)
    return task.name, ""


def _named(one: str | Learner | type[Learner]) -> tuple[str, Callable[..., Learner]]:
    if isinstance(one, str):
        return one, LEARNERS[one] if "(" not in one else _with_settings(one)
    if isinstance(one, type):
        return one.__name__, one

    def again(**changed: Any) -> Learner:
        return dataclasses.replace(one, **changed) if changed and dataclasses.is_dataclass(one) else one

    again.fields = {f.name for f in dataclasses.fields(one)} if dataclasses.is_dataclass(one) else set()  # type: ignore[attr-defined]
    return str(getattr(one, "name", type(one).__name__)), again


def _with_settings(text: str) -> Callable[..., Learner]:
    """`reservoir(alpha=5,start=scratch)` → what makes it. Raises BadConfig for what cannot be read or is no setting."""
    name, _, rest = text.partition("(")
    kind = LEARNERS[name.strip()]
    known = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    given: dict[str, Any] = {}
    for part in rest.removesuffix(")").split(","):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not rest.endswith(")") or not equals or key not in known:
            raise BadConfig(
                f"The learner {text!r} holds {part.strip()!r}.",
                f"Expected NAME(setting=value,…) with settings of {name}: {', '.join(sorted(known)) or 'none'}.",
            )
        given[key] = value_of(value)

    def make(**changed: Any) -> Learner:
        learner: Learner = kind(**{**given, **changed})
        return learner

    make.fields = known  # type: ignore[attr-defined]
    return make


def _fields(make: Callable[..., Learner]) -> set[str]:
    """Names of a learner's settings."""
    if hasattr(make, "fields"):
        return set(make.fields)
    return {f.name for f in dataclasses.fields(make)} if dataclasses.is_dataclass(make) else set()


def _settle(
    protocol: str, chosen: Sequence[tuple[str, Callable[..., Learner]]], settings: Settings
) -> tuple[Walk, dict[str, dict[str, Any]]]:
    """Hand each setting to whom it belongs. Raises BadConfig naming what nobody has."""
    kind = PROTOCOLS[protocol]
    of_walk = {f.name: f for f in dataclasses.fields(kind)}
    of_learner = {name: _fields(make) for name, make in chosen}
    for_walk: dict[str, Any] = {}
    per_learner: dict[str, dict[str, Any]] = {name: {} for name, _ in chosen}
    for key, value in settings.items():
        owner, dot, field = key.rpartition(".")
        targets = [n for n in per_learner if (not dot or owner in (n, n.partition("(")[0])) and field in of_learner[n]]
        if not dot and key in of_walk:
            for_walk[key] = value
        elif targets:
            for name in targets:
                per_learner[name][field] = value
        else:
            known = sorted({*of_walk, *(f"{n}.{f}" for n, fs in of_learner.items() for f in fs)})
            raise BadConfig(f"Nobody has the setting {key!r}.", f"Known here: {', '.join(known) or 'none'}.")
    return kind(**for_walk), per_learner


def _one(
    stream: Stream,
    protocol: str,
    walk: Walk,
    name: str,
    make: Callable[..., Learner],
    changed: dict[str, Any],
    seed: int,
    out: Path | None,
    tune: Grid,
) -> Run:
    learner = make(**changed)
    identity = {
        "protocol": protocol,
        "protocol_settings": dataclasses.asdict(walk),  # type: ignore[call-overload]
        "learner": name,
        "settings": learner.settings() | ({"tune": dict(tune)} if tune else {}),
        "seed": seed,
        "stream": {"name": stream.name, "sha256": stream.sha256},
        "steps": len(stream.steps),
    }
    folder = None
    if out is not None:
        folder = out / protocol / f"{_slug(name)}-seed{seed}-{fingerprint(identity)[:12]}"
        if (folder / "run.json").is_file():
            return row_files.load(folder)
    begun = time.process_time()
    picked: dict[str, Any] = {}
    if tune:
        first = walk.first_step(stream, rng_for(seed, protocol, "walk"))
        picked = choose(lambda **one: make(**{**changed, **one}), tune, walk.task(stream), first, seed)
        learner = make(**{**changed, **picked})
    learner.begin(walk.task(stream), rng_for(seed, protocol, name))
    rows = list(walk.walk(stream, learner, rng_for(seed, protocol, "walk")))
    cost = {
        "stored_bytes": learner.stored_bytes(),
        "gradient_steps": learner.gradient_steps,
        "seconds": round(time.process_time() - begun, 3),
    }
    same_as = {"published": stream.facts["published"]} if "published" in stream.facts else {}
    about = {**identity, **cost, **same_as, **({"chosen": picked} if tune else {})}
    if folder is not None:
        row_files.save(folder, about, rows)
    return Run(about, rows)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)


def summary(runs: Sequence[Run], stream: str, sha256: str, protocol: str) -> dict[str, Any]:
    """Rows of several runs → scores with mean, standard deviation (of the population) and values over seeds."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps([run.about["learner"], run.about["settings"], run.about["protocol_settings"]], sort_keys=True)
        groups.setdefault(key, []).append(run)
    results = []
    for group in groups.values():
        about = group[0].about
        walk = PROTOCOLS[about["protocol"]](**about["protocol_settings"])
        scored = [walk.score(run.rows, about["steps"]) for run in group]
        results.append(
            {
                "learner": about["learner"],
                "settings": {**about["settings"], **about["protocol_settings"]},
                "seeds": [run.about["seed"] for run in group],
                **({"chosen": [run.about["chosen"] for run in group]} if "chosen" in about else {}),
                **({"published": told} if (told := _published(about)) else {}),
                "scores": {name: _spread([s["scores"][name] for s in scored]) for name in scored[0]["scores"]},
                "measures": {name: _spread([s["measures"][name] for s in scored]) for name in scored[0]["measures"]},
                "per_class": _mean_by_class([s["by_class"] for s in scored]),
                "ci95": {name: half_width([s["scores"][name] for s in scored]) for name in scored[0]["scores"]},
                "matrix": _mean_matrix([s["matrix"] for s in scored]),
                "curve": None,
                "stored_bytes": max(run.about["stored_bytes"] for run in group),
                "gradient_steps": max(run.about["gradient_steps"] for run in group),
                "seconds": round(sum(run.about["seconds"] for run in group), 3),
            }
        )
    _compare(results)
    return {"protocol": protocol, "stream": {"name": stream, "sha256": sha256}, "results": results}


def _published(about: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What the stream's paper printed for this learner, if the run's settings are the ones it is named for."""
    name = about["learner"]
    if "published" not in about or name.partition("(")[0] not in LEARNERS:
        return {}
    usual = [_named(name)[1]().settings(), dataclasses.asdict(PROTOCOLS[about["protocol"]]())]
    same = json.dumps([about["settings"], about["protocol_settings"]], sort_keys=True) == json.dumps(
        usual, sort_keys=True
    )
    return published.values(about["published"], about["protocol"], name) if same else {}


def _compare(results: Sequence[dict[str, Any]]) -> None:
    """Add to every result, by score, the p of a paired test against the best learner's same seeds (None: itself, or one
    seed, or other seeds)."""
    for result in results:
        result["p_against_best"] = {}
    for name in results[0]["scores"] if results else []:
        best = max(results, key=lambda r: r["scores"][name]["mean"])
        for result in results:
            same = result is not best and result["seeds"] == best["seeds"]
            values = result["scores"][name]["values"], best["scores"][name]["values"]
            result["p_against_best"][name] = paired(*values) if same else None


def _mean_by_class(found: Sequence[list[float | None] | None]) -> list[float | None] | None:
    if not found or any(f is None for f in found):
        return None
    columns = zip(*(f for f in found if f is not None), strict=True)
    return [None if None in column else float(np.mean([c for c in column if c is not None])) for column in columns]


def _spread(values: Sequence[float]) -> dict[str, Any]:
    return {"mean": float(np.mean(values)), "sd": float(np.std(values)), "values": list(values)}


def _mean_matrix(matrices: Sequence[Any]) -> list[list[float | None]]:
    mean = np.mean(np.stack(matrices), axis=0)
    return [[None if np.isnan(cell) else float(cell) for cell in row] for row in mean]


def seeds_of(text: str) -> list[int]:
    """`0-4` or `0,2,5` → seeds. Raises BadConfig.

    >>> seeds_of("0-2,7")
    [0, 1, 2, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise BadConfig(f"--seeds is {text!r}.", "Expected numbers and ranges, as in 0-4 or 0,2,5.")
        found.extend(range(int(low), int(high if dash else low) + 1))
    if not found or len(set(found)) != len(found):
        raise BadConfig(f"--seeds is {text!r}.", "Expected at least one seed, none twice.")
    return found
