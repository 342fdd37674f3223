"""What `evaluate` is asked for → its runs: whose each setting is, where it comes from, and whether it has an effect."""

import pickle
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig, BadPlugin, DriftlineError
from driftline.curate.core.executor import Executor
from driftline.eval.engine import fused
from driftline.eval.experiment.presets import check_network, fitting
from driftline.eval.experiment.tune import Grid
from driftline.eval.learner import Learner, Task
from driftline.eval.protocol import Protocol, protocol_named
from driftline.eval.settings import (
    Inapplicable,
    LearnerSpec,
    changed_settings,
    check_settings,
    defaults_of,
    setting_names,
    spec_of,
    unknown_setting,
)
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
    rules: bool
    """whether the protocol prescribes a network (`Task.rules`)"""
    any_code: bool
    """whether finished runs are used whatever their code"""

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
    origin: dict[str, str]
    """where the settings come from that are not the learner's defaults"""
    seed: int
    tune: dict[str, list[Any]]
    """candidates to choose from before the run"""
    replaced: frozenset[str] = frozenset()
    """settings that a budget of updates replaces: they are not recorded"""

    def learner(self, **more: Any) -> Learner:
        """A new learner."""
        spec = self.spec or spec_of(self.name)
        return spec(**{**self.changed, **more})

    def tried(self, **more: Any) -> Learner:
        """The same with the first of the values that it chooses from."""
        return self.learner(**{key: values[0] for key, values in self.tune.items()} | more)

    def recorded(self, learner: Learner) -> dict[str, Any]:
        """The settings of a learner as its rows have them."""
        return {key: value for key, value in learner.settings().items() if key not in self.replaced}


def swept(protocol: AnyProtocol, settings: Settings) -> list[tuple[str, Settings]]:
    """The settings with one value of each setting of the protocol that has a list of them, for each combination; before
    it these values, as "policy=oracle"."""
    name, kind, _ = protocol_named(protocol)
    own = setting_names(kind)
    many = {k: v for k, v in settings.items() if isinstance(v, list) and k.removeprefix(f"{name}.") in own}
    if twice := [k for k, values in many.items() if len({*map(str, values)}) < max(len(values), 1)]:
        problem = f"{twice[0]} has the values {many[twice[0]]}."
        raise BadConfig(problem, "Expected at least one value, none twice.")
    chosen = [dict(zip(many, values, strict=True)) for values in product(*many.values())]
    return [(", ".join(f"{k}={v}" for k, v in one.items()), {**settings, **one}) for one in chosen]


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
    own, per_learner = _by_owner(name, kind, specs, settings)
    owners = {name: kind, **{spec.name.partition("(")[0]: spec.kind for spec in specs}}
    of_preset = fitting(preset, owners, stream.x_shape) if preset else {}
    instance = make(**check_settings(kind, of_preset.get(name, {}) | own, name))
    given = own | (changed_settings(protocol) if isinstance(protocol, Protocol) else {})
    _check_effect(name, kind, given, instance.unused(), ())
    instance.check(stream)
    instance = instance.resolve(stream)
    task = instance.task(stream)
    choices = [
        _choice(instance, task, spec, changed, of_preset.get(spec.name.partition("(")[0], {}), tune)
        for spec, changed in zip(specs, per_learner, strict=True)
    ]
    for_all = {key for key in settings if "." not in key}
    used = {key for choice in choices for key in choice.changed if key not in choice.idle}
    jobs, tuned = [], set()
    for place, (spec, choice) in enumerate(zip(specs, choices, strict=True)):
        changed = {k: v for k, v in choice.changed.items() if not (k in for_all & used and k in choice.idle)}
        _check_effect(spec.name, spec.kind, spec.given | changed, choice.idle, {*choice.replaced, *spec.with_name})
        dropped = choice.preset & choice.idle.keys() | choice.changed.keys() - changed.keys()
        whole = {key: value for key, value in choice.whole.items() if key not in dropped}
        check_network(preset, spec.name, {**whole, **spec.given}.get("net"), stream.x_shape)
        origin = dict.fromkeys(spec.given, "with its name") | dict.fromkeys(whole, "protocol")
        origin |= dict.fromkeys(choice.preset & whole.keys(), f"preset {preset}") | dict.fromkeys(changed, "set")
        origin |= dict.fromkeys(choice.candidates, "chosen")
        of_one = spec.name, spec, whole, origin
        jobs += [Job(place, *of_one, seed, choice.candidates, choice.replaced) for seed in seeds]
        tuned |= set(choice.candidates)
    if left := sorted(set(tune) - tuned):
        _check_in_names(left[0], specs, "--tune")
        raise unknown_setting(left[0], {key for spec in specs for key in spec.settings}, "--tune: ")
    return Setup(name, instance, out, task.rules is not None, any_code), jobs


@dataclass(frozen=True)
class _Choice:
    """Where the settings of one learner come from."""

    changed: dict[str, Any]
    """of the user, beside its name"""
    preset: set[str]
    """those that a preset gives"""
    whole: dict[str, Any]
    """all that are not its own, of user, preset and protocol"""
    candidates: dict[str, list[Any]]
    """values to choose from"""
    idle: dict[str, str]
    """setting that changes nothing → why"""
    replaced: frozenset[str]
    """those of them that a budget replaces"""


def _choice(
    protocol: Protocol, task: Task, spec: LearnerSpec, changed: dict[str, Any], preset: Settings, tune: Grid
) -> _Choice:
    """Of one learner under a protocol that refuses nothing that it needs; else nothing is idle: it does not run. Its
    candidates are the part of `tune` that it has settings for, and its own for settings that are "auto". Raises
    BadConfig for a value that a setting refuses."""
    preset = {key: value for key, value in preset.items() if key not in spec.given.keys() | changed.keys()}
    whole = spec.check(preset) | changed
    candidates = {k: list(v) for k, v in tune.items() if k in spec.settings and k not in spec.with_name}
    for key, value in ((key, value) for key, values in candidates.items() for value in values):
        spec.check({key: value})
    with suppress(BadPlugin):  # the run says so, and the other learners go on
        learner = spec(**whole)
        others = {k: v for k, v in protocol.defaults(learner).items() if getattr(learner, k) != v}
        whole = {key: value for key, value in others.items() if key not in spec.given} | whole
        candidates = spec(**whole).candidates() | candidates
    idle, lasting = dict[str, str](), dict[str, str]()
    if not any(getattr(spec.kind.needs, need) for need in protocol.refuses):
        with suppress(DriftlineError):  # the run says so, and the other learners go on
            learner = spec(**whole)
            idle, lasting = learner.unused(task), learner.unused(replace(task, updates=None))
    return _Choice(changed, set(preset), whole, candidates, idle, frozenset(idle.keys() - lasting.keys()))


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
    name: str, kind: type, given: Mapping[str, Any], idle: Mapping[str, str], strict: Container[str]
) -> None:
    """Raise Inapplicable for a setting of the user that changes nothing. name, kind: whose. idle: such settings, and
    why. strict: those that may not even be given with their default."""
    defaults = defaults_of(kind)
    for key, value in given.items():
        if key in idle and (key in strict or value != defaults[key]):
            problem = f"{name}: {key} is {value!r}, which changes nothing: {idle[key]}."
            error = Inapplicable(problem, "Expected a setting that changes something.", "Leave it out.")
            error.key = key
            raise error


def _by_owner(
    protocol: str, kind: type[Protocol], specs: Sequence[LearnerSpec], settings: Settings
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Settings of the protocol, and of each learner but those in its name. Raises Inapplicable for one that nothing
    has, BadConfig for one whose learners all have another value in their names."""
    own, per_learner = setting_names(kind), [dict[str, Any]() for _ in specs]
    for_protocol: dict[str, Any] = {}
    for key, value in settings.items():
        owner, dot, field = key.rpartition(".")
        named = [i for i, s in enumerate(specs) if not dot or owner in (s.name, s.name.partition("(")[0])]
        named = [i for i in named if field in specs[i].settings]
        targets = [i for i in named if specs[i].with_name.get(field, value) == value]
        if (not dot or owner == protocol) and field in own:
            for_protocol[field] = value
        elif targets:
            for i in targets:
                per_learner[i] |= {field: value} if field not in specs[i].with_name else {}
        elif named:
            _check_in_names(field, specs, f"--set {key}={value}")
        else:
            owners = {protocol: own, **{spec.name: spec.settings for spec in specs}}
            available = {f"{owner}.{name}" if dot else name for owner, names in owners.items() for name in names}
            raise unknown_setting(key, available)
    return for_protocol, [spec.check(changed) for spec, changed in zip(specs, per_learner, strict=True)]


def _check_in_names(key: str, specs: Sequence[LearnerSpec], option: str) -> None:
    """Raise BadConfig for an option that reaches no learner, since the names of all give the setting a value."""
    if names := [spec.name for spec in specs if key in spec.with_name]:
        problem = f"{option} reaches no learner: {key} is set in the name of {names[0]}, which counts."
        raise BadConfig(problem, "Expected one of both.", "Leave it out, or take the value out of the name.")


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
