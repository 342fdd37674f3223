"""What single sources do beyond the common contract: dates of a folder, images inside tables."""

import functools
import http.server
import os
import resource
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError
from support.helpers import saved, teal
from support.serving import serving

from driftline.curate.core.run_log import RunLog
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.fetch.run import FetchSettings, fetch
from driftline.curate.sources.folder import Folder
from driftline.curate.sources.table import HuggingFace, Parquet


def jpeg(path: Path, date: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(teal(date))
    return path


def taken(folder: Path, **settings: Any) -> list[int | None]:
    found: list[int | None] = pa.Table.from_batches(Folder(path=folder, **settings).batches())["taken"].to_pylist()
    return found


class TestFolderDates:
    def test_exif_comes_before_a_date_in_the_path(self, tmp_path: Path) -> None:
        jpeg(tmp_path / "2001-01-01" / "a.jpg", "2012:05:01 10:00:00")
        assert taken(tmp_path) == [seconds_of("2012-05-01T10:00:00")]

    @pytest.mark.parametrize(
        ("name", "date"),
        [
            ("IMG_20120501_100000.jpg", "2012-05-01T10:00:00"),
            ("2012/05/01/a.jpg", "2012-05-01"),
            ("trip 2012-05-01 10.00.00.jpg", "2012-05-01T10:00:00"),
            ("1909-12-31.jpg", "1909-12-31"),
            ("2012-02-30.jpg", None),
            ("20125-01.jpg", None),
            ("1234567890123.jpg", "2009-02-13T23:31:30"),
            ("FB_IMG_1546300800000.jpg", "2019-01-01T00:00:00"),
            ("1546300800000/a.jpg", None),  # a number of a folder
            ("9234567890123.jpg", None),
            ("25.12.2005/a.jpg", "2005-12-25"),
            ("trip 3-12-05.jpg", None),
            ("31_12_1999 party.jpg", "1999-12-31"),
            ("12-25-2005.jpg", "2005-12-25"),
            ("05.06.2012 boat.jpg", "2012-06-05"),
            ("05-06-2012 boat.jpg", "2012-01-01"),  # June or May: a year
            ("5-5-2012.jpg", "2012-05-05"),
            ("2000 photos/a.jpg", None),
            ("1920 x 1080/a.jpg", None),
            ("2048px/a.jpg", None),
            ("1920/1080/a.jpg", None),
            ("1905/0123/a.jpg", "1905-01-01"),
            ("a.jpg", None),
            ("1905/a.jpg", "1905-01-01"),
            ("1905 harbour/IMG_1984.jpg", "1905-01-01"),
            ("1941-07_holiday/a.jpg", "1941-07-01"),
            ("1941/07/a.jpg", "1941-07-01"),
            ("1941-07_boat.jpg", "1941-07-01"),
            ("1905/2012-05/a.jpg", "2012-05-01"),
            ("PXL_20190304_101112123.jpg", "2019-03-04T10:11:12"),
            ("IMG-20190304-WA0001.jpg", "2019-03-04"),
            ("Screenshot 2019-03-04 at 10.11.12.png", "2019-03-04T10:11:12"),
            ("Screen Shot 2019-03-04 at 9.11.12 PM.png", "2019-03-04T21:11:12"),
            ("Screenshot_20190304-101112_Maps.png", "2019-03-04T10:11:12"),
            ("2000-2010/a.jpg", None),
            ("IMG_1984.jpg", None),
        ],
    )
    def test_a_date_in_the_path(self, tmp_path: Path, name: str, date: str | None) -> None:
        jpeg(tmp_path / "photos" / name)
        assert taken(tmp_path / "photos") == [None if date is None else seconds_of(date)]

    @pytest.mark.parametrize(
        ("sidecar", "text", "date"),
        [
            ("a.json", '{"date": "2012-05-01"}', "2012-05-01"),
            ("a.xmp", '<x exif:DateTimeOriginal="2012-05-01T12:00:00+02:00"/>', "2012-05-01T12:00:00"),
            ("a.jpg.xmp", "<photoshop:DateCreated>2012-05-01</photoshop:DateCreated>", "2012-05-01"),
            ("a.xmp", '<x xmp:ModifyDate="2021-01-01"/>', None),
            ("a.json", "[" * 100_000, None),
            ("a.json", '{"date": "soon"}', None),
            ("a.json", '{"date": "9999-12-31"}', None),
            ("a.json", '{"date": -62135596800}', None),  # the year 1
            ("a.jpg.json", '{"photoTakenTime": {"timestamp": "1335866400000"}}', "2012-05-01T10:00:00"),
            ("a.XMP", '<x exif:DateTimeOriginal="2012-05-01T12:00:00"/>', "2012-05-01T12:00:00"),
            ("a.xmp", '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>&e;', None),
            ("a.xmp", '<!DOCTYPE x [<!ENTITY y "1985">]><x exif:DateTimeOriginal="&y;-07-01"/>', None),
            ("a.xmp", f'<!DOCTYPE x [<!ENTITY a "{"&b;" * 9999}">]><x xmp:CreateDate="2012-05-01"/>', "2012-05-01"),
            ("a.json", '[{"date": "2012-05-01"}]', None),
            ("a.json", '{"date": "0000-00-00"}', None),
            ("a.json", '{"date": "2011-02-30"}', None),
        ],
    )
    def test_a_sidecar(self, tmp_path: Path, sidecar: str, text: str, date: str | None) -> None:
        jpeg(tmp_path / "a.jpg")
        (tmp_path / sidecar).write_text(text)
        assert taken(tmp_path) == [None if date is None else seconds_of(date)]

    @pytest.mark.parametrize("sidecar", ["a.jpg.json", "a.jpg.supplemental-metadata.json", "a.xmp"])
    def test_a_sidecar_of_two_gigabytes_is_read_to_a_limit(self, tmp_path: Path, sidecar: str) -> None:
        jpeg(tmp_path / "a.jpg")
        with (tmp_path / sidecar).open("wb") as file:
            file.truncate(2 << 30)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert taken(tmp_path) == [None]
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "KiB"

    def test_xmp_sidecars_are_inputs_by_name_where_they_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "a.xmp").write_text("")
        assert Folder(path=tmp_path).inputs() == [tmp_path, tmp_path / "a.xmp"]
        assert Folder(path=tmp_path, dates=["exif"]).inputs() == [tmp_path]

    def test_an_offset_in_a_sidecar_makes_the_upload_time_exact(self, tmp_path: Path) -> None:
        jpeg(tmp_path / "a.jpg")
        (tmp_path / "a.xmp").write_text('<x exif:DateTimeOriginal="2012-05-01T12:00:00+02:00"/>')
        (row,) = pa.Table.from_batches(Folder(path=tmp_path).batches()).to_pylist()
        assert row["uploaded"] == seconds_of("2012-05-01T10:00:00")

    def test_the_files_own_time_is_used_only_when_asked_for(self, tmp_path: Path) -> None:
        os.utime(jpeg(tmp_path / "a.jpg"), (1_300_000_000, 1_300_000_000))
        assert taken(tmp_path) == [None]
        assert taken(tmp_path, dates=["exif", "file"]) == [1_300_000_000]

    def test_an_unknown_kind_of_date_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValidationError, match="guess"):
            taken(tmp_path, dates=["guess"])


def image_bytes(shade: int) -> bytes:
    return saved(Image.new("L", (16, 12), shade), "PNG")


def stored(source: Parquet | HuggingFace, out: Path) -> dict[str, bytes]:
    """id → bytes, after a fetch of all that the source lists."""
    table = pa.Table.from_batches(source.batches())
    out.mkdir()
    pq.write_table(table, out / "part-0.parquet")
    counts = fetch([out / "part-0.parquet"], out / "a", FetchSettings(), RunLog(quiet=True))
    assert set(counts) == {""}
    from driftline.curate.images.shards import read_images

    return dict(read_images(out / "a", pq.read_table(out / "a" / "index.parquet"), 0))


class TestParquet:
    def test_images_inside_a_folder_of_files(self, tmp_path: Path) -> None:
        (tmp_path / "t").mkdir()
        for part in range(2):
            rows = [{"img": image_bytes(10 * part + i), "when": f"{1990 + i}"} for i in range(3)]
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t" / f"{part}.parquet", row_group_size=2)
        source = Parquet(path=tmp_path / "t", columns={"image": "img", "uploaded": "when"})
        found = stored(source, tmp_path / "out")
        assert found == {f"{p}-{i}": image_bytes(10 * p + i) for p in range(2) for i in range(3)}

    def test_a_file_behind_an_address(self, tmp_path: Path) -> None:
        table = pa.table({"link": ["http://127.0.0.1/a.jpg"], "year": [2010]})
        pq.write_table(table, tmp_path / "t.parquet")
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
        with serving(handler) as address:
            source = Parquet(path=f"{address}/t.parquet", columns={"url": "link", "uploaded": "year"})
            assert source.inputs() == []
            assert pa.Table.from_batches(source.batches())["uploaded"].to_pylist() == [1_262_304_000]


class TestHuggingFace:
    @pytest.mark.parametrize("form", ["parquet", "save_to_disk"])
    def test_what_the_library_writes(self, tmp_path: Path, form: str) -> None:
        datasets = pytest.importorskip("datasets")
        import datetime

        kinds = {"image": datasets.Image(), "when": datasets.Value("timestamp[s]")}
        shape = datasets.Features(kinds | {"kind": datasets.ClassLabel(names=["cat", "dog"])})

        moment = datetime.datetime(2011, 3, 13)
        rows = {"image": [{"bytes": image_bytes(i), "path": None} for i in range(4)], "when": [moment] * 4}
        data = datasets.Dataset.from_dict({**rows, "kind": [0, 1, 0, 1]}, features=shape)
        folder = tmp_path / "set"
        if form == "parquet":
            folder.mkdir()
            data.to_parquet(str(folder / "train.parquet"))
        else:
            data.save_to_disk(str(folder))
        source = HuggingFace(path=folder, columns={"uploaded": "when", "label": "kind"})
        table = pa.Table.from_batches(source.batches())
        assert table["label"].to_pylist() == ["cat", "dog", "cat", "dog"]
        assert table["uploaded"].to_pylist() == [1_299_974_400] * 4
        assert sorted(stored(source, tmp_path / "out").values()) == sorted(image_bytes(i) for i in range(4))


@pytest.mark.shared(twin="tests/curate/test_sources_more.py::test_exif_comes_before_a_date_in_the_path")
def test_real_exif_photos_are_dated_or_say_why_not(shared: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(shared / "exif" / "exif_samples.zip") as archive:
        archive.extractall(tmp_path)
    table = pa.Table.from_batches(Folder(path=tmp_path).batches())
    dated = sum(value is not None for value in table["taken"].to_pylist())
    assert 20 < dated < len(table)


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_a_file_name_that_is_not_utf8_costs_its_own_row(tmp_path: Path) -> None:
    jpeg(tmp_path / "2001-02-03.jpg")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg")).write_bytes((tmp_path / "2001-02-03.jpg").read_bytes())

    rows = pa.Table.from_batches(Folder(path=tmp_path).batches()).to_pylist()

    assert [(r["fault"], r["raw"]) for r in rows] == [(None, None), ("not_utf8", "caf\\xe9.jpg")]
