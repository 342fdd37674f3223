# ---
# jupyter:
#   jupytext: {formats: "ipynb,py:percent"}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 1. From a table of photos to a report
#
# [Open in Colab](https://colab.research.google.com/github/driftline/driftline/blob/main/examples/notebooks/photos_to_report.ipynb)
#
# Dated photos become a benchmark, and classifiers are evaluated on it: how well do they know photos that are newer than
# their training? The DataFrame here lists 192 pictures that come with driftline: fruit, painted from 1904 to 1942 (USDA
# Pomological Watercolor Collection, public domain). For your own photos change `frame` and `concepts`; for a folder
# whose photos have dates, give `collection.path` alone.

# %%
import subprocess
import sys
from importlib.util import find_spec

if find_spec("driftline") is None:  # in Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "driftline"], check=True)

# %%
from pathlib import Path

import pandas as pd

import driftline as dl
from driftline.pipelines.demo.real import unpack

FRUITS = ("apples", "peaches", "pears")
CUTS = ("1908-01-01", "1911-01-01", "1913-01-01")  # four periods

unpack(Path("watercolours"))
table = pd.read_csv("watercolours/collection/table.csv")
frame = pd.DataFrame(
    {
        "path": "watercolours/collection/images/" + table["filename"],
        "taken": pd.to_datetime(table["year"], format="%Y"),
        "label": table["label"],
        "nickname": table["artist"],
        "page_url": table["source_url"],
        "licence": "Public domain",
    }
)
period = pd.Series(pd.to_datetime(CUTS).searchsorted(frame["taken"], "right"))
frame = frame[frame["label"].isin(FRUITS)].groupby(["label", period]).head(16)
frame

# %% [markdown]
# ## Build
#
# A run has nine stages, from reading the table to the release. The column `label` decides here
# (`validation.method: catalogue`); with `crowd`, people answer on a local page. `embed.model` is any open_clip name.

# %%
Path("mine").mkdir(exist_ok=True)
frame.to_parquet("mine/photos.parquet")
columns = {name: name for name in frame.columns} | {"uploaded": "taken"}
run = dl.init(
    "mine",
    force=True,
    settings={
        "collection": {"source": "parquet", "path": "photos.parquet", "root": "..", "columns": columns},
        "buckets": {"kind": "cuts", "cuts": list(CUTS), "unlabelled": []},
        "embed": {"model": "driftline-photo-world", "weights": None},
        "retrieve": {
            "concepts": [{"name": fruit, "prompts": [f"a watercolor of {fruit}"]} for fruit in FRUITS],
            "per_class": 200,
            "depth": 200,
            "overlap": "allow",
            "short": "fewer",
            "background_share": 0,
        },
        "validation": {"method": "catalogue"},
        "release": {"name": "my-photos", "per_class": 12, "short": "fewer"},
    },
)
pd.DataFrame(dl.run(run)["stages"])

# %%
release = run.release()
release

# %% [markdown]
# ## Evaluate
#
# The learners see the small pictures themselves (`pixels:16`). `nap` learns the first period only, `cumulative` all
# periods so far.

# %%
stream = dl.from_release(release, "pixels:16").save("mine-stream")
stream

# %%
results = dl.evaluate(stream, "clear-iid", ["majority", "nap", "cumulative"], seeds=[0, 1], out="mine-runs")
results

# %% [markdown]
# The report is a folder of web pages. Open `mine-report/index.html`; the matrices show each training period against
# each test period.

# %%
dl.report(results, "mine-report", stream=[stream])
