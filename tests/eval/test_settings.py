"""Settings of learners and protocols are checked against their dataclass fields, before any work."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field

from driftline.curate.core.errors import BadConfig
from driftline.eval.experiment.presets import PRESETS
from driftline.eval.experiment.settings import Setting, check_instance, check_settings, described, setting_names
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


def even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value


class Plain:
    pass


@dataclass
class Kind:
    memory: Annotated[int, Field(ge=0)] = 0
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    mode: Literal["online", "separate"] = "online"
    lr: float | None = None
    shift: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    size: Annotated[int, AfterValidator(even)] = 2
    name: str = ""
    model: Plain | None = None
    sloppy: list[str] = None  # type: ignore[assignment]
    names: list[str] = field(default_factory=list)
    counted: int = field(default=0, init=False)


@dataclass
class Unresolved:
    other: Missing = None


GOOD = {
    "memory": [0, 5],
    "share": [1, 0.25],
    "mode": ["separate"],
    "lr": [None, 1, 0.1],
    "shift": [0, "auto"],
    "model": [Plain(), None],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in GOOD.items() for value in values])
def test_a_value_that_fits_is_returned_unchanged(key: str, value: Any) -> None:
    found = check_settings(Kind, {key: value})[key]
    assert found is value


BAD = [
    ("memory", -5, "memory is -5. Expected a number greater than or equal to 0."),
    ("memory", "abc", "memory is 'abc'. Expected a valid integer."),
    ("memory", "5", "memory is '5'. Expected a valid integer."),
    ("memory", True, "memory is True. Expected a valid integer."),
    ("share", 2, "share is 2. Expected a number less than or equal to 1."),
    ("share", float("nan"), "share is nan. Expected a finite number."),
    ("mode", "offline", "mode is 'offline'. Expected 'online' or 'separate'."),
    ("lr", "fast", "lr is 'fast'. Expected a valid number."),
    ("shift", "far", "shift is 'far'. Expected a valid integer or 'auto'."),
    ("size", 3, "size is 3. Expected an even number."),
    ("name", 3, "name is 3. Expected a valid string."),
    ("model", 3, "model is 3. Expected an instance of Plain."),
]


@pytest.mark.parametrize(("key", "value", "said"), BAD)
def test_a_value_that_does_not_fit_is_one_sentence(key: str, value: Any, said: str) -> None:
    with pytest.raises(BadConfig) as error:
        check_settings(Kind, {"lr": 0.1, key: value}, "kind")
    assert str(error.value) == f"kind: {said}"


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadConfig, match=r"Kind: Unknown setting 'memry'\. Did you mean 'memory'\? Available: lr, mem"):
        check_settings(Kind, {"memry": 5})
    with pytest.raises(BadConfig, match=r"Unknown setting 'counted'\."):
        check_settings(Kind, {"counted": 1})
    with pytest.raises(BadConfig, match=r"Plain: Unknown setting 'x'\. Available: none\."):
        check_settings(Plain, {"x": 1})


def test_an_instance_is_checked_but_its_defaults_are_not() -> None:
    check_instance(Kind(names=["a"]))
    check_instance(Plain())
    with pytest.raises(BadConfig, match="mine: memory is -5"):
        check_instance(Kind(memory=-5), "mine")
    with pytest.raises(BadConfig, match=r"names is \[1\]"):
        check_instance(Kind(names=[1]))  # type: ignore[list-item]


def test_an_annotation_that_cannot_be_resolved_allows_every_value() -> None:
    assert check_settings(Unresolved, {"other": 3}) == {"other": 3}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_values_that_its_learners_and_protocols_take(name: str) -> None:
    for owners, settings in PRESETS[name].items():
        kinds = [PROTOCOLS[owner] if owner in PROTOCOLS else LEARNERS[owner] for owner in owners]
        for key, value in settings.items():
            takers = [kind for kind in kinds if key in setting_names(kind)]
            assert takers, key
            for taker in takers:
                check_settings(taker, {key: value})


def test_settings_are_described_by_the_docstrings_below_their_fields() -> None:
    @dataclass
    class Parent:
        """Parent."""

        lr: float = 0.5
        """learning
        rate"""
        notes: list[str] = field(default_factory=list)
        """no docstring of `made` below"""
        made: int = field(init=False, default=0)

    @dataclass
    class Child(Parent):
        """Child."""

        lr: float = 0.1
        must: int = field(kw_only=True)
        """has no default"""

    found = [(s.name, s.default, s.meaning) for s in described(Child)]

    notes = ("notes", "[]", "no docstring of `made` below")
    assert found == [("lr", "0.1", "learning rate"), notes, ("must", "required", "has no default")]
    assert described(make_dataclass("Bare", [("x", int, field(default=1))])) == [Setting("x", "1", "")]
    assert described(int) == []
