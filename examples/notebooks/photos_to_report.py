# ---
# jupyter:
#   jupytext: {formats: "ipynb,py:percent"}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # 1. From a folder of photos to a report
#
# [Open in Colab](https://colab.research.google.com/github/driftline/driftline/blob/main/examples/notebooks/photos_to_report.ipynb)
#
# A folder with dated photos becomes a benchmark, and classifiers are evaluated on it: how well do they know photos that
# are newer than their training? The folder here holds 192 pictures that come with driftline: fruit, painted from 1904
# to 1942 (USDA Pomological Watercolor Collection, public domain). For your own photos change `album` and `concepts`.

# %%
import subprocess
import sys
from importlib.util import find_spec

if find_spec("driftline") is None:  # in Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "driftline"], check=True)

# %%
import csv
import shutil
from pathlib import Path

import driftline as dl
from driftline.pipelines.demo.real import unpack

FRUITS = ("apples", "peaches", "pears")
CUTS = ("1908-01-01", "1911-01-01", "1913-01-01")  # four periods

unpack(Path("watercolours"))
album = Path("album")
number: dict[tuple[str, int], int] = {}
for row in csv.DictReader(Path("watercolours/collection/table.csv").read_text(encoding="utf-8").splitlines()):
    cell = row["label"], sum(row["year"] >= cut[:4] for cut in CUTS)
    number[cell] = number.get(cell, 0) + 1
    if row["label"] in FRUITS and number[cell] <= 16:
        target = album / row["year"] / row["label"] / row["filename"]  # EXIF dates are read, too
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path("watercolours/collection/images") / row["filename"], target)

# %% [markdown]
# ## Build
#
# A run has nine stages, from reading the metadata to the release. The folder names are the labels here
# (`validation.method: catalogue`); with `crowd`, people answer on a local page. `embed.model` is any open_clip name.

# %%
run = dl.init(
    "mine",
    force=True,
    settings={
        "collection": {"path": "../album", "dates": ["path"], "label": "parent"},
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
run.run()
run

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
