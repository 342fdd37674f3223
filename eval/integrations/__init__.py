"""Models of other libraries as learners: scikit-learn, torch modules, Avalanche strategies."""

from driftline.eval.integrations.avalanche import Avalanche
from driftline.eval.integrations.sklearn import Sklearn
from driftline.eval.integrations.torch import Torch

__all__ = ["Avalanche", "Sklearn", "Torch"]
