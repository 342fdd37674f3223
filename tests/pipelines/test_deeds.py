"""A plan says what a run does, and a dry run what `grow` does, of six small albums drawn by rules."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import few_of
from support.living import context

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.seeding import rng_for
from driftline.curate.validation.asking.batches import estimate
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.forecast import forecast
from driftline.pipelines.run.living import borders_if_grown, grow
from driftline.pipelines.run.runner import plan, run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.state import done_of, folder_of

CONFIG = """
collection: {{source: folder, path: photos, dates: [path], label: parent}}
filter: {{upload_after_capture: false}}
buckets: {{unlabelled: [], {buckets}}}
embed: {{model: driftline-photo-world}}
retrieve: {{per_class: 3, short: fewer, concepts: {concepts}, background_share: {background}, overlap: {overlap}}}
validation: {{method: {method}, workers: 1, agree: 1}}
release: {{per_class: 4, splits: 1, short: fewer, own: true}}
"""
BUCKETS = (
    "kind: calendar",
    "kind: calendar, min_photos: 3",
    "kind: calendar, unit: decade",
    "kind: equal, count: 3",
    "kind: cuts, cuts: [2010-01-01, 2014-01-01]",
    "kind: spans, spans: [[2009-01-01, 2011-01-01], [2013-01-01, 2016-01-01]]",
)
THINGS = ("car", "bus", "lamp")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve photos of each thing."""
    folder = tmp_path_factory.mktemp("pool")
    paths = [folder / f"{i}-{thing}.jpg" for i in range(12) for thing in THINGS]
    for i, path in enumerate(paths):
        photo([THINGS[i % 3]], 0.3, rng_for(0, "deeds", i)).save(path)
    return paths


def lay(root: Path, pool: list[Path], years: tuple[int, int], n: int, rng: np.random.Generator) -> None:
    """Some photos of the pool, a folder for each thing, dated but for a few."""
    for source in rng.permutation(len(pool))[:n].tolist():
        thing = pool[source].stem.partition("-")[2]
        year = int(rng.integers(*years))
        name = f"{year}-05-{1 + source % 28:02d}-{source}.jpg" if rng.random() < 0.9 else f"x{source}.jpg"
        place = root / "photos" / thing / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pool[source], place)


def open_now(here: Context) -> int:
    """Images that the page asks about."""
    store = answer_store_of(here)
    n = len(store.following("ann", 10_000))
    store.close()
    return n


def check(here: Context, told: dict[str, Any], error: DriftlineError | None) -> None:
    """What was told before, and what is there now."""
    if error is not None:
        return
    assert told["problems"] == []
    counts = {name: (done_of(here.root, name) or {})["counts"] for name in ("filter", "fetch", "bucket", "ask")}
    assert told["photos"]["expected"] == counts["fetch"]["kept"]
    assert told["photos"]["sample_dropped"] == counts["filter"]["dropped"]
    buckets = read_json(folder_of(here.root, "bucket") / "buckets.json")
    assert told["buckets"] == [{"name": bucket["name"], "photos": bucket["count"]} for bucket in buckets]
    dropped = counts["bucket"]["dropped"]
    assert (told["thin"], told["undecided"]) == (dropped.get("thin_period", 0), dropped.get("date_undecided", 0))
    assert counts["ask"]["kept"] <= told["candidates"]["images"]


@pytest.mark.parametrize("number", few_of(range(6), [1, 5], "journey"))
def test_a_plan_says_what_is_done(number: int, pool: list[Path], tmp_path: Path) -> None:
    rng = rng_for(0, "albums", number)
    settings = {
        "buckets": BUCKETS[number % len(BUCKETS)],
        "concepts": f"[{', '.join(THINGS[: 1 + number % 3])}]",
        "background": (0, 0.4)[number % 2],
        "overlap": ("highest", "allow")[number // 2 % 2],
        "method": "crowd" if number % 4 else "catalogue",
    }
    (tmp_path / "driftline.yaml").write_text(CONFIG.format(**settings))
    lay(tmp_path, pool, (2008, 2008 + (1, 9)[number % 5 > 0]), (1, 2, 7, 5, 15, 11)[number], rng)
    here = context(tmp_path)
    until = "ask" if settings["method"] == "crowd" else "tally"
    for grows in (False, True):
        planned, error = forecast(here, plan(here), borders_if_grown(here) if grows else None), None
        try:
            grow(here, until) if grows else run(here, until=until)
        except DriftlineError as refused:
            error = refused
        check(here, planned, error)
        if error is None and until == "ask":
            exact = forecast(here, plan(here))["questions"]
            assert (exact["images"], exact["answers"]) == (open_now(here), open_now(here))
            assert exact["usd"] == estimate(open_now(here), here.config.validation), "what the platform would bill"
            if not grows:  # later, some of the batch is answered already
                assert exact["usd"] == open_batch(here).facts["estimate_usd"]
            assert all(exact[key] <= planned["questions"][key] for key in ("images", "usd", "hours"))
            store = answer_store_of(here)
            for item in store.following("ann", open_now(here) // 2):
                store.answer("ann", item, ["none"], False, 1)
            store.close()
            left = forecast(here, plan(here))
            assert left["questions"] is not None, left["problems"]
            assert left["questions"]["images"] == open_now(here), "without those that are stored"
        elif error is not None:
            return
        if not grows:
            lay(tmp_path, pool, (2016, 2019), 4, rng)
