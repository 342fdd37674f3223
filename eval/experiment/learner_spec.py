"""Learners as a user names them: `er`, `reservoir(alpha=5,start=scratch)`, `package.module:Name(k=3)`, a class, an
instance."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from driftline.curate.core.errors import BadConfig, BadPlugin
from driftline.curate.core.settings import value_of
from driftline.eval.experiment.settings import (
    changed_settings,
    check_instance,
    check_names,
    check_settings,
    setting_names,
)
from driftline.eval.learner import Learner
from driftline.eval.learners import LEARNERS


@dataclass(frozen=True)
class LearnerSpec:
    """A learner as it was named; a call with settings creates it."""

    name: str
    """what rows call it"""
    kind: type[Learner]
    """its class"""
    with_name: Mapping[str, Any] = field(default_factory=dict)
    """settings that came with the name"""
    instance: Learner | None = None
    """the learner itself, if the user gave an instance; it is used unless settings change it"""
    by_name: bool = False
    """whether the user gave a name, by which other processes make it, too"""

    @property
    def settings(self) -> list[str]:
        """Names of its settings."""
        return setting_names(self.kind)

    @property
    def given(self) -> dict[str, Any]:
        """The settings that the user gave with it; of an instance those that are no defaults."""
        return dict(self.with_name if self.instance is None else changed_settings(self.instance))

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The given settings, unchanged. Raises BadConfig as `check_settings`."""
        return check_settings(self.kind, values, self.name.partition("(")[0])

    def __call__(self, **changed: Any) -> Learner:
        """A learner with these settings in place of its own. Raises BadPlugin for a class that cannot be created."""
        if self.instance is not None:
            return replace(self.instance, **changed) if changed else self.instance  # type: ignore[type-var]
        try:
            return self.kind(**{**self.with_name, **changed})
        except TypeError as error:
            raise BadPlugin(f"The learner {self.name!r} cannot be created: {error}.") from None


def spec_of(learner: Any) -> LearnerSpec:
    """Of a name, a `Learner`, its class, or a scikit-learn classifier. Raises UnknownName or BadPlugin for a name or a
    class, BadConfig for settings that cannot be read or do not fit, and for anything else."""
    if isinstance(learner, str):
        name, with_name = parsed(learner)
        spec = LearnerSpec(learner, _checked(LEARNERS.resolve(name)), by_name=True)
        return replace(spec, with_name=spec.check(with_name))
    if not isinstance(learner, Learner) and not (isinstance(learner, type) and issubclass(learner, Learner)):
        if isinstance(learner, type) or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
            shown = getattr(learner, "__name__", f"a {type(learner).__name__}")
            expected = "Expected a name, a Learner, or a scikit-learn classifier, as SGDClassifier()."
            raise BadConfig(f"A learner is {shown}.", expected, "Wrap a torch module by dl.Torch.")
        from driftline.eval.integrations import Sklearn

        learner = Sklearn(type(learner).__name__, learner)
    _checked(learner if isinstance(learner, type) else type(learner))
    if isinstance(learner, type):
        return LearnerSpec(learner.__name__, learner)
    spec = LearnerSpec(str(getattr(learner, "name", type(learner).__name__)), type(learner), instance=learner)
    check_instance(learner, spec.name)
    return spec


def _checked(kind: type[Learner]) -> type[Learner]:
    """The class. Raises BadPlugin if it cannot answer, or has a setting with the name of a method."""
    if kind.predict is Learner.predict and kind.scores is Learner.scores:
        raise BadPlugin(f"The learner {kind.__name__} cannot answer.", "Expected a method scores or predict.")
    check_names(kind, Learner)
    return kind


def parsed(learner: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a learner, unchecked. Raises BadConfig for what is no list of settings.

    >>> parsed("reservoir(alpha=5,start = scratch)")
    ('reservoir', {'alpha': 5, 'start': 'scratch'})
    """
    name, bracket, rest = learner.partition("(")
    settings: dict[str, Any] = {}
    for part in rest.removesuffix(")").split(",") if bracket else ():
        key, equals, value = (p.strip() for p in part.partition("="))
        if not rest.endswith(")") or not equals:
            raise BadConfig(f"The learner {learner!r} holds {part.strip()!r}.", "Expected NAME(setting=value,…).")
        settings[key] = value_of(value)
    return name.strip(), settings
