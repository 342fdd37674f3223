# ---
# jupyter:
#   jupytext: {formats: "ipynb,py:percent"}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 2. Your features and your learner
#
# [Open in Colab](https://colab.research.google.com/github/driftline/driftline/blob/main/examples/notebooks/your_learner.ipynb)
#
# driftline evaluates any vectors with a class and a time, and any object with three methods. The vectors here are
# colour histograms of the 1,273 painted fruits that come with driftline; yours can come from any network.

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
from driftline.ext import Learner
from driftline.pipelines.demo.real import pictures

rows = []
for picture, fruit, year in pictures(32):
    colours = np.asarray(picture) // 64  # four levels of each channel
    histogram = np.bincount((colours @ [16, 4, 1]).ravel(), minlength=64) / colours[..., 0].size
    rows.append({"fruit": fruit, "year": int(year), **{f"colour {i}": share for i, share in enumerate(histogram)}})
frame = pd.DataFrame(rows)
frame

# %% [markdown]
# ## A stream
#
# One row a sample: features, class and time. `period` is the number of steps, or year, month, week, day. Then a stream
# can be saved, measured and shown.

# %%
stream = dl.from_table(frame, x=list(frame.columns[2:]), label="fruit", time="year", period=4, test_share=0.3)
stream = stream.save("histograms")
stream

# %%
dl.measure(stream)

# %% [markdown]
# ## A learner
#
# `begin` gets the task (shape of x, number of classes), `learn` the training data of a step, `predict` returns classes.


# %%
class Newest(Learner):
    """The most frequent class among the five nearest of the last 200 samples."""

    def begin(self, task, rng):
        self.x, self.y = np.zeros((0, *task.x_shape), np.float32), np.zeros(0, np.int64)
        self.classes = task.n_classes

    def learn(self, x, y):
        self.x, self.y = np.concatenate([self.x, x])[-200:], np.concatenate([self.y, y])[-200:]

    def predict(self, x):
        near = np.square(x[:, None] - self.x[None]).sum(-1).argsort(1)[:, :5]
        return np.stack([np.bincount(self.y[row], minlength=self.classes).argmax() for row in near])


# %% [markdown]
# ## Evaluate
#
# Yours beside driftline's own. `in_domain` is the accuracy on the period of the last training, `next_domain` on the
# period after it.

# %%
results = dl.evaluate(stream, "clear-iid", [Newest(), "majority", "nearest-mean", "cumulative"], seeds=[0, 1, 2])
results

# %%
results.frame().groupby(["score", "learner"])["value"].mean().unstack().round(3)
