"""A language model that is shown the nearest examples, behind any endpoint of OpenAI's chat protocol [OCRR]."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from curate.core.errors import BadConfig, BadInput, IncompatibleStream
from curate.core.hashed_ngrams import hashed_ngrams
from eval.learner import Array, Labels, Learner, Task
from eval.memory.knn_index import Memory

LARGEST = 1 << 20  # bytes of an answer
WIDTH = 2048  # of the counts of letters by which examples are found
SHOWN = 2000  # characters of a text in a prompt
SYSTEM = "You sort texts into classes. Answer with the name of one class, exactly as it is written, and nothing else."


@dataclass
class Llm(Learner):
    """Remembers every sample; asks with the `k` nearest (by counts of letters) as examples. Corrections are remembered.

    endpoint: such as http://127.0.0.1:11434/v1; model: its name there. key_env: name of the environment variable that
    holds the key, if one is needed. A request that fails, times out (`timeout` seconds) or names no class is repeated
    `retries` times; then the nearest example answers. All of that is counted in the run's record. workers: requests at
    a time.
    """

    endpoint: str = ""
    model: str = ""
    k: int = 6
    key_env: str = "OPENAI_API_KEY"
    timeout: float = 30.0
    retries: int = 2
    workers: int = 4

    reads_texts = True

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Raises IncompatibleStream without an endpoint and for anything but texts, BadConfig for numbers that cannot
        be."""
        if task.x_shape:
            raise IncompatibleStream(
                f"llm reads texts; samples here have shape {task.x_shape}.", "", "See docs/papers/ocrr.md."
            )
        if not re.match(r"https?://", self.endpoint) or not self.model:
            raise IncompatibleStream(
                f"endpoint is {self.endpoint!r}, model {self.model!r}.",
                "Expected an address such as http://127.0.0.1:11434/v1, and a model's name.",
            )
        if min(self.k, self.workers) < 1 or self.retries < 0 or self.timeout <= 0:
            told = f"k {self.k}, workers {self.workers}, retries {self.retries}, timeout {self.timeout}."
            raise BadConfig(told, "Expected positive numbers.")
        self.classes = list(task.classes) or [str(c) for c in range(task.n_classes)]
        self.number = {_plain(name): i for i, name in enumerate(self.classes)}
        self.memory = Memory(WIDTH)
        self.texts: list[str] = []
        self.labels: list[int] = []
        self.counts: Counter[str] = Counter()
        self._open()

    def _open(self) -> None:
        import urllib3

        self.pool = urllib3.PoolManager(num_pools=1, maxsize=self.workers, retries=False)
        self.lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: without its connections."""
        return {name: value for name, value in vars(self).items() if name not in ("pool", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def _count(self, what: str) -> None:
        """Requests are made in several threads."""
        with self.lock:
            self.counts[what] += 1

    def learn(self, x: Array, y: Labels) -> None:
        """Remember."""
        texts = [str(text) for text in x]
        self.memory.add(hashed_ngrams(texts, WIDTH))
        self.texts += texts
        self.labels += np.asarray(y).tolist()

    def predict(self, x: Array) -> Labels:
        """One request a text; before anything was learned: 0."""
        if not self.texts:
            return np.zeros(len(x), np.int64)
        texts = [str(text) for text in x]
        near = self.memory.search(hashed_ngrams(texts, WIDTH), self.k)[1].tolist()
        with ThreadPoolExecutor(self.workers) as pool:
            return np.array(list(pool.map(self._answer, texts, near)), np.int64)

    def _answer(self, text: str, near: Sequence[int]) -> int:
        body = json.dumps({"model": self.model, "temperature": 0, "messages": self._messages(text, near)}).encode()
        for attempt in range(self.retries + 1):
            self._count("requests")
            if attempt:
                self._count("retries")
            said = self._said(body)
            if said is not None and (label := self.number.get(_plain(said))) is not None:
                return label
            if said is not None:
                self._count("nonsense")
        self._count("given up")
        return int(self.labels[near[0]])

    def _messages(self, text: str, near: Sequence[int]) -> list[dict[str, str]]:
        examples = [(self.texts[i], self.classes[self.labels[i]]) for i in reversed(near)]  # the nearest last
        shown = [f"Text: {one[:SHOWN]}\nClass: {name}" for one, name in examples]
        asked = "\n\n".join([f"Classes: {', '.join(self.classes)}", *shown, f"Text: {text[:SHOWN]}\nClass:"])
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]

    def _said(self, body: bytes) -> str | None:
        """What the model answered; None, counted, where there is no answer."""
        import urllib3

        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.key_env):
            headers["Authorization"] = f"Bearer {key}"
        address = f"{self.endpoint.rstrip('/')}/chat/completions"
        try:
            answer = self.pool.request(
                "POST", address, body=body, headers=headers, timeout=self.timeout, redirect=False, preload_content=False
            )
            data = answer.read(LARGEST)
            answer.release_conn()
        except urllib3.exceptions.TimeoutError:
            self._count("timeouts")
            return None
        except urllib3.exceptions.HTTPError:
            self._count("unreachable")
            return None
        if answer.status in (401, 403, 404):
            raise BadInput(f"{address} answered {answer.status}.", "", f"Check endpoint, model and ${self.key_env}.")
        if answer.status != 200:
            self._count(f"status {answer.status}")
            return None
        try:
            return str(json.loads(data)["choices"][0]["message"]["content"])
        except (ValueError, KeyError, IndexError, TypeError):
            self._count("nonsense")
            return None

    def stored_bytes(self) -> int:
        """Texts, labels and vectors."""
        return sum(len(text.encode()) + 8 for text in self.texts) + self.memory.nbytes

    def metadata(self) -> dict[str, Any]:
        """Requests, retries, timeouts, answers that named no class, and how often the nearest example had to answer."""
        return {"requests": dict(sorted(self.counts.items()))}


def _plain(name: str) -> str:
    """Without case, quotes, spaces and underscores: `"Card arrival."` is card_arrival."""
    return re.sub(r"[\W_]+", "", name).casefold()
