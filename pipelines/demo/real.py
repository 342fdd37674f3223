"""`driftline demo --real`: a small benchmark of real dated pictures that are part of the package, in about a minute."""

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from PIL import Image

from driftline.curate.core.atomic_io import write_bytes, write_text
from driftline.curate.core.executor import Executor, default_workers
from driftline.curate.core.run_log import RunLog
from driftline.curate.foreign.images import as_rgb, open_image
from driftline.eval.plotting.charts import Section
from driftline.pipelines.config import presets
from driftline.pipelines.config.loader import load
from driftline.pipelines.demo.journey import PROTOCOLS, Parts, evaluated, reported, shown
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.embed import BEFORE_1904

FRUITS = ("apples", "peaches", "pears", "plums", "grapes", "strawberries", "oranges", "cherries")
CUTS = (1904, 1908, 1911, 1913, 1918)  # a network saw what is older than the first; five periods follow
LEARNERS = ["majority", "nearest-mean", "nap", "scratch", "finetune", "cumulative", "er"]
SEEDS = 5
FEATURES = "paintings-before-1904"
NOTICE = (
    "Images: U.S. Department of Agriculture Pomological Watercolor Collection, Special Collections, National "
    "Agricultural Library; works of the US government, public domain."
)
TITLE = "driftline demo --real: painted fruit, 1904–1942"


def demo(out: Path, run_log: RunLog, workers: int | None = None) -> dict[str, Any]:
    """Build, evaluate and report in `out`; returns {"report", "seconds", "parts"}. Finished steps are not repeated.

    workers: processes; None: one per core. parts: name of a part → seconds.
    """
    run_log.say(NOTICE)
    parts = Parts()
    unpack(out)
    if not (out / "driftline.yaml").is_file():
        write_text(out / "driftline.yaml", presets.full_text(configuration(), "The demo with real images"))
    context = Context(out, load(out / "driftline.yaml"), run_log, Executor(workers=workers or default_workers()))
    parts.done("unpack")
    run(context)
    parts.done("build")
    release, stream = evaluated(
        context, FEATURES, LEARNERS, SEEDS, {name: {"learners": LEARNERS} for name in PROTOCOLS}
    )
    parts.done("evaluate")
    about = [Section("about", "About this demonstration", shown("real", NOTICE))]
    return reported(context, release, stream, parts, about, TITLE)


def unpack(out: Path) -> None:
    """Pictures and their table into out/collection, unless they are there."""
    with zipfile.ZipFile(io.BytesIO(packed())) as pictures:
        for name in pictures.namelist():
            if not (out / "collection" / name).is_file():
                write_bytes(out / "collection" / name, pictures.read(name))


def pictures(edge: int) -> Iterator[tuple[Image.Image, str, int]]:
    """(RGB picture, fruit, year) of each row of the table. edge: pixels below which a picture is not reduced."""
    with zipfile.ZipFile(io.BytesIO(packed())) as archive:
        for row in csv.DictReader(io.StringIO(archive.read("table.csv").decode())):
            with open_image(archive.read(f"images/{row['filename']}"), row["filename"]) as picture:
                picture.draft("RGB", (edge, edge))
                yield as_rgb(picture), row["label"], int(row["year"])


def packed() -> bytes:
    """The zip file of the package."""
    return files("driftline.pipelines").joinpath("demo/watercolours/pictures.zip").read_bytes()


def configuration() -> dict[str, Any]:
    """Settings: the library's labels decide, so every picture is a candidate of every class."""
    values = presets.values("mini")
    columns = {"path": "filename", "uploaded": "year", "nickname": "artist", "page_url": "source_url"}
    columns |= {"label": "label", "caption": "caption"}
    values["collection"] = {
        "source": "delimited", "path": "collection/table.csv", "root": "collection/images", "columns": columns,
    }  # fmt: skip
    values["filter"] = {"upload_after_capture": False}  # a painting has no second date
    values["buckets"] = {"kind": "cuts", "cuts": [f"{year}-01-01" for year in CUTS[1:]], "unlabelled": []}
    concepts = [{"name": fruit, "prompts": [f"a watercolor of {fruit}"]} for fruit in FRUITS]
    values["retrieve"] = {
        "per_class": 1000, "depth": 1000, "overlap": "allow", "short": "fewer", "background_share": 0,
        "concepts": concepts,
    }  # fmt: skip
    values["validation"] = {"method": "catalogue"}
    features = {"name": FEATURES, "model": "test_resnet", "weights": BEFORE_1904}
    values["release"] = {
        "name": "painted-fruit", "per_class": 40, "short": "fewer", "notice": NOTICE, "features": [features],
        "own": True, "ids": "path",
    }  # fmt: skip
    return values
