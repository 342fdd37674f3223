"""The Grid, `annotate`'s default view, as a person uses it; then every later command."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.console import driftline
from support.helpers import album, photo_config
from support.living import context as context_of
from support.pages import chromium_browser, served

from driftline.curate.core.atomic_io import read_json
from driftline.pipelines.annotation.server import answer_store_of, application
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.state import folder_of


@pytest.mark.proof("browser")
def test_24_images_in_7_seconds_and_every_later_command(tmp_path: Path) -> None:
    root = tmp_path / "run"
    album(root / "photos", 9)
    text = photo_config("  per_class: 8").replace("{method: catalogue}", "{method: crowd, workers: 1, agree: 1}")
    (root / "driftline.yaml").write_text(text)
    run(context_of(root))
    items = read_json(folder_of(root, "ask") / "batch.json")["items"]
    with served(lambda port: application(context_of(root), port)) as served_page, chromium_browser() as browser:
        page = browser.new_page()
        sizes = []
        for concept in ("car", "bus", "background"):
            page.goto(served_page.address)
            page.get_by_label("Your name").fill("ann")
            if concept not in page.locator("select[name=concept]").inner_text():
                continue
            page.get_by_label("Concept").select_option(concept)
            page.keyboard.press("Enter")
            page.locator("label.shot").first.wait_for()
            sizes.append(page.locator("label.shot").count())
            page.evaluate("document.querySelector('[name=begun]').value -= 7")  # seconds ago
            page.get_by_role("button", name="Next").click()
            page.get_by_text("is left").wait_for()
    assert max(sizes) >= 20
    (path,) = (root / "annotate").glob("*.sqlite")
    with closing(sqlite3.connect(path)) as base:
        kinds = base.execute("SELECT DISTINCT typeof(seconds) FROM answers").fetchall()
        (seconds,) = base.execute("SELECT SUM(seconds) FROM answers").fetchone()
    assert (kinds, seconds >= 7 * len(sizes)) == ([("integer",)], True)
    batch = ("batch", "--format", "turkle", "--out", root / "b")
    for command, *options in (("run",), ("status", "--json"), batch):
        done = driftline(command, str(root), *map(str, options))
        assert done.returncode == 0, done.stderr
    with closing(answer_store_of(context_of(root))) as store:
        assert len(store.answered("ann")) == len(items)
