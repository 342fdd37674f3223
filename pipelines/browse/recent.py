"""The last answers to questions of one kind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Recent(Generic[Answer]):
    """Answers by question. One that is being made is waited for by those who ask the same, and by nobody else."""

    def __init__(self, most: int) -> None:
        """most: answers that are kept."""
        self._most, self._lock = most, Lock()
        self._answers: OrderedDict[str, Future[Answer]] = OrderedDict()

    def get(self, question: str, make: Callable[[], Answer]) -> Answer:
        """The stored answer, or that of `make`."""
        with self._lock:
            if first := question not in self._answers:
                self._answers[question] = Future()
                while len(self._answers) > self._most:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(question)
            answer = self._answers[question]
        if first:
            try:
                answer.set_result(make())
            except BaseException as error:
                answer.set_exception(error)
                with self._lock:
                    self._answers.pop(question, None)
        return answer.result()
