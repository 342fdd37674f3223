"""Models of other libraries as learners: scikit-learn, river, torch modules, Avalanche strategies."""

from __future__ import annotations

from eval.integrations.avalanche import Avalanche
from eval.integrations.river import River
from eval.integrations.sklearn import Sklearn
from eval.integrations.torch import Torch

__all__ = ["Avalanche", "River", "Sklearn", "Torch"]
