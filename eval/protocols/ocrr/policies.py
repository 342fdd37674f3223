"""Who corrects which errors, when, and how well: policies, joined by "+".

oracle               every error
random_50, random_10 half of them, a tenth
bernoulli:P          each with probability P
budget:N             no more than N in all
delayed:N            a correction comes N samples after its error
wrong:P              with probability P it names another class, each equally likely
"""

from dataclasses import dataclass

import numpy as np

from driftline.curate.core.errors import BadConfig

RATES = {"oracle": 1.0, "random_50": 0.5, "random_10": 0.1}
HINT = "Expected oracle, random_50, random_10, bernoulli:P, budget:N, delayed:N, wrong:P, joined by +."


@dataclass(frozen=True)
class Policy:
    """Which errors are corrected."""

    rate: float = 1.0
    """share of errors that are corrected"""
    budget: int | None = None
    """corrections in all; None: no limit"""
    delay: int = 0
    """samples between an error and its correction"""
    wrong: float = 0.0
    """share of corrections that name another class"""

    def corrects(self, made: int, rng: np.random.Generator) -> bool:
        """Whether an error is corrected, after `made` corrections; draws only if the rate is below 1."""
        if self.budget is not None and made >= self.budget:
            return False
        return self.rate >= 1 or bool(rng.random() < self.rate)

    def label(self, truth: int, n_classes: int, rng: np.random.Generator) -> int:
        """What the correction says."""
        if self.wrong and rng.random() < self.wrong:
            return int((truth + 1 + rng.integers(n_classes - 1)) % n_classes)
        return truth


def parse(text: str) -> Policy:
    """`random_50+delayed:20+wrong:0.1` → a policy. Raises BadConfig."""
    parts: dict[str, float | int] = {}
    for word in str(text).split("+"):
        kind, _, number = word.strip().partition(":")
        if kind in RATES and not number:
            key, value = "rate", str(RATES[kind])
        elif kind in ("bernoulli", "budget", "delayed", "wrong"):
            key, value = {"bernoulli": "rate", "delayed": "delay"}.get(kind, kind), number
        else:
            raise BadConfig(f"The policy {text!r} holds {word.strip()!r}.", HINT)
        if key in parts:
            raise BadConfig(f"The policy {text!r} says {key} twice.", HINT)
        share = key in ("rate", "wrong")
        try:
            amount = float(value) if share else int(value)
        except ValueError:
            raise BadConfig(f"The policy {text!r}: {value!r} is no number.", HINT) from None
        if amount < 0 or (share and amount > 1):
            raise BadConfig(f"The policy {text!r}: {value}.", "Expected shares from 0 to 1, counts from 0.")
        parts[key] = amount
    return Policy(**parts)  # type: ignore[arg-type]
