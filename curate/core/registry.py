"""A registry: names → things, imported only when asked for.

A thing has a name in one of two ways: one line in a registry of driftline, or an entry point of an installed package
(`[project.entry-points."driftline.learners"]`). `package.module:Name` needs no name at all, where a user says it; a
file that somebody sent never makes driftline import a module.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from curate.core.errors import BadPlugin, UnknownName

HOME = "driftline"


@dataclass(frozen=True)
class Entry:
    """Where a registered name comes from."""

    target: str
    """module:attribute"""
    origin: str
    """distribution that registers it, with its version; "driftline" for our own"""


class Registry(Mapping[str, Any]):
    """Registered things of one kind; iterates over our own, then over those of installed packages, by name.

    >>> kinds = Registry("number", {"pi": "math:pi"})
    >>> kinds["pi"] > 3
    True
    >>> kinds["pie"]
    Traceback (most recent call last):
    ...
    curate.core.errors.UnknownName: Unknown number 'pie'. Did you mean 'pi'? Available: pi.
    """

    def __init__(self, kind: str, entries: Mapping[str, str], group: str = "", base: str = "") -> None:
        """kind: what the entries are, in the singular ("learner"). entries: name → "module:attribute".

        group: of entry points, without "driftline."; "" for a closed registry. base: "module:Class" that every entry of
        another package must derive from; "" for any callable.
        """
        self.kind, self.group, self.base = kind, group, base
        self._own = dict(entries)
        self._admitted: dict[str, str] = {}  # named by the user of this process as package.module:Name

    @cached_property
    def _found(self) -> dict[str, list[Entry]]:
        """Name → everything registered under it, of which there should be one."""
        found = {name: [Entry(target, HOME)] for name, target in self._own.items()}
        if self.group:
            for point in sorted(entry_points(group=f"{HOME}.{self.group}"), key=lambda point: point.name):
                entry = Entry(point.value, _origin(point))
                if entry not in found.setdefault(point.name, []):
                    found[point.name].append(entry)
        return found

    def __getitem__(self, name: str) -> Any:
        """Raises UnknownName, or BadPlugin for one that cannot be imported or is registered twice."""
        entry = self.entry(name)
        thing = _imported(self.kind, name, entry)
        if entry.origin != HOME:
            self._check(name, entry, thing)
        return thing

    def resolve(self, name: str) -> Any:
        """The same for a name that the user of this process gave: `package.module:Name` is imported, too.

        The working directory comes last on the path of imports, so that a module there never hides an installed one.
        """
        if ":" in name and name not in self._found:
            module, _, attribute = name.partition(":")
            if not all(part.isidentifier() for part in (*module.split("."), attribute)):
                raise UnknownName(f"{name!r} is no {self.kind}.", "Expected a registered name or package.module:Name.")
            if os.getcwd() not in sys.path:
                sys.path.append(os.getcwd())
            self._admitted[name] = name
        return self[name]

    def entry(self, name: str) -> Entry:
        """Where a name comes from. Raises UnknownName; BadPlugin for two registrations of one name."""
        if name in self._admitted:
            return Entry(name, name.partition(":")[0])
        if name not in self._found:
            near = difflib.get_close_matches(name, self._found, 1)
            raise UnknownName(
                f"Unknown {self.kind} {name!r}.",
                f"Did you mean {near[0]!r}?" if near else "",
                f"Available: {', '.join(sorted(self._found)) or 'none'}.",
            )
        first, *more = self._found[name]
        if more:
            both = " and ".join(f"{e.origin} ({e.target})" for e in (first, *more))
            given = f"The {self.kind} {name!r} is registered by {both}."
            raise BadPlugin(given, "Expected one.", "Uninstall or rename the other.")
        return first

    def problem(self, name: str) -> str:
        """Why a registered name cannot be used; "" where it can."""
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
        expected = f"a class derived from {module}.{attribute}" if base else "something that can be called"
        raise BadPlugin(
            f"The {self.kind} {name!r} of {entry.origin} ({entry.target}) is {thing!r}.", f"Expected {expected}."
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found or name in self._admitted

    def summary(self, name: str) -> str:
        """First line of the entry's docstring, or why it cannot be used."""
        return self.problem(name) or (self[name].__doc__ or "").strip().partition("\n")[0]


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an installed package"


def _imported(kind: str, name: str, entry: Entry) -> Any:
    """Raises BadPlugin where the module cannot be imported or lacks the attribute; our own errors are shown as they
    are."""
    module, _, attribute = entry.target.partition(":")
    if entry.origin == HOME:
        return getattr(importlib.import_module(module), attribute)
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # somebody's own code: it is named, the others go on
        what = f"{type(error).__name__}: {error}"
        raise BadPlugin(f"The {kind} {name!r} of {entry.origin} ({entry.target}) cannot be imported: {what}.") from None
