"""A run folder from Python: begin, run, look, open its release; and what it and the release show in a notebook."""

import base64
import io
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from support.helpers import album
from support.small_runs import unpacked

import driftline as dl
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile, UnknownName
from driftline.curate.foreign.notebook import Thumbnail, table
from driftline.pipelines.config.loader import load

VOID = {"img", "br"}


class Page(HTMLParser):
    """Tags, text and images of a piece of HTML; every tag must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text: list[str] = []
        self.images: list[tuple[str, tuple[int, int]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        given = {name: value or "" for name, value in attrs}
        if tag == "img":
            source = given["src"].removeprefix("data:image/png;base64,")
            with Image.open(io.BytesIO(base64.b64decode(source, validate=True))) as image:
                assert image.format == "PNG"
                self.images.append((given["alt"], image.size))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return unpacked("finished", tmp_path)


class TestRun:
    def test_a_run_is_begun_run_and_followed(self, tmp_path: Path) -> None:
        album(tmp_path / "album")
        collection = {"path": str(tmp_path / "album")}
        run = dl.init(tmp_path / "run", settings={"collection": collection, "release.per_class": 4})
        assert load(run.path / "driftline.yaml").release.per_class == 4
        entries = dl.run(run, until="filter", workers=1)["stages"]
        assert [entry["state"] for entry in entries[:3]] == ["done", "done", "pending"]
        assert dl.status(run.path)["stages"] == entries
        with pytest.raises(UnknownName, match="No stage of"):
            dl.trace(run, "nothing")
        with pytest.raises(MissingFile, match="publish stage"):
            run.release()

    def test_a_finished_run_gives_its_release_and_histories(self, finished: Path) -> None:
        run = dl.Run.open(finished)
        release = run.release()
        assert isinstance(release, dl.Release)
        assert dl.trace(run, release.table["id"][0].as_py())["ended"] == "It is in the release."

    def test_settings_may_be_other_than_the_files(self, finished: Path) -> None:
        run = dl.Run.open(finished)
        entries = dl.status(run, settings={"release.per_class": 3})["stages"]
        states = {entry["stage"]: entry["state"] for entry in entries}
        assert (states["tally"], states["publish"]) == ("done", "stale")

    def test_two_releases_of_one_run_are_refused_by_name(self, finished: Path) -> None:
        shutil.copytree(finished / "stages" / "09_publish", finished / "stages" / "08_publish")
        with pytest.raises(BadInput, match=r"08_publish/release and stages/09_publish/release\. Expected one"):
            dl.Release.open(finished)

    def test_a_folder_that_is_no_run_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match="driftline init"):
            dl.Run.open(tmp_path)

    def test_an_existing_file_is_replaced_only_if_asked(self, tmp_path: Path) -> None:
        dl.init(tmp_path)
        with pytest.raises(BadConfig, match="already exists"):
            dl.init(tmp_path)
        assert dl.init(tmp_path, preset="mini", force=True).path == tmp_path


class TestNotebook:
    def test_what_is_no_image_is_named(self) -> None:
        html = table("t", ["", "a"], [["row", Thumbnail(b"nonsense", "<photo>", "7")]])
        assert Page(html).text == ["t", "a", "row", "<photo>", "7"]


def test_a_search_before_photos_are_embedded_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(dl.DriftlineError, match=r"The stage ingest of .* is not done"):
        dl.init(tmp_path).search("a phone")
