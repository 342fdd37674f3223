# ---
# jupyter:
#   jupytext: {formats: "ipynb,py:percent"}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 6. Your log: how fast does a model that already runs go out of date?
#
# [Open in Colab](https://colab.research.google.com/github/driftline/driftline/blob/main/examples/notebooks/your_log.ipynb)
#
# A log has one row a prediction: when, of what, by which version, and the label where it is known. A model that has
# nothing to do with driftline sorts simulated measurements into three kinds, for two years in which the kinds change.

# %%
import subprocess
import sys
from importlib.util import find_spec

if find_spec("driftline") is None:  # in Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "driftline"], check=True)

# %%
import numpy as np
import pandas as pd

import driftline as dl

rng = np.random.default_rng(5)
time = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(rng.integers(0, 731, 8000)), "D")
month = (time.year - 2024) * 12 + time.month - 1
kind = rng.integers(0, 3, 8000)
centres, way = rng.normal(0, 1.6, (3, 6)), rng.normal(0, 0.09, (3, 6))
x = centres[kind] + month.to_numpy()[:, None] * way[kind] + rng.normal(0, 1, (8000, 6))

# %% [markdown]
# ## A model, trained twice
#
# The nearest mean of the three months before. The first version goes on beside the second for three months. Without
# that, an older model and harder data would look the same. The labels of one prediction in three become known.


# %%
def answers(trained: int, last: int, version: str) -> pd.DataFrame:
    seen = (month >= trained - 3) & (month < trained)
    means = np.stack([x[seen & (kind == k)].mean(0) for k in range(3)])
    asked = np.flatnonzero((month >= trained) & (month <= last))
    nearest = ((x[asked, None] - means) ** 2).sum(2).argmin(1)
    label = pd.Series(kind[asked], dtype="Int64").where(rng.random(len(asked)) < 1 / 3)
    return pd.DataFrame(
        {"time": time[asked], "id": asked, "version": version, "prediction": nearest, "label": label}
    )  # fmt: skip


log = pd.concat([answers(3, 15, "v1"), answers(13, 23, "v2")])
log.tail(3)

# %% [markdown]
# ## How it ages

# %%
aged = dl.age(log, versions={"v1": "2024-03-31", "v2": "2025-01-31"}, cost_error=1, cost_retrain=50)
aged.page("log-page")
result = aged.json()
result["slope_per_period"], result["split"], result["notes"]

# %%
pd.DataFrame(result["cells"])[["version", "from", "n", "accuracy", "low", "high"]]

# %% [markdown]
# `log-page/index.html` has the curves. In three months, and what a fresh version would bring:

# %%
pd.DataFrame(result["forecast"])[["version", "from", "value", "low", "high", "extrapolated"]]

# %%
result["advice"]["because"]
