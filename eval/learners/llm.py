"""A language model, prompted with the nearest examples, at any endpoint of OpenAI's chat protocol [OCRR]."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from curate.core.errors import BadInput, IncompatibleStream
from curate.core.hashed_ngrams import hashed_ngrams
from eval.learner import Array, Labels, Learner, Task
from eval.memory.knn_index import Memory

LARGEST = 1 << 20  # bytes of an answer
WIDTH = 2048  # of the vectors of hashed n-grams by which examples are found
SHOWN = 2000  # characters of a text in a prompt
SYSTEM = "You sort texts into classes. Answer with the name of one class, exactly as it is written, and nothing else."


@dataclass
class Llm(Learner):
    """Asks a language model, with the nearest of all samples and corrections so far as examples.

    The prompt names only classes that it has learned: a held-out class becomes known with its first correction. A
    request that fails, times out or names no class is repeated; after the last retry the class of the nearest example
    is the answer. The run's record has the counts.
    """

    endpoint: str = ""
    """address, such as http://127.0.0.1:11434/v1"""
    model: str = ""
    """name of the model at the endpoint"""
    k: PositiveInt = 6
    """examples in a prompt, nearest by hashed n-grams of letters"""
    key_env: str = "OPENAI_API_KEY"
    """environment variable that has the key, if one is needed"""
    timeout: PositiveFloat = 30.0
    """seconds until a request counts as failed"""
    retries: NonNegativeInt = 2
    """repetitions of a failed request"""
    workers: PositiveInt = 4
    """concurrent requests"""

    reads_texts = True
    reaches = MappingProxyType({"endpoint": "an address", "model": "a model", "key_env": "a key"})

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with an empty memory. Raises IncompatibleStream without an endpoint and for anything but texts."""
        if task.x_shape:
            raise IncompatibleStream(
                f"llm reads texts; the samples have shape {task.x_shape}.", "", "See docs/papers/ocrr.md."
            )
        if not re.match(r"https?://", self.endpoint) or not self.model:
            raise IncompatibleStream(
                f"endpoint is {self.endpoint!r}, model {self.model!r}.",
                "Expected an address such as http://127.0.0.1:11434/v1, and a model's name.",
            )
        self.classes = list(task.classes) or [str(c) for c in range(task.n_classes)]
        self.number: dict[str, int] = {}  # plain name → label, of classes that were learned
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
        """For checkpoints: without connections."""
        return {name: value for name, value in vars(self).items() if name not in ("pool", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def _count(self, event: str) -> None:
        """Count an event, from any thread."""
        with self.lock:
            self.counts[event] += 1

    def learn(self, x: Array, y: Labels) -> None:
        """Store the texts and their vectors."""
        texts = [str(text) for text in x]
        self.memory.add(hashed_ngrams(texts, WIDTH))
        self.texts += texts
        self.labels += np.asarray(y).tolist()
        self.number |= {_plain(self.classes[label]): label for label in np.unique(y).tolist()}

    def predict(self, x: Array) -> Labels:
        """One request per text; 0 before anything was learned."""
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
            reply = self._reply(body)
            if reply is not None and (label := self.number.get(_plain(reply))) is not None:
                return label
            if reply is not None:
                self._count("nonsense")
        self._count("given up")
        return int(self.labels[near[0]])

    def _messages(self, text: str, near: Sequence[int]) -> list[dict[str, str]]:
        examples = [(self.texts[i], self.classes[self.labels[i]]) for i in reversed(near)]  # nearest last
        shown = [f"Text: {example[:SHOWN]}\nClass: {name}" for example, name in examples]
        known = ", ".join(self.classes[label] for label in sorted(self.number.values()))
        prompt = "\n\n".join([f"Classes: {known}", *shown, f"Text: {text[:SHOWN]}\nClass:"])
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]

    def _reply(self, body: bytes) -> str | None:
        """The model's reply; None if there is none, which is counted."""
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
        """Counts of requests, retries, timeouts, replies without a class, and answers taken from the nearest
        example."""
        return {"requests": dict(sorted(self.counts.items()))}


def _plain(name: str) -> str:
    """Without case, quotes, spaces and underscores: `"Card arrival."` matches card_arrival."""
    return re.sub(r"[\W_]+", "", name).casefold()
