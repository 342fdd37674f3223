# ---
# jupyter:
#   jupytext: {formats: "ipynb,py:percent"}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 4. Prompts and retrieval
#
# [Open in Colab](https://colab.research.google.com/github/driftline/driftline/blob/main/examples/notebooks/prompts.ipynb)
#
# Candidates of a class are the photos that are nearest to its prompts. Good prompts find the class in every period,
# also when its look changes. Here a small CLIP model that comes with driftline searches 120 rendered photos from 2004
# to 2014; with your own photos set `embed.model` to a model of open_clip.

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
from driftline.curate.core.seeding import rng_for
from driftline.pipelines.demo.draw import CONCEPTS, photo

YEARS = (2004, 2009, 2014)
THINGS = list(CONCEPTS)
rows = []
for year in YEARS:
    for i in range(40):
        target = Path("photos") / str(year) / f"{i:02d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        photo([THINGS[i % len(THINGS)]], (year - 2004) / 10, rng_for(year, i)).save(target)
        rows.append({"path": str(target), "taken": f"{year}-{1 + i % 12:02d}-15"})
frame = pd.DataFrame(rows)
frame

# %% [markdown]
# ## Embed
#
# A run begins with a table of photos: where each is, and when it was taken. It stops after the stage `embed`: each
# photo has a vector, and no question has been asked yet.

# %%
Path("look").mkdir(exist_ok=True)
frame.to_parquet("look/photos.parquet")
columns = {"path": "path", "taken": "taken", "uploaded": "taken"}
run = dl.init(
    "look",
    force=True,
    settings={
        "collection": {"source": "parquet", "path": "photos.parquet", "root": "..", "columns": columns},
        "buckets": {"kind": "calendar", "unlabelled": []},
        "embed": {"model": "driftline-photo-world", "weights": None},
        "retrieve": {"per_class": 8, "background_share": 0, "concepts": [{"name": "phone", "prompts": ["a phone"]}]},
    },
)
dl.run(run, until="embed")
run

# %% [markdown]
# ## Search
#
# Change the text and run the cell again. The best photo of each period is on the left, with its cosine to the prompt.

# %%
run.search("a phone", count=6)

# %% [markdown]
# Several prompts form one query. A prompt that begins with "-" moves the query away from what it says.

# %%
run.search("a bus", "a car", "- a bicycle", count=6)

# %% [markdown]
# ## Keep it
#
# Write the prompts into `retrieve.concepts` of `look/driftline.yaml`. `driftline browse look` shows the same search on
# a page: there you mark what is wrong, and save the better prompts.
