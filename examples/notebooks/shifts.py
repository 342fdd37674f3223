# ---
# jupyter:
#   jupytext: {formats: "ipynb,py:percent"}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 3. Compose shifts and look at them
#
# [Open in Colab](https://colab.research.google.com/github/driftline/driftline/blob/main/examples/notebooks/shifts.ipynb)
#
# A stream can also be composed: take a dataset without time, and let a sequence of shifts change it from step to step.
# The dataset here is a DataFrame of painted fruits of 32 pixels that come with driftline; `dl.open_dataset("cifar10")`
# and folders of images work alike.

# %%
import subprocess
import sys
from importlib.util import find_spec

if find_spec("driftline") is None:  # in Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "driftline"], check=True)

# %%
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

import driftline as dl
from driftline.pipelines.demo.real import pictures
from driftline.stream_builder.export.layouts import write_contact_sheet

FRUITS = ("apples", "peaches", "pears", "plums")
rows = [{"picture": picture.resize((32, 32)), "label": fruit} for picture, fruit, _ in pictures(32) if fruit in FRUITS]
frame = pd.DataFrame(rows)
frame["label"].value_counts()

# %%
sides = (frame.groupby("label").cumcount() % 10 < 3).map({True: "test", False: "train"})
arrays = {}
for side, part in frame.groupby(sides):
    arrays[f"{side}_x"] = np.stack(part["picture"].map(np.asarray).tolist())
    arrays[f"{side}_y"] = part["label"].map(FRUITS.index).to_numpy()
np.savez("fruits.npz", classes=np.array(FRUITS), **arrays)
fruit = dl.open_dataset("fruits.npz")
fruit

# %% [markdown]
# ## The shifts
#
# A letter is a shift, `:` begins the next step, `,` joins shifts in one step, and `~` lets one grow within the step.

# %%
pd.DataFrame(dl.list_registered("shifts"))[["name", "summary"]]

# %% [markdown]
# ## Tint, then rotation, then both again
#
# Shifts accumulate: a step keeps what the steps before it had. `test_size` is the number of test samples of the last
# step.

# %%
stream = dl.compose(fruit, "T:R:T,R", sizes=[100, 60, 60, 60], test_size=60, oracle=False)
stream

# %%
Image.open(write_contact_sheet(stream, Path("shifts.png"), each=2))

# %% [markdown]
# ## How far does a shift move the data?
#
# `measure` compares each step with the last one.

# %%
dl.measure(stream)

# %% [markdown]
# ## What does it cost?
#
# `clear-streaming` tests each model on the step after its training. `nap` learns the first step only, `finetune` goes
# on from step to step, `cumulative` learns all of them together.

# %%
results = dl.evaluate(stream, "clear-streaming", ["majority", "nap", "finetune", "cumulative"], seeds=[0, 1])
results
