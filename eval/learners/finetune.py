"""Finetuning: each step continues from the weights of the last, without memory."""

from __future__ import annotations

from dataclasses import dataclass

from eval.training.sgd_learner import NetLearner


@dataclass
class Finetune(NetLearner):
    """Trains on each step's data alone, starting from the weights at hand."""
