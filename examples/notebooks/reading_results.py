# ---
# jupyter:
#   jupytext: {formats: "ipynb,py:percent"}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 5. Reading results: ageing and significance
#
# [Open in Colab](https://colab.research.google.com/github/driftline/driftline/blob/main/examples/notebooks/reading_results.ipynb)
#
# Which learner is better, and could that be chance? How fast does a model age? The data here are 1,273 painted fruits
# from 1904 to 1942 that come with driftline, as 8 × 8 pixels; a report shows the same numbers with pictures.

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
from driftline.pipelines.demo.real import pictures

rows = []
for picture, fruit, year in pictures(32):
    pixels = np.asarray(picture.resize((8, 8)), np.float32).ravel() / 255
    rows.append({"fruit": fruit, "year": int(year), "pixels": pixels})
frame = pd.DataFrame(rows)
stream = dl.from_table(frame, x="pixels", label="fruit", time="year", period=4, test_share=0.3).save("fruit-stream")
stream

# %% [markdown]
# ## Scores
#
# Each learner runs with several seeds. The number after ± is the 95 % confidence interval of the mean over seeds.

# %%
learners = ["majority", "nearest-mean", "nap", "finetune"]
results = dl.evaluate(stream, "clear-iid", learners, seeds=[0, 1, 2], out="fruit-runs")
results

# %% [markdown]
# ## The matrix
#
# A row is a training period, a column a test period. On the diagonal both are the same; to the right of it the test is
# newer than the training. A model that ages loses to the right.

# %%
results.matrix().loc["nearest-mean"].round(2)

# %% [markdown]
# ## Ageing
#
# Accuracy by the years between training and test, with its 95 % band over seeds and test samples, and the time after
# which half of what a model knows above chance is gone.

# %%
results.plot()

# %%
results.ageing().round(2)

# %%
document = results.whole()
facts = zip(document["results"], document["ageing"]["results"], strict=True)
half_lives = {result["learner"]: vars(of.half_life) for result, of in facts if of}
pd.DataFrame(half_lives)

# %% [markdown]
# ## Significance
#
# Two learners see the same test samples, so they are compared pair by pair. `p` is corrected for the number of pairs
# (Holm): below 0.05 a difference is not chance.

# %%
names = [result["learner"] for result in document["results"]]
pairs = [pair for group in document["compared"] for pair in group["pairs"]]
rows = [(*(names[i] for i in pair["of"]), *pair["difference"], pair["p"]) for pair in pairs]
pd.DataFrame(rows, columns=["learner", "compared with", "difference", "from", "to", "p"]).round(3)

# %% [markdown]
# The report holds all of this with the samples that are lost over time. Open `fruit-report/index.html`.

# %%
dl.report(results, "fruit-report")
