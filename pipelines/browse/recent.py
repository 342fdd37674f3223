"""The last answers to questions of one kind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Recent(Generic[Answer]):
    """Answers by question. One that is being made is waited for: two threads never make the same."""

    def __init__(self, most: int) -> None:
        """most: answers that are kept."""
        self._most, self._lock = most, Lock()
        self._known: OrderedDict[str, Answer] = OrderedDict()

    def get(self, question: str, make: Callable[[], Answer]) -> Answer:
        """The known answer, or that of `make`."""
        with self._lock:
            if question not in self._known:
                self._known[question] = make()
                while len(self._known) > self._most:
                    self._known.popitem(last=False)
            self._known.move_to_end(question)
            return self._known[question]
