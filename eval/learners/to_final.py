"""Seq-to-Final's methods by name: each is a history mode and a final mode of `eval.finetuning.method`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from curate.core.errors import BadConfig, IncompatibleStream
from curate.core.torch_threads import one_thread
from eval.finetuning import method as methods
from eval.finetuning.fit_cache import Store
from eval.finetuning.method import Data, Method
from eval.finetuning.samples import samples
from eval.finetuning.stage import Rules, Work
from eval.learner import Array, Labels, Learner, Task
from eval.training.sgd_learner import place
from stream_builder.stream import Step


@dataclass
class ToFinal(Learner):
    """Compose a method for the last step: history (none, erm, irm, dro, each, joint) × final (pooled, all, fc, fc-all,
    unfreeze-last, unfreeze-first, side-1, side-b, lowrank-add, lowrank-mul, search, surgical-rgn, surgical-snr).

    The other settings are those of `eval.finetuning.method.Method`; shared: names of blocks, joined by +. sees_final:
    "auto" is yes for histories of IRM and DRO with fidelity=paper-code, as that code does. device: "cpu", "cuda" or
    "auto". Network, grids and budget are the protocol's, the same for all.
    """

    history: str = "erm"
    final: str = "all"
    regulariser: str = "l2"
    schedule: str = "none"
    weights: str = "equal"
    sees_final: str = "auto"
    rank: int = 4
    shared: str = ""
    beam: int = 1
    resets: str = "auto"
    device: str = "cpu"

    needs_whole_steps = "It learns from all steps at once, for the last one."
    of_oracle = False

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Raises IncompatibleStream under a protocol that is not about the last step, BadConfig for modes that do not
        fit."""
        if not isinstance(task.rules, Rules):
            raise IncompatibleStream("It learns from all steps for the last one.", "", "Use --protocol seq-to-final.")
        paper = task.rules.paper
        self.method = Method(
            self.history,
            self.final,
            self.regulariser,
            self.schedule,
            self.weights,
            yes(self.sees_final, paper and self.history in ("irm", "dro") and self.final != "pooled"),
            self.rank,
            tuple(name for name in str(self.shared).split("+") if name),
            self.beam,
            yes(self.resets, not paper),
        )
        rules = replace(task.rules, device=place(self.device))
        self.task, self.work = task, Work(rules, task.seed, Store(task.store))
        self.net: Any = None
        self.gradient_steps = 0

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """All steps' train and val splits."""
        device = self.work.rules.device
        data = Data(*([samples(step[side], device) for step in steps] for side in ("train", "val")))
        with one_thread():
            self.net = methods.run(self.method, data, self.work, self.task.n_classes, self.task.x_shape)
        self.gradient_steps = self.work.book.steps

    def learn(self, x: Array, y: Labels) -> None:
        """Raises IncompatibleStream: it takes whole sequences."""
        raise IncompatibleStream(self.needs_whole_steps, "", "Use --protocol seq-to-final.")

    def predict(self, x: Array) -> Labels:
        """Class of the highest score; class 0 before anything was learned."""
        if self.net is None:
            return np.zeros(len(x), np.int64)
        with one_thread():
            return methods.scores(self.net, x, self.work).argmax(1).cpu().numpy()

    def stored_bytes(self) -> int:
        """The network that answers."""
        return 0 if self.net is None else sum(int(t.nbytes) for t in self.net.state_dict().values())

    def metadata(self) -> dict[str, Any]:
        """What was chosen in each stage, fits tried, found and dropped."""
        book = self.work.book
        told = {"stages": book.fits, "fits": book.tried, "found": book.found, "dropped": book.dropped}
        return told | {"fit_seconds": round(book.seconds, 1)}


def yes(setting: str | bool, otherwise: bool) -> bool:
    """ "yes", "no" or "auto"; the command line hands over True for yes. Raises BadConfig for anything else.

    >>> yes("yes", False), yes(True, False), yes("no", True), yes(False, True), yes("auto", True)
    (True, True, False, False, True)
    """
    found = {"auto": otherwise, "yes": True, "true": True, "no": False, "false": False}.get(str(setting).lower())
    if found is None:
        raise BadConfig(f"A setting is {setting!r}.", "Expected yes, no or auto.")
    return found


def _named(name: str, told: str, **defaults: Any) -> Any:
    """A method of the paper: other defaults, the same settings."""
    kind: Any = dataclass(type(name, (ToFinal,), {"__annotations__": dict.fromkeys(defaults, "str"), **defaults}))
    kind.__doc__, kind.__module__ = told, __name__
    return kind


Baseline = _named("Baseline", "ERM on the last step alone.", history="none")
Oracle = _named("Oracle", "ERM on as much data of the last distribution as the whole sequence has.", history="none")
Oracle.of_oracle = True
Erm = _named("Erm", "ERM on all steps pooled.", final="pooled")
Irm = _named("Irm", "Invariant risk minimisation over all steps.", history="irm", final="pooled")
Dro = _named("Dro", "The worst step's loss, over all steps.", history="dro", final="pooled")
Ft = _named("Ft", "ERM on history, then all layers on the last step.")
LpFt = _named("LpFt", "ERM on history, then the classifier, then all layers.", final="fc-all")
IFt = _named("IFt", "IRM on history, then all layers.", history="irm")
DFt = _named("DFt", "DRO on history, then all layers.", history="dro")
St1 = _named("St1", "ERM on history, then one-layer side modules.", final="side-1")
StB = _named("StB", "ERM on history, then side blocks.", final="side-b")
Sft = _named("Sft", "Fine-tuning step after step.", history="each")
SftLinear = _named("SftLinear", "The same, learning rates fall linearly.", history="each", schedule="linear")
SftExponential = _named(
    "SftExponential", "The same, learning rates fall exponentially.", history="each", schedule="exponential"
)
SeqEwc = _named(
    "SeqEwc", "Step after step, pulled to all earlier models by Fisher.", history="each", regulariser="fisher-all"
)
Sst1 = _named("Sst1", "One-layer side modules, step after step.", history="each", final="side-1")
SstB = _named("SstB", "Side blocks, step after step.", history="each", final="side-b")
Jm = _named("Jm", "One model a step, learned together, adjacent ones pulled to each other.", history="joint")
Jst1 = _named("Jst1", "One-layer side modules a step, learned together.", history="joint", final="side-1")
JstB = _named("JstB", "Side blocks a step, learned together.", history="joint", final="side-b")
