"""A run folder from Python: begin, run, look, open its release; and what it and the release show in a notebook."""

import base64
import io
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.helpers import album
from support.small_runs import unpacked

import driftline as dl
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile, UnknownName
from driftline.curate.foreign.notebook import Thumbnail, table
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.state import folder_of

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


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Four photos, as a notebook in their folder's parent has them: concatenated, so that the index repeats."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    rows = []
    for i in range(4):
        Image.new("RGB", (48, 48), (60 * i, 9, 9)).save(f"photos/{i}.jpg")
        taken = pd.Timestamp("2012-05-12") + pd.Timedelta(i, "D")
        rows.append({"path": Path(f"photos/{i}.jpg"), "taken": taken, "label": "ab"[i % 2], "painter": f"p{i}"})
    return pd.concat([pd.DataFrame(rows[:2]), pd.DataFrame(rows[2:])]).assign(other=object())


class TestRun:
    def test_a_run_is_begun_run_and_followed(self, tmp_path: Path) -> None:
        album(tmp_path / "album")
        collection = {"path": str(tmp_path / "album")}
        run = dl.init(tmp_path / "run", settings={"collection": collection, "release.per_class": 4})
        assert load(run.path / "driftline.yaml").release.per_class == 4
        entries = run.run(until="filter", workers=1)
        assert [entry["state"] for entry in entries[:3]] == ["done", "done", "pending"]
        assert dl.Run.open(run.path).status() == entries
        with pytest.raises(UnknownName, match="No stage of"):
            run.trace("nothing")
        with pytest.raises(MissingFile, match="publish stage"):
            run.release()

    def test_a_finished_run_gives_its_release_and_histories(self, finished: Path) -> None:
        run = dl.Run.open(finished)
        release = run.release()
        assert isinstance(release, dl.Release)
        assert run.trace(release.table["id"][0].as_py())["ended"] == "It is in the release."

    def test_settings_may_be_other_than_the_files(self, finished: Path) -> None:
        run = dl.Run.open(finished)
        states = {entry["stage"]: entry["state"] for entry in run.status({"release.per_class": 3})}
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

    def test_a_data_frame_is_the_collection(self, frame: pd.DataFrame, tmp_path: Path) -> None:
        run = dl.init("run", frame, settings={"collection.columns.nickname": "painter"})
        run.run(until="fetch", workers=1)
        (read,) = (pq.read_table(part).to_pylist() for part in (folder_of(run.path, "filter") / "table").glob("*"))
        rows = [(Path(row["path"]).name, row["uploaded"], row["label"], row["nickname"]) for row in read]
        may = 1336780800  # 12 May 2012
        assert rows == [(f"{i}.jpg", may + 86400 * i, "ab"[i % 2], f"p{i}") for i in range(4)]
        assert run.status()[2]["counts"]["kept"] == 4
        assert set(pq.read_schema(tmp_path / "run" / "photos.parquet").names) == {"path", "taken", "label", "painter"}
        with pytest.raises(BadConfig, match="already exists"):
            dl.init("run", frame[:2])
        assert pq.read_metadata("run/photos.parquet").num_rows == 4

    def test_paths_of_a_data_frame_may_leave_the_working_directory(self, frame, tmp_path, monkeypatch):
        (tmp_path / "notebooks").mkdir()
        monkeypatch.chdir(tmp_path / "notebooks")
        run = dl.init("run", frame.assign(path=[f"../photos/{i}.jpg" for i in range(4)]))
        assert load(run.path / "driftline.yaml").collection.root == str(tmp_path / "photos")  # type: ignore[attr-defined]
        assert run.run(until="fetch", workers=1)[2]["counts"]["kept"] == 4

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda f: f[:0], "the table of photos has no rows"),
            (lambda f: f.drop(columns="taken"), "Expected at least uploaded and one of url, path"),
            (lambda f: f.assign(taken=f["taken"].where(f["label"] == "a")), r"row 1 has no date.*dropna\(subset="),
            (lambda f: f.assign(taken="soon"), "'soon' in row 1"),
            (lambda f: f.assign(taken=[2012, "2013", None, 1.5]), r"column taken"),
            (lambda f: f.assign(path="photos/9.jpg"), r"row 0: there is no file .*photos/9\.jpg"),
            (lambda f: f.assign(path=None), "row 0: bad_id.*Expected a path or an address"),
            (lambda f: pd.concat([f, f[["path"]]], axis=1), "more than one column 'path'"),
            (lambda _: "photos.csv", "photos is str. Expected a data frame"),
        ],
    )
    def test_a_bad_data_frame_gets_one_sentence_and_nothing_is_written(self, frame, change, message):
        with pytest.raises((BadConfig, BadInput), match=message):
            dl.init("run", change(frame))
        assert not Path("run").exists()


class TestNotebook:
    def test_a_run_shows_its_stages(self, finished: Path) -> None:
        page = Page(dl.Run.open(finished)._repr_html_())
        assert {"ingest", "publish", "surplus 11", "36"} <= set(page.text)

    def test_a_run_shows_the_first_images(self, tmp_path: Path) -> None:
        page = Page(dl.Run.open(unpacked("waiting", tmp_path))._repr_html_())
        assert {"ask", "waiting", "the first 24 images"} <= set(page.text)
        assert len(page.images) == 24

    def test_a_run_that_has_not_begun_shows_its_stages(self, tmp_path: Path) -> None:
        page = Page(dl.init(tmp_path)._repr_html_())
        assert page.text.count("pending") == 9
        assert page.images == []

    def test_what_is_no_image_is_named(self) -> None:
        html = table("t", ["", "a"], [["row", Thumbnail(b"nonsense", "<photo>", "7")]])
        assert Page(html).text == ["t", "a", "row", "<photo>", "7"]


def test_a_search_before_photos_are_embedded_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(dl.DriftlineError, match=r"The stage ingest of .* is not done"):
        dl.init(tmp_path).search("a phone")
