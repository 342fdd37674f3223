"""Low-rank adapters on a transformer that classifies texts, through peft [Hu et al. 2021; OCRR]."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadConfig, IncompatibleStream, not_loaded
from driftline.curate.core.executor import one_thread
from driftline.curate.encoders.weights import offline_copy
from driftline.eval.engine.linear import seeded
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.training.sgd_learner import Budget, Device, batches_of, place

CHUNK = 64  # samples predicted at once


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
    targets: str = "auto"
    """modules that are adapted, joined by +; `auto`: the query and value projections"""
    device: Device = "cpu"
    """cpu, cuda or auto"""

    needs = Needs(texts=True)
    reaches = MappingProxyType({"model": "a model"})
    guide = Guide("adapters and language models", "Hu et al. 2021", "a network",
                  "raw texts and a pre-trained transformer")  # fmt: skip

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
            except Exception as error:  # unpickling raises many kinds of exceptions
                raise not_loaded(self.model, error) from None
            targets = self._targets(base)
            config = peft.LoraConfig(task_type=peft.TaskType.SEQ_CLS, target_modules=targets, **rank)
            self.net: Any = peft.get_peft_model(base, config).to(self.place)
        self.gradient_steps = 0

    def unused(self, task: Task) -> dict[str, str]:
        """Epochs under a budget of updates, the rate of corrections without any."""
        return task.budgeted("epochs") | task.of_corrections("correct_lr")

    def _targets(self, base: Any) -> list[str]:
        """Names of the query and value projections. Raises BadConfig if there are none."""
        names = {name.rpartition(".")[2] for name, _ in base.named_modules()}
        if self.targets != "auto":
            return str(self.targets).split("+")
        for pair in (("query_proj", "value_proj"), ("query", "value"), ("q_proj", "v_proj"), ("q_lin", "v_lin")):
            if set(pair) <= names:
                return list(pair)
        raise BadConfig(f"{self.model} has no projections that lora knows.", "", "Name them: targets=q_proj+v_proj.")

    def _inputs(self, x: Array) -> dict[str, Any]:
        texts = [str(text) for text in x]
        tokens = self.reader(texts, padding=True, truncation=True, max_length=self.length, return_tensors="pt")
        return {name: value.to(self.place) for name, value in tokens.items()}

    def _step(self, optimiser: Any, inputs: dict[str, Any], y: Labels) -> None:
        import torch

        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(
                self.net(**inputs).logits, torch.from_numpy(np.array(y, np.int64)).to(self.place)
            )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        self.gradient_steps += 1

    def learn(self, x: Array, y: Labels) -> None:
        import torch

        self._check(y)
        optimiser = torch.optim.AdamW(self.learned(), lr=self.lr)
        tokens = self._inputs(x)  # once for all passes
        with seeded(self.rng), one_thread():  # the seed of dropout
            self.net.train()
            for rows in batches_of(len(y), self.batch, self.epochs, self.rng, self.budget.take(self.cost)):
                self._step(optimiser, cut(tokens, rows), np.asarray(y)[rows])

    def correct(self, x: Array, y: Labels) -> None:
        """One step of SGD without dropout. Raises BadConfig for an undeclared class."""
        import torch

        self._check(y)
        self.net.eval()
        with one_thread():
            self._step(torch.optim.SGD(self.learned(), self.correct_lr), self._inputs(x), y)

    def _check(self, y: Labels) -> None:
        if int(np.max(y)) >= self.task.n_classes:
            raise BadConfig(f"Class {int(np.max(y))} was never declared.", f"There are {self.task.n_classes}.")

    def scores(self, x: Array) -> npt.NDArray[np.float32]:
        import torch

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
