"""Every metadata source: the same columns, in order, restartable, clear about empty and missing input."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.flickr_server import FlickrServer, photo
from support.helpers import yfcc_line

from curate.core.errors import BadInput, MissingFile
from curate.metadata.schema import ID, SOURCE
from curate.sources import SOURCES, Source


def photo_bytes(date: str | None = "2012:05:01 10:00:00") -> bytes:
    image = Image.new("RGB", (16, 12), "teal")
    exif = Image.Exif()
    if date:
        exif.get_ifd(0x8769)[0x9003] = date
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif)
    return buffer.getvalue()


def yfcc(folder: Path, n: int) -> Source:
    (folder / "dataset.tsv").write_text("".join(yfcc_line(i) + "\n" for i in range(n)))
    made: Source = SOURCES["yfcc"](folder / "dataset.tsv")
    return made


def folder(folder: Path, n: int) -> Source:
    (folder / "photos").mkdir()
    for i in range(n):
        (folder / "photos" / f"{i:03d}.jpg").write_bytes(photo_bytes())
    made: Source = SOURCES["folder"](folder / "photos")
    return made


def delimited(folder: Path, n: int) -> Source:
    lines = ["name,year,link"] + [f"n{i},{1900 + i % 50},http://127.0.0.1/{i}.jpg" for i in range(n)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n" if n else "")
    made: Source = SOURCES["delimited"](folder / "table.csv", {"id": "name", "uploaded": "year", "url": "link"})
    return made


def parquet(folder: Path, n: int) -> Source:
    table = pa.table({"name": [f"n{i}" for i in range(n)], "when": pa.array(range(n), pa.timestamp("s"))})
    table = table.append_column("link", pa.array([f"http://127.0.0.1/{i}.jpg" for i in range(n)], pa.string()))
    pq.write_table(table, folder / "table.parquet", row_group_size=3)
    made: Source = SOURCES["parquet"](folder / "table.parquet", {"id": "name", "uploaded": "when", "url": "link"})
    return made


def huggingface(folder: Path, n: int) -> Source:
    rows = [{"image": {"bytes": photo_bytes(), "path": None}, "year": str(1990 + i), "kind": i % 2} for i in range(n)]
    shape = pa.schema(
        [
            ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            ("year", pa.string()),
            ("kind", pa.int64()),
        ]
    )
    features = {"kind": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    known = {"huggingface": json.dumps({"info": {"features": features}})}
    (folder / "set" / "data").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=shape.with_metadata(known)), folder / "set" / "data" / "0.parquet")
    made: Source = SOURCES["huggingface"](folder / "set", {"uploaded": "year", "label": "kind"})
    return made


def flickr(folder: Path, n: int) -> Source:
    server = FlickrServer([photo(i, 1_300_000_000 + i) for i in range(n)])
    SERVERS.append(server)
    made: Source = SOURCES["flickr"](
        1_300_000_000, 1_300_001_000, folder / "work", endpoint=server.address, rate=3_600_000
    )
    return made


SERVERS: list[FlickrServer] = []
MAKERS: dict[str, Callable[[Path, int], Source]] = {
    "yfcc": yfcc,
    "folder": folder,
    "delimited": delimited,
    "parquet": parquet,
    "huggingface": huggingface,
    "flickr": flickr,
}


@pytest.fixture(autouse=True)
def _flickr(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLICKR_API_KEY", "secret-key")
    yield
    while SERVERS:
        SERVERS.pop().close()


def test_every_source_has_a_maker() -> None:
    assert set(MAKERS) == set(SOURCES)


@pytest.mark.parametrize("name", MAKERS)
def test_columns_order_and_ids(name: str, tmp_path: Path) -> None:
    table = pa.Table.from_batches(MAKERS[name](tmp_path, 7).batches(rows=3))
    assert table.schema == SOURCE
    assert table["row"].to_pylist() == list(range(7))
    assert table["fault"].null_count == 7
    assert all(ID.fullmatch(i) for i in table["id"].to_pylist())
    assert len(set(table["id"].to_pylist())) == 7


@pytest.mark.parametrize("name", MAKERS)
def test_restart_in_the_middle_gives_the_same_rest(name: str, tmp_path: Path) -> None:
    source = MAKERS[name](tmp_path, 7)
    whole = pa.Table.from_batches(source.batches(rows=2))
    rest = pa.Table.from_batches(source.batches(rows=2, skip=4))
    assert rest.equals(whole.slice(4))


@pytest.mark.parametrize("name", MAKERS)
def test_empty_input_is_an_error_that_names_the_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"empty|no photos|has no row"):
        list(MAKERS[name](tmp_path, 0).batches())


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "flickr"])  # that one has no file
def test_missing_input_is_an_error_that_names_the_path(name: str, tmp_path: Path) -> None:
    source = SOURCES[name](tmp_path / "nowhere")
    with pytest.raises(MissingFile, match="nowhere"):
        list(source.batches())


def test_camera_trap_pictures_go_through_the_folder_source(shared: Path, tmp_path: Path) -> None:
    import csv

    with zipfile.ZipFile(shared / "camtrap" / "camtrapR_pictures.zip") as archive:
        archive.extractall(tmp_path)
    table = pa.Table.from_batches(SOURCES["folder"](tmp_path, "parent").batches())
    expected = list(csv.DictReader((shared / "camtrap" / "camtrapR_index.csv").open()))
    assert len(table) == len(expected) == 168
    from curate.metadata.column_mapping import seconds_of

    dates = {r["path"]: r["datetime_original"] for r in expected}
    for path, taken in zip(table["path"].to_pylist(), table["taken"].to_pylist(), strict=True):
        text = dates[Path(path).relative_to(tmp_path.resolve()).as_posix()]
        assert taken == seconds_of(text.replace(":", "-", 2)), path


def test_real_exif_dates_edge_cases(shared: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(shared / "exif" / "exif_samples.zip") as archive:
        archive.extractall(tmp_path)
    table = pa.Table.from_batches(SOURCES["folder"](tmp_path).batches())
    by_name = {Path(r["path"]).name: r for r in table.to_pylist() if r["path"]}
    from datetime import UTC, datetime

    taken = datetime.fromtimestamp(by_name["Canon_40D.jpg"]["taken"], UTC)
    assert (taken.year, taken.month, taken.day) == (2008, 5, 30), "capture date, not the date of the last edit"
    assert "unreadable_image" in table["fault"].to_pylist(), "HEIC without a decoder is a fault, not a crash"
