"""The pictures of the manual, made from today's pages: `python studies/pictures.py --work DIR` (Chromium, ten minutes).

DIR gets `driftline demo`, `driftline demo --real` and what is made of both; a second call repeats no finished part.
After a change of code take another DIR, because a report also shows results of earlier code. The pictures replace those
in docs/pictures, in at most 128 colours, which keeps photos below 250 kB.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

import driftline as dl
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.annotation.server import application as annotation
from driftline.pipelines.browse.server import application as browsing
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.run_folder import open_collection
from driftline.pipelines.stages.base import Context
from driftline.stream_builder.export.layouts import write_contact_sheet

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
sys.path.append(str(ROOT / "tests"))  # the browser, and pages on loopback

from support.pages import chromium_browser, open_report, served  # noqa: E402


def report(page: Any, path: Path, heading: str = "") -> None:
    """A page of a report, from a heading on."""
    open_report(page, path)
    if heading:
        page.evaluate("document.querySelectorAll('details.part').forEach(d => d.open = true)")
        page.get_by_role("heading", name=heading).first.evaluate("e => e.scrollIntoView()")


@contextmanager
def local(page: Any, make: Callable[[int], tuple[Any, str]]) -> Iterator[None]:
    """A local page, served and opened."""
    with served(make) as running:
        page.goto(running.address)
        yield


def grid(page: Any, root: Path, open_run: Path) -> None:
    """The grid of one concept of a run that waits for answers: the demo without what came later."""
    later = shutil.ignore_patterns("08_tally", "09_publish", "answers", "annotate", "runs", "report", "stream")
    shutil.copytree(root, open_run, ignore=later, dirs_exist_ok=True)
    context = Context(open_run, load(open_run / "driftline.yaml"), RunLog(quiet=True))
    with local(page, lambda port: annotation(context, port)):
        page.get_by_label("Your name").fill("ann")
        page.get_by_label("Concept").select_option("phone")
        page.keyboard.press("Enter")
        shot(page, "annotate")


def browse(page: Any, root: Path) -> None:
    """All photos of a run, over time."""
    with local(page, lambda port: browsing(open_collection(root), port)):
        page.locator(".tile").first.wait_for()
        shot(page, "browse")


def prompts(page: Any, root: Path) -> None:
    """What a prompt finds in each bucket."""
    with local(page, lambda port: browsing(open_collection(root), port)):
        page.get_by_role("button", name="Prompts").click()
        page.locator("input[name=concept]").fill("bus")
        page.locator("textarea").fill("a big red bus\n- a car")
        page.get_by_role("button", name="Show").click()
        page.locator(".shot img").first.wait_for()
        shot(page, "prompts")


def shot(page: Any, name: str) -> None:
    """Write one picture of what the window shows, when all its images are there."""
    page.wait_for_load_state("networkidle")
    page.screenshot(path=PICTURES / f"{name}.png")


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    work = parser.parse_args().work
    demo, real = work / "demo", work / "real"
    dl.demo(demo)
    dl.demo(real, real=True)
    dl.audit(real, out=work / "audit")
    shifted = dl.compose(demo, "R:C,jpeg(3):L", sizes=[55, 44, 44, 44], test_size=22)
    write_contact_sheet(shifted, PICTURES / "streams.png", "train")
    with chromium_browser() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(300_000)  # models are loaded
        report(page, demo / "report" / "index.html")
        shot(page, "demo")
        report(page, next((demo / "report").glob("stream-*.html")))
        shot(page, "stream-page")
        report(page, demo / "report" / "index.html", "Ranking")
        shot(page, "report")
        page.goto((work / "audit" / "audit.html").as_uri())
        page.get_by_role("heading", name="Near-duplicates").first.evaluate("e => e.scrollIntoView()")
        shot(page, "audit")
        browse(page, real)
        prompts(page, demo)
        grid(page, demo, work / "open")
    for path in PICTURES.glob("*.png"):
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()
