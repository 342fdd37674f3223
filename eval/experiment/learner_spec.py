"""Learners as a user names them: `er`, `reservoir(alpha=5,start=scratch)`, `package.module:Name(k=3)`, a class, an
instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from curate.core.errors import BadConfig, BadPlugin
from curate.core.settings import value_of
from eval.experiment.settings import changed_settings, check_instance, check_settings, setting_names
from eval.learner import Learner
from eval.learners import LEARNERS


@dataclass(frozen=True)
class LearnerSpec:
    """A learner as it was named; a call with settings creates it."""

    name: str
    """what rows call it"""
    kind: type[Learner]
    """its class"""
    given: Mapping[str, Any] = field(default_factory=dict)
    """settings that came with the name"""
    instance: Learner | None = None
    """the learner itself, if the user gave an instance; it is used unless settings change it"""

    @property
    def settings(self) -> list[str]:
        """Names of its settings."""
        return setting_names(self.kind)

    @property
    def own(self) -> set[str]:
        """Names of the settings that the user gave with it; of an instance those that are no defaults."""
        return set(self.given if self.instance is None else changed_settings(self.instance))

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given settings, unchanged. Raises BadConfig as `check_settings`."""
        return check_settings(self.kind, given, self.name.partition("(")[0])

    def __call__(self, **changed: Any) -> Learner:
        """A learner with these settings in place of its own. Raises BadPlugin for a class that cannot be created."""
        if self.instance is not None:
            return replace(self.instance, **changed) if changed else self.instance  # type: ignore[type-var]
        try:
            return self.kind(**{**self.given, **changed})
        except TypeError as error:
            raise BadPlugin(f"The learner {self.name!r} cannot be created: {error}.") from None


def spec_of(learner: str | Learner | type[Learner]) -> LearnerSpec:
    """Raises UnknownName or BadPlugin for a name, BadConfig for settings that cannot be read or do not fit."""
    if isinstance(learner, str):
        name, given = parsed(learner)
        spec = LearnerSpec(learner, LEARNERS.resolve(name))
        return replace(spec, given=spec.check(given))
    if isinstance(learner, type):
        return LearnerSpec(learner.__name__, learner)
    spec = LearnerSpec(str(getattr(learner, "name", type(learner).__name__)), type(learner), instance=learner)
    check_instance(learner, spec.name)
    return spec


def parsed(learner: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a learner, unchecked. Raises BadConfig for what is no list of settings.

    >>> parsed("reservoir(alpha=5,start = scratch)")
    ('reservoir', {'alpha': 5, 'start': 'scratch'})
    """
    name, bracket, rest = learner.partition("(")
    given: dict[str, Any] = {}
    for part in rest.removesuffix(")").split(",") if bracket else ():
        key, equals, value = (p.strip() for p in part.partition("="))
        if not rest.endswith(")") or not equals:
            raise BadConfig(f"The learner {learner!r} holds {part.strip()!r}.", "Expected NAME(setting=value,…).")
        given[key] = value_of(value)
    return name.strip(), given
