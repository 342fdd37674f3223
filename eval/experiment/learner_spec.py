"""Learners by name: `er`, `reservoir(alpha=5,start=scratch)`, an instance, a class of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from curate.core.errors import BadConfig
from curate.core.parsing import value_of
from eval.learner import Learner
from eval.learners import LEARNERS


def named(one: str | Learner | type[Learner]) -> tuple[str, Callable[..., Learner]]:
    """What rows call a learner, and what makes one."""
    if isinstance(one, str):
        return one, LEARNERS[one] if "(" not in one else with_settings(one)
    if isinstance(one, type):
        return one.__name__, one

    def again(**changed: Any) -> Learner:
        return dataclasses.replace(one, **changed) if changed and dataclasses.is_dataclass(one) else one

    again.fields = {f.name for f in dataclasses.fields(one)} if dataclasses.is_dataclass(one) else set()  # type: ignore[attr-defined]
    again.instance = one  # type: ignore[attr-defined]
    return str(getattr(one, "name", type(one).__name__)), again


def with_settings(text: str) -> Callable[..., Learner]:
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


def fields_of(make: Callable[..., Learner]) -> set[str]:
    """Names of a learner's settings."""
    if hasattr(make, "fields"):
        return set(make.fields)
    return {f.name for f in dataclasses.fields(make)} if dataclasses.is_dataclass(make) else set()
