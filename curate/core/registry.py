"""A catalogue: names → things, imported only when asked for.

Adding a source, shift, protocol, learner or export is one file and one line in its catalogue.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from curate.core.errors import UnknownName


class Catalogue(Mapping[str, Any]):
    """kind: what the entries are, in the singular ("learner"). entries: name → "module:attribute".

    >>> kinds = Catalogue("number", {"pi": "math:pi"})
    >>> kinds["pi"] > 3
    True
    >>> kinds["pie"]
    Traceback (most recent call last):
    ...
    curate.core.errors.UnknownName: There is no number 'pie'. Known: pi. Did you mean 'pi'?
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind, self._entries = kind, dict(entries)

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            near = difflib.get_close_matches(name, self._entries, 1)
            raise UnknownName(
                f"There is no {self.kind} {name!r}.",
                f"Known: {', '.join(sorted(self._entries)) or 'none'}.",
                f"Did you mean {near[0]!r}?" if near else "",
            )
        module, attribute = self._entries[name].split(":")
        return getattr(importlib.import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def summary(self, name: str) -> str:
        """First line of the entry's docstring."""
        return (self[name].__doc__ or "").strip().partition("\n")[0]
