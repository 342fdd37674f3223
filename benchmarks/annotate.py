"""The annotate page over 100,000 images: the next grid, the next image, and how many images a minute a person can
answer.

    python benchmarks/annotate.py [--images N] [--folder F]

`grid_ms`, `label_ms`, `conflicts_ms`: what the server needs for the next page, medians after 200,000 stored answers.
`*_screen_ms`: what headless Chromium needs from the key Enter to the next page with all its pictures on the screen.
People are an assumption: SECONDS for an image one by one, SCAN for a look at an image of the grid and CLICK for each
of the WRONG ones. One JSON line; without Chromium, no `*_screen_ms` and no rates.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import uvicorn

from driftline.curate.core.atomic_io import write_json, write_parquet, write_text
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.validation.asking.batches import COLUMNS, FORMAT, marketplace_csv
from driftline.pipelines.annotation.server import GRID, answer_store_of, application
from driftline.pipelines.config import presets
from driftline.pipelines.config.loader import load
from driftline.pipelines.demo.draw import jpeg, photo
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of
from driftline.pipelines.web.local_server import listen

SECONDS, SCAN, CLICK, WRONG = 9.0, 0.5, 1.0, 0.1  # of a person; 9 s: `validation.seconds`
REPEATS = 15


def waiting(run: Path, images: int) -> Context:
    """A run that asks about `images` images, all links to fifty pictures, with two answers to each."""
    write_text(run / "driftline.yaml", presets.full_text(presets.values("mini"), "benchmark"))
    context = Context(run, load(run / "driftline.yaml"), RunLog(quiet=True))
    names = [concept.name for concept in context.config.retrieve.complete_concepts()]
    ask, ids = folder_of(run, "ask"), [f"{i:07d}" for i in range(images)]
    (ask / "images").mkdir(parents=True)
    concepts = [names[i % len(names)] for i in range(images)]
    table = pa.table({"id": ids, "concept": concepts, "fate": ["kept"] * images})
    write_parquet(folder_of(run, "retrieve") / "candidates.parquet", table)
    pictures = []
    for i in range(50):
        pictures.append(run / f"{i}.jpg")
        pictures[-1].write_bytes(jpeg(photo(["car"], 0.5, rng_for(i, "bench"))))
    items = {f"{i:016x}": id_ for i, id_ in enumerate(ids)}
    for i, item in enumerate(items):
        os.link(pictures[i % 50], ask / "images" / f"{item}.jpg")
    write_text(ask / "batch.csv", marketplace_csv(COLUMNS, [("b", item, "") for item in items]))
    facts = {"format": FORMAT, "batch": "b", "after": None, "items": items, "concepts": names}
    write_json(ask / "batch.json", facts | {"gold": {}, "blur": [], "workers": 3, "per_worker": None})
    store = answer_store_of(context)
    for who, off in (("bob", 0), ("eve", 1)):  # they differ on a tenth
        said = {item: [names[(i + off * (i % 10 == 0)) % len(names)]] for i, item in enumerate(items)}
        store.answer_together(who, said)
    store.close()
    return context


def measured(address: str, concept: str) -> dict[str, float]:
    """Milliseconds of the server for the next grid and the next image."""
    origin = "/".join(address.split("/")[:3])
    took: dict[str, list[float]] = {"grid_ms": [], "label_ms": [], "conflicts_ms": []}
    with httpx.Client(base_url=address, headers={"origin": origin}, timeout=60) as client:
        for _ in range(REPEATS):
            for name, path in (
                ("grid_ms", f"grid?annotator=ann&concept={concept}"),
                ("label_ms", "label?annotator=ann"),
                ("conflicts_ms", "conflicts?annotator=ann"),
            ):
                clock = time.perf_counter()
                page = client.get(path).raise_for_status().text
                took[name].append(1000 * (time.perf_counter() - clock))
                shown = [piece.split('"')[0] for piece in page.split('name="shown" value="')[1:]]
                if shown:
                    client.post("reject", data={"annotator": "ann", "concept": concept, "shown": shown})
    return {name: round(float(np.median(values)), 1) for name, values in took.items()}


def rendered(address: str, concept: str) -> dict[str, float]:
    """Milliseconds of Chromium from Enter to the next page with its pictures; nothing without Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        return {}
    from playwright.sync_api import sync_playwright

    took = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, path in (("grid", f"grid?annotator=zoe&concept={concept}"), ("label", "label?annotator=zoe")):
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(address + path)
            times = []
            for _ in range(REPEATS):
                page.keyboard.press("n")  # one by one: none of the above
                clock = time.perf_counter()
                with page.expect_navigation(wait_until="load"):
                    page.keyboard.press("Enter")
                times.append(1000 * (time.perf_counter() - clock))
            took[f"{name}_screen_ms"] = round(float(np.median(times)), 1)
            page.close()
        browser.close()
    grid = GRID * (SCAN + WRONG * CLICK) + took["grid_screen_ms"] / 1000
    took["grid_images_a_minute"] = round(60 * GRID / grid, 1)
    took["label_images_a_minute"] = round(60 / (SECONDS + took["label_screen_ms"] / 1000), 1)
    return took


def main() -> None:
    """Make the run, serve it, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        context = waiting(Path(place) / "run", given.images)
        sock = listen(0)
        app, path = application(context, sock.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        address, concept = f"http://127.0.0.1:{sock.getsockname()[1]}{path}", context.config.retrieve.concepts[0].name
        found: dict[str, Any] = {"images": given.images, **measured(address, concept), **rendered(address, concept)}
        print(json.dumps(found), flush=True)
        server.should_exit = True
        thread.join(60)


if __name__ == "__main__":
    main()
