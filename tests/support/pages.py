"""Local pages in tests: a served app, a real browser, what axe finds."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driftline.pipelines.web.local_server import listen, server_of


@dataclass(frozen=True)
class Served:
    """A running local page."""

    address: str
    """with its secret; ends in /"""


@contextmanager
def served(make: Callable[[int], tuple[Any, str]]) -> Iterator[Served]:
    """The app that `make(port)` returns, on loopback."""
    sock = listen(0)
    port = sock.getsockname()[1]
    app, path = make(port)
    running = server_of(app)
    thread = threading.Thread(target=running.run, args=([sock],), daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield Served(f"http://127.0.0.1:{port}{path}")
    running.should_exit = True
    thread.join(10)


@contextmanager
def chromium_browser() -> Iterator[Any]:
    """A headless Chromium; the test is skipped without one."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    quiet += ["--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=quiet)
        yield browser
        browser.close()


def open_report(page: Any, path: Path) -> None:
    """A page of a report on disk, when its script, which comes after the first picture, has run."""
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("footer button", state="attached")


def violations(page: Any) -> dict[str, list[str]]:
    """What axe finds on the page: rule → elements. Elements that pass are not described: half of the time."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return {one["id"]: [node["html"][:120] for node in one["nodes"][:3]] for one in found}


def violations_everywhere(page: Any) -> dict[str, list[str]]:
    """The same in both colour schemes, on a wide screen and on a phone, whose screen must be wide enough."""
    found: dict[str, list[str]] = {}
    before = page.viewport_size
    for scheme, width, height in (("light", 1400, 900), ("dark", 390, 844)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": height})
        found |= {f"{rule}, {scheme}, {width}": nodes for rule, nodes in violations(page).items()}
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            found[f"wider than {width}"] = [str(wide)]
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(before)
    return found
