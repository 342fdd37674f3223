"""Finetuning: each step continues from the weights of the last, without memory."""

from __future__ import annotations

from dataclasses import dataclass

from eval.learners.linear import LinearLearner


@dataclass
class Finetune(LinearLearner):
    """Trains on each step's data alone, starting from the weights at hand."""
