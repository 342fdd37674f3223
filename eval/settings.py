"""Settings of learners and protocols are their dataclass fields: names, types, ranges and choices checked before work.

A field declares its range or its choices in its annotation: `Annotated[int, Field(ge=0)]`, `Literal["sgd", "adamw"]`.
`spec_of` reads learners as a user names them: `er`, `reservoir(alpha=5)`, `package.module:Name(k=3)`, a class.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from driftline.curate.core.errors import BadConfig, BadPlugin, available, did_you_mean
from driftline.curate.core.settings import value_of
from driftline.eval.learner import Learner
from driftline.eval.learners import LEARNERS


class Inapplicable(BadConfig):
    """A setting that nothing here has, or that changes nothing here; another protocol may use it."""

    key = ""
    names: tuple[str, ...] = ()
    """settings that exist here; () if this one does, too"""


NO_EFFECT = object()
"""marks a setting of a protocol that changes none of its scores, as in `Annotated[int, NO_EFFECT]`"""


def setting_names(kind: type) -> list[str]:
    """Names of the settings of a learner or protocol, in the order of their declaration; [] if it is no dataclass."""
    return [f.name for f in fields(kind) if f.init] if is_dataclass(kind) else []


def defaults_of(kind: type) -> dict[str, Any]:
    """Setting of a learner or protocol → its default, or `MISSING`."""
    return {f.name: f.default for f in fields(kind) if f.init} if is_dataclass(kind) else {}


def check_names(kind: type, base: type) -> None:
    """Raise BadPlugin for a setting that has the name of a method of the base class: calls would get its value."""
    if taken := [name for name in setting_names(kind) if hasattr(base, name) and not name.startswith("_")]:
        problem = f"{kind.__name__} has a setting {taken[0]}, which is a name of {base.__name__}."
        raise BadPlugin(problem, "Expected another name.")


@cache
def deciding(kind: type) -> tuple[str, ...]:
    """The settings of a protocol that may change its scores: all but those marked with `NO_EFFECT`."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, AttributeError, TypeError):  # annotations of somebody's own protocol that cannot be resolved
        hints = {}
    return tuple(name for name in setting_names(kind) if NO_EFFECT not in getattr(hints.get(name), "__metadata__", ()))


@dataclass(frozen=True)
class Setting:
    """A setting of a learner or protocol as a table shows it."""

    name: str
    """its key in --set"""
    default: str
    """as text; "–" for an empty one"""
    meaning: str
    """the docstring below its field; "" if there is none"""


def described(kind: type) -> list[Setting]:
    """The settings of a learner or protocol, in the order of their declaration: for its page and for the reference."""
    meanings = {name: text for base in reversed(kind.__mro__) for name, text in _docstrings(base).items()}
    settings = []
    for f in fields(kind) if is_dataclass(kind) else ():
        default = f.default if f.default_factory is MISSING else f.default_factory()
        shown = "required" if default is MISSING else str(default) or "–"
        settings += [Setting(f.name, shown, meanings.get(f.name, ""))] if f.init else []
    return settings


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Field of a class itself → the docstring below it; {} for a class without source, as of a notebook."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):
        return {}
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(getattr(tree, "body", ()))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }  # fmt: skip


def check_settings(kind: type, values: Mapping[str, Any], owner: str = "") -> dict[str, Any]:
    """The given settings, unchanged. kind: a learner or protocol. owner: its name in messages; default: of the class.

    Values are not converted: an integer is a valid float, but "5" is no number and True is no integer. Raises BadConfig
    for an unknown setting and for a value of another type, out of range or not among the choices.
    """
    owner, names = owner or kind.__name__, setting_names(kind)
    for key, value in values.items():
        if key not in names:
            raise unknown_setting(key, names, f"{owner}: ")
        try:
            _adapter(kind, key).validate_python(value, strict=True)
        except ValidationError as error:
            expected = " or ".join(_expected(problem["msg"]) for problem in error.errors())
            raise BadConfig(f"{owner}: {key} is {value!r}.", f"Expected {expected}.") from None
    return dict(values)


def changed_settings(instance: object) -> dict[str, Any]:
    """The settings of a learner or protocol that are not the defaults of its class."""
    values = {name: (getattr(instance, name), default) for name, default in defaults_of(type(instance)).items()}
    return {name: value for name, (value, default) in values.items() if value is not default}


def check_instance(instance: object, owner: str = "") -> None:
    """Raise BadConfig for a setting of a learner or protocol that `check_settings` refuses; defaults always pass."""
    check_settings(type(instance), changed_settings(instance), owner)


def unknown_setting(key: str, candidates: Iterable[str], prefix: str = "") -> Inapplicable:
    """The error for a setting that nothing has.

    >>> str(unknown_setting("epochz", ["lr", "epochs"]))
    "Unknown setting 'epochz'. Did you mean 'epochs'? Available: epochs, lr."
    """
    names = sorted(candidates)
    error = Inapplicable(f"{prefix}Unknown setting {key!r}.", did_you_mean(key, names), available(key, names))
    error.key, error.names = key, tuple(names)
    return error


@cache
def _adapter(kind: type, key: str) -> TypeAdapter[Any]:
    """What checks the values of one setting. An annotation that cannot be resolved or checked allows every value."""
    try:
        hint = get_type_hints(kind, include_extras=True)[key]
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False))
    except (NameError, AttributeError, TypeError, PydanticUserError):
        return TypeAdapter(Any)


def _expected(message: str) -> str:
    """The end of pydantic's `Input should be …`, or the message of a validator."""
    text = message.removeprefix("Input should be ").removeprefix("Value error, ")
    return f"a number {text}" if text.startswith(("greater", "less")) else text


def seeds_of(text: str) -> list[int]:
    """`0-4` or `0,2,5` → seeds. Raises BadConfig.

    >>> seeds_of("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        edges = part.strip().split("-", 1)
        if not all(edge.isdecimal() and len(edge) < 10 for edge in edges) or int(edges[-1]) > int(edges[0]) + 10_000:
            raise BadConfig(f"--seeds is {text!r}.", "Expected numbers and ranges, as in 0-4 or 0,2,5.")
        seeds.extend(range(int(edges[0]), int(edges[-1]) + 1))
    if not seeds or len(set(seeds)) != len(seeds):
        raise BadConfig(f"--seeds is {text!r}.", "Expected at least one seed, none twice.")
    return seeds


@dataclass(frozen=True)
class LearnerSpec:
    """A learner as it was named; a call with settings creates it."""

    name: str
    """what rows call it"""
    kind: type[Learner]
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
