"""Seq-to-Final's methods by name: each is a history mode and a final mode of `driftline.eval.finetuning.method`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import numpy as np

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.eval.finetuning.modes import Method, Rules
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.training.sgd_learner import Device, place
from driftline.stream_builder.stream import Step

WHOLE = "it learns from all steps at once, for the last one"
OF_ALL_STEPS = Guide("for the last step", "Seq-to-Final", "E N D C", "a combination of your own")


@dataclass
class ToFinal(Method, Learner):
    """A method for the last step, composed of what it does with earlier steps (history) and with the last one (final).

    Network, grids and budget are the protocol's, the same for all methods.
    """

    device: Device = "cpu"
    """cpu, cuda or auto"""

    needs = Needs(whole_steps=WHOLE, all_steps=WHOLE)
    obeys = True
    guide = OF_ALL_STEPS

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start untrained. Raises IncompatibleStream under a protocol that is not about the last step, BadConfig for a
        history and a final mode that exclude each other."""
        from driftline.eval.finetuning.search import Fits, Work

        if not isinstance(task.rules, Rules):
            raise self._refusal()
        self.method = self._method(task.rules.paper)
        rules = replace(task.rules, device=place(self.device))
        self.task, self.work = task, Work(rules, task.seed, Fits(task.store))
        self.net: Any = None
        self.gradient_steps = 0

    def _method(self, paper: bool) -> Method:
        """Raises BadConfig as `begin`."""
        settings = {field.name: getattr(self, field.name) for field in fields(Method)}
        if self.sees_final == "auto":
            settings["sees_final"] = paper and self.history in ("irm", "dro") and self.final != "pooled"
        if self.resets == "auto":
            settings["resets"] = not paper
        method = Method(**settings)
        method.check()
        return method

    def unused(self, task: Task) -> dict[str, str]:
        """What history and final mode leave without effect."""
        return self._method(task.rules.paper).idle() if task.rules else {}

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """Learn the train and val splits of all steps."""
        from driftline.eval.finetuning import method as methods
        from driftline.eval.finetuning.objectives import samples

        device = self.work.rules.device
        data = methods.Data(*([samples(step[side], device) for step in steps] for side in ("train", "val")))
        with one_thread():
            self.net = methods.run(self.method, data, self.work, self.task.n_classes, self.task.x_shape)
        self.gradient_steps = self.work.book.steps

    def learn(self, x: Array, y: Labels) -> None:
        """Raises IncompatibleStream: it takes whole sequences."""
        raise self._refusal()

    def _refusal(self) -> IncompatibleStream:
        why = f"It cannot learn step by step: {WHOLE}."
        return IncompatibleStream(why, "", "Use --protocol seq-to-final.")

    def scores(self, x: Array) -> Array:
        """Of the trained network (N, C) float32; zeros before anything was learned."""
        if self.net is None:
            return np.zeros((len(x), self.task.n_classes), np.float32)
        from driftline.eval.finetuning.fit import scores_of
        from driftline.eval.finetuning.objectives import decoded

        with one_thread():
            samples = torch.from_numpy(decoded(x)).to(self.work.rules.device)
            return scores_of(self.net, samples, self.work.rules.rule).float().cpu().numpy()

    def stored_bytes(self) -> int:
        """The network that answers."""
        return 0 if self.net is None else sum(int(t.nbytes) for t in self.net.state_dict().values())

    def metadata(self) -> dict[str, Any]:
        """The choice of each stage; the fits of the network that predicts; numbers of fits tried, found in the store
        and dropped."""
        book = self.work.book
        counts = {"stages": book.fits, "network": [] if self.net is None else self.net.fits}
        counts |= {"fits": book.tried, "found": book.reused, "dropped": book.dropped}
        counts |= {"fits_allowed": self.work.rules.fits} if self.work.rules.fits else {}
        return counts | {"fit_seconds": round(book.seconds, 1)}


def _method(name: str, summary: str, use: str, source: str, defaults: dict[str, str]) -> Any:
    """A method of the paper: other defaults, the same settings."""
    hints = get_type_hints(Method, include_extras=True)
    types = {setting: hints[setting] for setting in defaults}
    kind: Any = dataclass(type(name, (ToFinal,), {"__annotations__": types, **defaults}))
    kind.__doc__, kind.__module__ = summary, __name__
    cost = "E n D C" if defaults is NONE else OF_ALL_STEPS.cost
    kind.guide = replace(OF_ALL_STEPS, source=source or OF_ALL_STEPS.source, use=use, cost=cost)
    return kind


SIDE_1, SIDE_B = {"final": "side-1"}, {"final": "side-b"}
NONE, EACH, JOINT = {"history": "none"}, {"history": "each"}, {"history": "joint"}
METHODS: tuple[tuple[str, str, str, str, dict[str, str]], ...] = (  # class, summary, use, source, settings
    ("Baseline", "ERM on the last step only.", "the last step alone", "", NONE),
    ("Oracle", "ERM on as much data of the last distribution as the whole sequence has.",
     "an upper bound with data of the last step's distribution", "", NONE),
    ("Erm", "ERM on all steps pooled.", "all steps as one", "", {"final": "pooled"}),
    ("Irm", "Invariant risk minimisation over all steps.", "what holds in every step", "Arjovsky et al. 2019",
     {"history": "irm", "final": "pooled"}),
    ("Dro", "Minimises the largest loss among all steps (group DRO).", "the worst step counts", "Sagawa et al. 2020",
     {"history": "dro", "final": "pooled"}),
    ("Ft", "ERM on history, then fine-tuning of all layers on the last step.", "pooled history, then fine-tuning", "",
     {}),
    ("LpFt", "ERM on history, then the classifier, then all layers on the last step.", "as ft, the head first",
     "Kumar et al. 2022", {"final": "fc-all"}),
    ("IFt", "IRM on history, then fine-tuning of all layers on the last step.", "invariant history, then fine-tuning",
     "", {"history": "irm"}),
    ("DFt", "DRO on history, then fine-tuning of all layers on the last step.", "robust history, then fine-tuning", "",
     {"history": "dro"}),
    ("St1", "ERM on history, then one-layer side modules on the last step.", "side tuning of one module", "", SIDE_1),
    ("StB", "ERM on history, then side blocks on the last step.", "side tuning of every block", "", SIDE_B),
    ("Sft", "Fine-tuning step after step.", "sequential fine-tuning, one rate", "", EACH),
    ("SftLinear", "Fine-tuning step after step; learning rates fall linearly.", "as sft, rates that fall linearly", "",
     EACH | {"schedule": "linear"}),
    ("SftExponential", "Fine-tuning step after step; learning rates fall exponentially.",
     "as sft, rates that fall exponentially", "", EACH | {"schedule": "exponential"}),
    ("SeqEwc", "Fine-tuning step after step, pulled towards all earlier models by Fisher information.",
     "sequential fine-tuning with a penalty", "", EACH | {"regulariser": "fisher-all"}),
    ("Sst1", "One-layer side modules, step after step.", "sequential side tuning of one module", "", EACH | SIDE_1),
    ("SstB", "Side blocks, step after step.", "sequential side tuning of every block", "", EACH | SIDE_B),
    ("Jm", "One model per step, trained jointly; adjacent models are pulled to each other.",
     "one model with weights for each step", "", JOINT),
    ("Jst1", "One-layer side modules per step, trained jointly.", "joint side tuning of one module", "",
     JOINT | SIDE_1),
    ("JstB", "Side blocks per step, trained jointly.", "joint side tuning of every block", "", JOINT | SIDE_B),
)  # fmt: skip
(
    Baseline, Oracle, Erm, Irm, Dro, Ft, LpFt, IFt, DFt, St1, StB, Sft, SftLinear, SftExponential, SeqEwc, Sst1, SstB,
    Jm, Jst1, JstB,
) = (_method(*row) for row in METHODS)  # fmt: skip
Oracle.needs = replace(ToFinal.needs, oracle=True)
Oracle.guide = replace(Oracle.guide, family="references")
