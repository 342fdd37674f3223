"""What `evaluate` is asked for → its runs: whose each setting is, where it comes from, and whether it has an effect."""

from __future__ import annotations

import pickle
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.executor import Executor
from driftline.eval import outcomes
from driftline.eval.engine import fused
from driftline.eval.experiment.learner_spec import LearnerSpec, spec_of
from driftline.eval.experiment.presets import fitting
from driftline.eval.experiment.settings import (
    Inapplicable,
    changed_settings,
    check_settings,
    setting_names,
    unknown_setting,
)
from driftline.eval.experiment.tune import Grid, planned
from driftline.eval.learner import Learner
from driftline.eval.protocol import Protocol, protocol_named
from driftline.eval.protocol_abilities import resolve
from driftline.stream_builder.stream import Stream

Settings = Mapping[str, Any]
AnyProtocol = str | Protocol | type[Protocol]
AnyLearner = Any  # a name, a learner, its class, or a scikit-learn classifier


@dataclass(frozen=True)
class Setup:
    """What all runs of one call have in common."""

    name: str
    """of the protocol, in rows"""
    protocol: Protocol
    """with numbers in place of settings that depend on the stream"""
    out: Path | None
    """folder for rows"""
    most_probable: int
    """how many classes of a sample are recorded"""
    budget: bool
    """whether a budget of updates replaces settings of learners (`Learner.budgeted`)"""
    rules: bool
    """whether the protocol prescribes a network (`Task.rules`)"""
    any_code: bool
    """whether finished runs are used whatever their code"""

    def recorded(self, learner: Learner) -> dict[str, Any]:
        """The settings of a learner that have an effect."""
        dead = learner.budgeted if self.budget else ()
        return {key: value for key, value in learner.settings().items() if key not in dead}

    def portable(self, executor: Executor) -> bool:
        """Whether there are other processes that can load the protocol; a class of a script or notebook they cannot."""
        if executor.kind == "ray":
            return True
        if type(self.protocol).__module__ == "__main__":
            return False
        try:
            return executor.workers > 1 and bool(pickle.dumps(self.protocol))
        except (pickle.PicklingError, AttributeError):
            return False


@dataclass(frozen=True)
class Job:
    """A planned run."""

    place: int
    """of the learner in the call: two may have one name, and other settings"""
    name: str
    """of the learner, in rows"""
    spec: LearnerSpec | None
    """makes the learner; None: the name does, in another process"""
    changed: dict[str, Any]
    """settings of the learner"""
    origin: dict[str, str]
    """where the settings come from that are not the learner's defaults"""
    seed: int
    tune: dict[str, list[Any]]
    """candidates to choose from before the run"""

    def learner(self, **more: Any) -> Learner:
        """A new learner."""
        spec = self.spec or spec_of(self.name)
        return spec(**{**self.changed, **more})


def jobs_of(
    stream: Stream,
    protocol: AnyProtocol,
    learners: Sequence[AnyLearner],
    seeds: Sequence[int],
    settings: Settings,
    tune: Grid,
    out: Path | None,
    preset: str,
    any_code: bool,
) -> tuple[Setup, list[Job]]:
    """The protocol for this stream, and its runs, learner after learner. Raises IncompatibleStream and BadConfig."""
    fused.kind()  # raises for a wrong DRIFTLINE_KERNEL
    specs = [spec_of(learner) for learner in learners]
    _check_twice(specs)
    name, kind, make = protocol_named(protocol)
    most_probable, others = outcomes.asked(settings, len(stream.classes))
    idle = {spec.name: dict(spec.kind.unused) for spec in specs}
    for spec in specs if not kind.corrects else ():
        idle[spec.name] |= dict.fromkeys(spec.kind.of_corrections, f"{name} brings no corrections")
    own, per_learner = _by_owner(name, kind, specs, others, idle)
    owners = {name: kind, **{spec.name.partition("(")[0]: spec.kind for spec in specs}}
    of_preset = fitting(preset, owners) if preset else {}
    instance = make(**check_settings(kind, of_preset.get(name, {}) | own, name))
    instance.check(stream)
    instance = resolve(instance, stream)
    task = instance.task(stream)
    budget, jobs, tuned = task.updates is not None, [], set()
    for place, spec in enumerate(specs):
        changed = per_learner[spec.name]
        refused = any(getattr(spec.kind.needs, need) for need in kind.refuses)  # it does not run at all
        if not refused:
            _check_effect(spec, changed, name, idle[spec.name], budget)
        from_preset = {
            key: value
            for key, value in of_preset.get(spec.name.partition("(")[0], {}).items()
            if key not in (*spec.own, *idle[spec.name], *(spec.kind.budgeted if budget else ()))
        }
        whole, candidates = planned(instance, spec, spec.check(from_preset) | changed, tune)
        origin = dict.fromkeys(spec.own, "with its name") | dict.fromkeys(whole, "protocol")
        origin |= dict.fromkeys(from_preset, f"preset {preset}") | dict.fromkeys(changed, "set")
        origin |= dict.fromkeys(candidates, "chosen")
        jobs += [Job(place, spec.name, spec, whole, origin, seed, candidates) for seed in seeds]
        tuned |= set(candidates)
    if unused := sorted(set(tune) - tuned):
        raise unknown_setting(unused[0], {key for spec in specs for key in spec.settings}, "--tune: ")
    return Setup(name, instance, out, most_probable, budget, task.rules is not None, any_code), jobs


def _check_twice(specs: Sequence[LearnerSpec]) -> None:
    """Raise BadConfig if two learners have one name and the same settings: rows could not tell them apart."""
    seen = set()
    for spec in specs:
        what = spec.name, repr(spec.with_name if spec.instance is None else spec.instance.settings())
        if what in seen:
            problem = f"Two learners are named {spec.name} and have the same settings."
            raise BadConfig(problem, "Expected each once.", "Name one of them otherwise.")
        seen.add(what)


def _check_effect(
    spec: LearnerSpec, changed: Mapping[str, Any], protocol: str, idle: Mapping[str, str], budget: bool
) -> None:
    """Raise Inapplicable for a setting of the user that changes nothing. idle: such settings, and why; their defaults
    may be given."""
    if budget and (dead := sorted({*changed, *spec.own} & set(spec.kind.budgeted))):
        problem = f"{spec.name}: {dead[0]} has no effect under {protocol}, where all learners share a budget of updates"
        raise _idle(dead[0], problem, f"Leave {dead[0]} out there, and set {protocol}.updates.")
    own = spec.with_name if spec.instance is None else changed_settings(spec.instance)
    for key, value in {**own, **changed}.items():
        if key in idle and value != getattr(spec.kind, key):
            raise _idle(key, f"{spec.name}: {key} is {value!r}, which changes nothing: {idle[key]}", "Leave it out.")


def _idle(key: str, problem: str, way_out: str) -> Inapplicable:
    error = Inapplicable(f"{problem}.", "Expected a setting that changes something.", way_out)
    error.key = key
    return error


def _by_owner(
    protocol: str,
    kind: type[Protocol],
    specs: Sequence[LearnerSpec],
    settings: Settings,
    idle: Mapping[str, Container[str]],
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings of the protocol, and of each learner. idle: of each learner, settings that change nothing: one for all
    learners goes to the others. Raises Inapplicable for one that nothing has."""
    own, learner_fields = setting_names(kind), {spec.name: spec.settings for spec in specs}
    for_protocol: dict[str, Any] = {}
    per_learner: dict[str, dict[str, Any]] = {spec.name: {} for spec in specs}
    for key, value in settings.items():
        owner, dot, field = key.rpartition(".")
        named = [n for n in per_learner if not dot or owner in (n, n.partition("(")[0])]
        targets = [n for n in named if field in learner_fields[n]]
        targets = [n for n in targets if dot or field not in idle[n]] or targets
        if (not dot or owner == protocol) and field in own:
            for_protocol[field] = value
        elif targets:
            for name in targets:
                per_learner[name][field] = value
        else:
            owners = {protocol: own, **learner_fields}
            available = {f"{owner}.{name}" if dot else name for owner, names in owners.items() for name in names}
            raise unknown_setting(key, available)
    return for_protocol, {spec.name: spec.check(per_learner[spec.name]) for spec in specs}


def settings_text(settings: Mapping[str, Any], origin: Mapping[str, str]) -> str:
    """The settings that are not defaults, and where they come from.

    >>> settings_text({"lr": [1, 3], "epochs": 5, "batch": 256}, {"lr": "chosen", "epochs": "set"})
    'lr 1 or 3 (chosen), epochs 5 (set)'
    """
    parts = []
    for name, place in origin.items():
        if name in settings and name != "device":  # which changes no score
            value = settings[name]
            parts.append(f"{name} {' or '.join(map(str, value)) if isinstance(value, list) else value} ({place})")
    return ", ".join(parts)
