"""Registries: name → object, imported on first use.

A name is registered by one line in a registry of driftline, or by an entry point of an installed package
(`[project.entry-points."driftline.learners"]`). Users can also give `package.module:Name` without registering it. Names
in data files are looked up only, so that a file from somebody else never makes driftline import a module.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from driftline.curate.core.errors import BadPlugin, UnknownName, available, did_you_mean

HOME = "driftline"


@dataclass(frozen=True)
class Entry:
    """One registration of a name."""

    target: str
    """module:attribute"""
    origin: str
    """the distribution that registers it, with its version; "driftline" for our own"""


class Registry(Mapping[str, Any]):
    """The registered objects of one kind: first our own, then those of installed packages by name.

    >>> kinds = Registry("number", "math", {"pi": ":pi"})
    >>> kinds["pi"] > 3
    True
    >>> kinds["pie"]
    Traceback (most recent call last):
    ...
    driftline.curate.core.errors.UnknownName: Unknown number 'pie'. Did you mean 'pi'? Available: pi.
    """

    by_path: ClassVar[bool] = True
    """whether `resolve` imports `package.module:Name`; False while what a stranger named is run"""

    def __init__(
        self, kind: str, home: str, entries: Mapping[str, str], group: str = "", base: str = "", further: str = "",
        listed: str = "",
    ) -> None:  # fmt: skip
        """kind: what one entry is ("learner"). entries: name → ".module:attribute" in the package `home`.

        group: of the entry points, without "driftline."; "": the registry takes none. base: "module:Class" from which
        every entry of another package must derive; "": any callable. further: what else `resolve` takes, for messages.
        listed: its word in `driftline list` (default: the group).
        """
        self.kind, self.group, self.base, self.further = kind, group, base, further
        self.listed = listed or group.replace("_", "-")
        self._own = {name: home + target for name, target in entries.items()}
        self._admitted: dict[str, str] = {}  # package.module:Name as given by the user of this process
        self._classes: dict[str, Any] = {}  # classes that the user of this process handed over, by name

    @cached_property
    def _found(self) -> dict[str, list[Entry]]:
        """Name → all its registrations; more than one is an error as soon as the name is used."""
        entries = {name: [Entry(target, HOME)] for name, target in self._own.items()}
        if self.group:
            from importlib.metadata import entry_points

            for point in sorted(entry_points(group=f"{HOME}.{self.group}"), key=lambda point: point.name):
                origin = "an installed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
                entry = Entry(point.value, origin)
                if entry not in entries.setdefault(point.name, []):
                    entries[point.name].append(entry)
        return entries

    def __getitem__(self, name: str) -> Any:
        """Raises UnknownName; BadPlugin if the object cannot be imported or the name is registered twice."""
        if name in self._classes:
            return self._classes[name]
        entry = self.entry(name)
        thing = _imported(self.kind, name, entry)
        if entry.origin != HOME:
            self._check(name, entry, thing)
        return thing

    def resolve(self, name: str) -> Any:
        """Like `registry[name]` for a name given by the user, which may also be `package.module:Name`.

        The working directory is appended to the import path: a module there never hides an installed one.
        """
        if ":" in name and name not in self._found and Registry.by_path:
            module, _, attribute = name.partition(":")
            if not all(part.isidentifier() for part in (*module.split("."), attribute)):
                raise UnknownName(
                    f"Unknown {self.kind} {name!r}.", "Expected a registered name or package.module:Name."
                )
            if os.getcwd() not in sys.path:
                sys.path.append(os.getcwd())
            self._admitted[name] = name
        return self[name]

    def admit(self, thing: type) -> str:
        """The name of a class that the user of this process hands over: registered, or else the class's own.

        Raises BadPlugin if another class is registered under its own name.
        """
        name = thing.__name__
        for registered, entries in self._found.items():
            same_name = entries[0].target.endswith(f":{name}")  # only then is the module imported
            if same_name and not self.problem(registered) and self[registered] is thing:
                return registered
        if name in self._found:
            raise BadPlugin(f"Another {self.kind} is registered as {name!r}.", "Expected another name of the class.")
        self._classes[name] = thing
        return name

    def entry(self, name: str) -> Entry:
        """The registration of a name. Raises UnknownName; BadPlugin for two registrations of one name."""
        if name in self._admitted:
            return Entry(name, name.partition(":")[0])
        if name not in self._found:
            listed = f"driftline list {self.listed}" if self.group else ""
            names = available(name, sorted(self._found), listed).removesuffix(".")
            names += f", {self.further}." if self.further else "."
            raise UnknownName(f"Unknown {self.kind} {name!r}.", did_you_mean(name, self._found), names)
        first, *more = self._found[name]
        if more:
            both = " and ".join(f"{e.origin} ({e.target})" for e in (first, *more))
            problem = f"The {self.kind} {name!r} is registered by {both}."
            raise BadPlugin(problem, "Expected one.", "Uninstall or rename the other.")
        return first

    def problem(self, name: str) -> str:
        """Why a registered name cannot be used; "" if it can."""
        try:
            self[name]
        except BadPlugin as error:
            return str(error)
        return ""

    def _check(self, name: str, entry: Entry, thing: Any) -> None:
        module, _, attribute = self.base.partition(":")
        base = getattr(importlib.import_module(module), attribute) if module else None
        if base is None and callable(thing):
            return
        if base is not None and isinstance(thing, type) and issubclass(thing, base):
            return
        expected = f"a class derived from {module}.{attribute}" if base else "a callable"
        raise BadPlugin(
            f"The {self.kind} {name!r} of {entry.origin} ({entry.target}) is {thing!r}.", f"Expected {expected}."
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found or name in self._admitted or name in self._classes

    def summary(self, name: str) -> str:
        """First sentence of the entry's docstring, or why it cannot be used."""
        return self.problem(name) or first_sentence(self[name].__doc__)


def first_sentence(text: str | None) -> str:
    """Of a docstring, on one line.

    >>> first_sentence("All photos, in order (e.g. a.jpg). Of a\\n    RAW file the preview.")
    'All photos, in order (e.g. a.jpg).'
    """
    paragraph = " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.]) (?=[A-Z])", paragraph, maxsplit=1)[0]


def _imported(kind: str, name: str, entry: Entry) -> Any:
    """Raises BadPlugin if a plug-in's module cannot be imported or lacks the attribute."""
    module, _, attribute = entry.target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        if entry.origin == HOME:
            raise
        what = f"{type(error).__name__}: {error}"
        raise BadPlugin(f"The {kind} {name!r} of {entry.origin} ({entry.target}) cannot be imported: {what}.") from None
