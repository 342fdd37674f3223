"""A language model, prompted with the nearest examples, at any endpoint of OpenAI's chat protocol [OCRR]."""

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadInput, IncompatibleStream, Unreachable
from driftline.curate.core.vectors import hashed_ngrams
from driftline.curate.foreign.http import Client, Policy, Temporary, repeat
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.memory.knn_index import Memory

LARGEST = 1 << 20  # bytes of an answer
BACKOFF = 0.1  # seconds before a request is repeated, doubling
WIDTH = 2048  # of the vectors of hashed n-grams by which examples are found
SHOWN = 2000  # characters of a text in a prompt
SYSTEM = "You sort texts into classes. Answer with the name of one class, exactly as it is written, and nothing else."


@dataclass
class Llm(Learner):
    """Asks a language model, with the nearest of all samples and corrections so far as examples.

    The prompt names only classes that it has learned: a held-out class becomes known with its first correction. A
    request that fails, times out or names no class is repeated; after the last retry the class of the nearest example
    is the answer. The run's record has the counts. A server that never answers ends the run.
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

    needs = Needs(texts=True)
    knows = True
    reaches = MappingProxyType({"endpoint": "an address", "model": "a model", "key_env": "a key"})
    guide = Guide("adapters and language models", "OCRR", "an endpoint",
                  "what a language model answers with nearest examples")  # fmt: skip

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with an empty memory. Raises IncompatibleStream without an endpoint and for anything but texts."""
        if task.x_shape:
            raise IncompatibleStream(
                f"llm reads texts; the samples have shape {task.x_shape}.", "", "See docs/reference/ocrr.md."
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
        self.answered = False  # by the server, whatever it said
        self._open()

    def _open(self) -> None:
        key, seconds = os.environ.get(self.key_env, ""), self.timeout
        self.client = Client(secret=key, timeout=seconds, deadline=seconds, largest=LARGEST, connections=self.workers)
        self.lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: without connections."""
        return {name: value for name, value in vars(self).items() if name not in ("client", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def _count(self, event: str) -> None:
        """Count an event, from any thread."""
        with self.lock:
            self.counts[event] += 1

    def learn(self, x: Array, y: Labels) -> None:
        texts = [str(text) for text in x]
        self.memory.add(hashed_ngrams(texts, WIDTH))
        self.texts += texts
        self.labels += np.asarray(y).tolist()
        self.number |= {_folded(self.classes[label]): label for label in np.unique(y).tolist()}

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
        tries = count()

        def once() -> int:
            self._count("requests")
            if next(tries):
                self._count("retries")
            try:
                return self._label(body)
            except Temporary as failure:
                self._count(str(failure))
                raise

        try:
            return repeat(once, Policy(self.retries + 1, BACKOFF))
        except Temporary as failure:
            self._count("given up")
            if str(failure) == "unreachable" and not self.answered:
                raise Unreachable(f"{self.endpoint} cannot be reached.", "", "Start the server.") from None
            return int(self.labels[near[0]])

    def _messages(self, text: str, near: Sequence[int]) -> list[dict[str, str]]:
        examples = [(self.texts[i], self.classes[self.labels[i]]) for i in reversed(near)]  # nearest last
        shown = [f"Text: {example[:SHOWN]}\nClass: {name}" for example, name in examples]
        names = ", ".join(self.classes[label] for label in sorted(self.number.values()))
        prompt = "\n\n".join([f"Classes: {names}", *shown, f"Text: {text[:SHOWN]}\nClass:"])
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]

    def _label(self, body: bytes) -> int:
        """The class that the model's reply names. Raises Temporary, with what is counted."""
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.key_env):
            headers["Authorization"] = f"Bearer {key}"
        address = f"{self.endpoint.rstrip('/')}/chat/completions"
        try:
            reply = self.client.send("POST", address, body=body, headers=headers)
        except Temporary as failure:
            raise Temporary("timeouts" if "Timeout" in str(failure) else "unreachable") from None
        self.answered = True
        if reply.status in (401, 403, 404):
            raise BadInput(
                f"{self.client.hidden(address)} answered {reply.status}.",
                "",
                f"Check endpoint, model and ${self.key_env}.",
            )
        if reply.status != 200:
            raise reply.again(f"status {reply.status}")
        try:  # content is null where the model refuses: no class, whatever classes are named
            return self.number[_folded(json.loads(reply.body)["choices"][0]["message"]["content"])]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            raise Temporary("nonsense") from None

    def stored_bytes(self) -> int:
        """Texts, labels and vectors."""
        return sum(len(text.encode()) + 8 for text in self.texts) + self.memory.nbytes

    def metadata(self) -> dict[str, Any]:
        """Counts of requests, retries, timeouts, replies without a class, and answers taken from the nearest
        example."""
        return {"requests": dict(sorted(self.counts.items()))}


def _folded(name: str) -> str:
    """Without case, quotes, spaces and underscores: `"Card arrival."` matches card_arrival."""
    return re.sub(r"[\W_]+", "", name).casefold()
