"""Learners of texts: low-rank adapters on a transformer, through peft [Hu et al. 2021; OCRR], and a language model,
prompted with the nearest examples, at any endpoint of OpenAI's chat protocol [OCRR]."""

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, Unreachable, not_loaded
from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.curate.core.vectors import hashed_ngrams
from driftline.curate.encoders.weights import offline_copy
from driftline.curate.foreign.http import Client, Policy, Temporary, repeat
from driftline.eval.engine.linear import seeded
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.memory.knn_index import Memory
from driftline.eval.training.sgd_learner import Budget, Device, batches_of, place

CHUNK = 64  # samples predicted at once
PROJECTIONS = r".*\.(query|value)(_proj)?|.*\.[qv]_(proj|lin)"  # names of query and value projections


@dataclass
class Lora(Learner):
    """Trains adapters and a new classifier by AdamW on the seed data, then one step of SGD for every correction.

    The query and value projections are adapted. Defaults as in OCRR.
    """

    model: str = ""
    """hub tag or folder of a Hugging Face transformer that classifies sequences (extra `lora`; OCRR:
    microsoft/deberta-v3-large)"""
    rank: PositiveInt = 8
    """rank of the adapters"""
    alpha: PositiveInt = 16
    """scale of the adapters, α of LoRA"""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """dropout of the adapters"""
    lr: PositiveFloat = 2e-4
    """learning rate of AdamW"""
    correct_lr: PositiveFloat = 5e-4
    """learning rate of a correction"""
    epochs: PositiveInt = 2
    """passes over the seed data"""
    batch: PositiveInt = 16
    """samples per update"""
    length: PositiveInt = 64
    """tokens of a text, at most"""
    device: Device = "cpu"
    """cpu, cuda or auto"""

    needs = Needs(texts=True)
    reaches = MappingProxyType({"model": "a model"})
    guide = Guide("adapters and language models", "Hu et al. 2021", "a network", "texts and a pre-trained transformer")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new classifier and new adapters. Raises IncompatibleStream for features and without a model, MissingFile
        for a missing model, BadInput for one that cannot be read, BadConfig without peft."""
        if task.x_shape:
            problem = f"lora reads texts; the samples have shape {task.x_shape}."
            raise IncompatibleStream(problem, "", "See docs/reference/ocrr.md.")
        if not self.model:
            paper = "OCRR's own is lora(model=microsoft/deberta-v3-large), 1.7 GB."
            raise IncompatibleStream("lora has no model.", "Expected a hub tag or a folder.", paper)
        if find_spec("peft") is None:
            raise BadConfig("peft is not installed.", "", "Install the extra: pip install 'driftline[lora]'.")
        alone = Path(self.model).is_dir() or offline_copy(self.model, ("config.json",)) is not None
        import peft
        import transformers

        self.cost, self.budget = task.cost_of(self.batch), Budget(task)
        self.task, self.rng, self.place = task, rng, place(self.device)
        transformers.utils.logging.set_verbosity_error()  # no warning about the new classifier
        rank = {"r": self.rank, "lora_alpha": self.alpha, "lora_dropout": self.dropout}
        with seeded(rng):
            try:
                size = {"num_labels": task.n_classes, "ignore_mismatched_sizes": True}
                where = {"trust_remote_code": False, "local_files_only": alone}
                base = transformers.AutoModelForSequenceClassification.from_pretrained(self.model, **where, **size)
                self.reader: Any = transformers.AutoTokenizer.from_pretrained(self.model, **where)
                config = peft.LoraConfig(task_type=peft.TaskType.SEQ_CLS, target_modules=PROJECTIONS, **rank)
                self.net: Any = peft.get_peft_model(base, config).to(self.place)
            except Exception as error:  # unpickling raises many kinds of exceptions; it may have no such projections
                raise not_loaded(self.model, error) from None
        self.gradient_steps = 0

    def unused(self, task: Task) -> dict[str, str]:
        """Epochs under a budget of updates, the rate of corrections without any."""
        return task.budgeted("epochs") | task.of_corrections("correct_lr")

    def _inputs(self, x: Array) -> dict[str, Any]:
        texts = [str(text) for text in x]
        tokens = self.reader(texts, padding=True, truncation=True, max_length=self.length, return_tensors="pt")
        return {name: value.to(self.place) for name, value in tokens.items()}

    def _step(self, optimiser: Any, inputs: dict[str, Any], y: Labels) -> None:
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(
                self.net(**inputs).logits, torch.from_numpy(np.array(y, np.int64)).to(self.place)
            )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        self.gradient_steps += 1

    def learn(self, x: Array, y: Labels) -> None:
        self._check(y)
        optimiser = torch.optim.AdamW(self.learned(), lr=self.lr)
        tokens = self._inputs(x)  # once for all passes
        with seeded(self.rng), one_thread():  # the seed of dropout
            self.net.train()
            for rows in batches_of(len(y), self.batch, self.epochs, self.rng, self.budget.take(self.cost)):
                self._step(optimiser, cut(tokens, rows), np.asarray(y)[rows])

    def correct(self, x: Array, y: Labels) -> None:
        """One step of SGD without dropout. Raises BadConfig for an undeclared class."""
        self._check(y)
        self.net.eval()
        with one_thread():
            self._step(torch.optim.SGD(self.learned(), self.correct_lr), self._inputs(x), y)

    def _check(self, y: Labels) -> None:
        if int(np.max(y)) >= self.task.n_classes:
            raise BadConfig(f"Class {int(np.max(y))} was never declared.", f"There are {self.task.n_classes}.")

    def scores(self, x: Array) -> npt.NDArray[np.float32]:
        self.net.eval()
        with one_thread(), torch.inference_mode():
            parts = [self.net(**self._inputs(x[low : low + CHUNK])).logits for low in range(0, len(x), CHUNK)]
            return torch.cat(parts).float().cpu().numpy()

    def stored_bytes(self) -> int:
        """Adapters and classifier."""
        return sum(int(p.nbytes) for p in self.learned())

    def learned(self) -> list[Any]:
        """The parameters that learn: matrices of the adapters, and the classifier."""
        return [p for p in self.net.parameters() if p.requires_grad]


def cut(tokens: dict[str, Any], rows: Labels) -> dict[str, Any]:
    """Tokens of some texts, without the columns that are padding in all of them."""
    read = tokens["attention_mask"][rows].any(0)
    return {name: value[rows][:, read] for name, value in tokens.items()}


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
    """URL, such as http://127.0.0.1:11434/v1"""
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
    guide = Guide("adapters and language models", "OCRR", "an endpoint", "what a language model answers by examples")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with an empty memory. Raises IncompatibleStream without an endpoint and for anything but texts."""
        if task.x_shape:
            problem = f"llm reads texts; the samples have shape {task.x_shape}."
            raise IncompatibleStream(problem, "", "See docs/reference/ocrr.md.")
        if not re.match(r"https?://", self.endpoint) or not self.model:
            expected = "Expected a URL such as http://127.0.0.1:11434/v1, and a model's name."
            raise IncompatibleStream(f"endpoint is {self.endpoint!r}, model {self.model!r}.", expected)
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
            problem = f"{self.client.hidden(address)} answered {reply.status}."
            raise BadInput(problem, "", f"Check endpoint, model and ${self.key_env}.")
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
