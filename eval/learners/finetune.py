"""Finetuning: each step continues from the weights of the step before, without memory."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.eval.learner import Guide
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class Finetune(NetLearner):
    """Trains on each step's data only, starting from the current weights."""

    guide = Guide("trained heads", "CLEAR", "E n D C", "the plain way; the row that all others must beat")
