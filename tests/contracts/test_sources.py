"""Every metadata source: the same columns, in order, restartable, clear about empty and missing input."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.flickr_server import FlickrServer, photo
from support.helpers import teal, yfcc_line

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.metadata.columns import ID
from driftline.curate.metadata.schema import SOURCE
from driftline.curate.sources import SOURCES
from driftline.curate.sources.base import FileSource, Source, Workplace


def yfcc(folder: Path, n: int) -> dict[str, Any]:
    (folder / "dataset.tsv").write_text("".join(yfcc_line(i) + "\n" for i in range(n)))
    return {"path": folder / "dataset.tsv"}


def folder(folder: Path, n: int) -> dict[str, Any]:
    (folder / "photos").mkdir()
    for i in range(n):
        (folder / "photos" / f"{i:03d}.jpg").write_bytes(teal("2012:05:01 10:00:00"))
    return {"path": folder / "photos"}


def delimited(folder: Path, n: int) -> dict[str, Any]:
    lines = ["name,year,link"] + [f"n{i},{1900 + i % 50},http://127.0.0.1/{i}.jpg" for i in range(n)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n" if n else "")
    return {"path": folder / "table.csv", "columns": {"id": "name", "uploaded": "year", "url": "link"}}


def parquet(folder: Path, n: int) -> dict[str, Any]:
    table = pa.table({"name": [f"n{i}" for i in range(n)], "when": pa.array(range(n), pa.timestamp("s"))})
    table = table.append_column("link", pa.array([f"http://127.0.0.1/{i}.jpg" for i in range(n)], pa.string()))
    pq.write_table(table, folder / "table.parquet", row_group_size=3)
    return {"path": folder / "table.parquet", "columns": {"id": "name", "uploaded": "when", "url": "link"}}


def huggingface(folder: Path, n: int) -> dict[str, Any]:
    data = teal("2012:05:01 10:00:00")
    rows = [{"image": {"bytes": data, "path": None}, "year": str(1990 + i), "kind": i % 2} for i in range(n)]
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
    return {"path": folder / "set", "columns": {"uploaded": "year", "label": "kind"}}


def flickr(folder: Path, n: int) -> dict[str, Any]:
    server = FlickrServer([photo(i, 1_300_000_000 + i) for i in range(n)])
    SERVERS.append(server)
    return {"start": 1_300_000_000, "end": 1_300_001_000, "endpoint": server.address, "rate": 3_600_000}


SERVERS: list[FlickrServer] = []


def sample(name: str, folder: Path, n: int) -> tuple[Source, Workplace]:
    """A source of n photos in `folder`, by the function above of its name."""
    function = name.replace("-", "_")
    if function not in globals():
        pytest.fail(f"The source {name!r} has no sample. Expected {function}(folder, n) → its settings in {__name__}.")
    source: Source = SOURCES[name](**globals()[function](folder, n))
    return source, Workplace(folder, folder / "work")


@pytest.fixture(autouse=True)
def _flickr(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLICKR_API_KEY", "secret-key")
    yield
    while SERVERS:
        SERVERS.pop().close()


@pytest.mark.parametrize("name", SOURCES)
def test_columns_order_and_ids(name: str, tmp_path: Path) -> None:
    source, at = sample(name, tmp_path, 7)
    table = pa.Table.from_batches(source.batches(3, at=at))
    assert table.schema == SOURCE
    assert table["row"].to_pylist() == list(range(7))
    assert table["fault"].null_count == 7
    assert all(ID.fullmatch(i) for i in table["id"].to_pylist())
    assert len(set(table["id"].to_pylist())) == 7


@pytest.mark.parametrize("name", SOURCES)
def test_restart_in_the_middle_gives_the_same_rest(name: str, tmp_path: Path) -> None:
    source, at = sample(name, tmp_path, 7)
    whole = pa.Table.from_batches(source.batches(2, at=at))
    rest = pa.Table.from_batches(source.batches(2, 4, at))
    assert rest.equals(whole.slice(4))


@pytest.mark.parametrize("name", SOURCES)
def test_empty_input_is_an_error_that_names_the_file(name: str, tmp_path: Path) -> None:
    source, at = sample(name, tmp_path, 0)
    with pytest.raises(BadInput, match=r"empty|no photos|has no row"):
        list(source.batches(at=at))


@pytest.mark.parametrize("name", [name for name in SOURCES if issubclass(SOURCES[name], FileSource)])
def test_missing_input_is_an_error_that_names_the_path(name: str, tmp_path: Path) -> None:
    source, at = sample(name, tmp_path, 7)
    with pytest.raises(MissingFile, match="nowhere"):
        list(source.model_copy(update={"path": "nowhere"}).batches(at=at))


@pytest.mark.parametrize("name", SOURCES)
def test_every_key_of_a_source_is_described(name: str) -> None:
    assert SOURCES.summary(name)
    assert all(field.description for field in SOURCES[name].model_fields.values())


@pytest.mark.shared(twin="tests/contracts/test_sources.py::test_columns_order_and_ids")
def test_camera_trap_pictures_go_through_the_folder_source(shared: Path, tmp_path: Path) -> None:
    import csv

    with zipfile.ZipFile(shared / "camtrap" / "camtrapR_pictures.zip") as archive:
        archive.extractall(tmp_path)
    table = pa.Table.from_batches(SOURCES["folder"](path=tmp_path, label="parent").batches())
    expected = list(csv.DictReader((shared / "camtrap" / "camtrapR_index.csv").open()))
    assert len(table) == len(expected) == 168
    from driftline.curate.core.times.dates import seconds_of

    dates = {r["path"]: r["datetime_original"] for r in expected}
    for path, taken in zip(table["path"].to_pylist(), table["taken"].to_pylist(), strict=True):
        text = dates[Path(path).relative_to(tmp_path.resolve()).as_posix()]
        assert taken == seconds_of(text.replace(":", "-", 2)), path


@pytest.mark.shared(twin="tests/curate/test_sources_more.py::test_exif_comes_before_a_date_in_the_path")
def test_real_exif_dates_edge_cases(shared: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(shared / "exif" / "exif_samples.zip") as archive:
        archive.extractall(tmp_path)
    table = pa.Table.from_batches(SOURCES["folder"](path=tmp_path).batches())
    by_name = {Path(r["path"]).name: r for r in table.to_pylist() if r["path"]}
    from datetime import UTC, datetime

    taken = datetime.fromtimestamp(by_name["Canon_40D.jpg"]["taken"], UTC)
    assert (taken.year, taken.month, taken.day) == (2008, 5, 30), "capture date, not the date of the last edit"
    heic = [r for r in table.to_pylist() if r["path"] and r["path"].lower().endswith((".heic", ".heif"))]
    assert [r["fault"] for r in heic] == [None, None], "HEIC is read with its extra"
