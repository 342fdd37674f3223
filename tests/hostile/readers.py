"""Every reader of bytes from outside, each with a small sound input: what `make fuzz` mutates."""

import gzip
import io
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from support.faults import picture
from support.helpers import drifting, grouped, release_of, write_base, yfcc_line

from driftline.curate.core.atomic_io import csv_text, write_json
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.metadata.schema import batch_of
from driftline.curate.release import Release
from driftline.curate.release.settings import ReleaseSettings
from driftline.stream_builder.stream import Stream

Make = Callable[[Path], None]
READERS: "dict[str, Reader]" = {}


@dataclass(frozen=True)
class Reader:
    """One reader: how its input is made, and what opens all of it."""

    make: Make
    """writes a sound input into an empty folder"""
    read: Callable[[Path], Any]
    """opens and uses everything in it; what it returns is compared if the input is sealed"""
    sealed: bool = False
    """digests cover the input: another value than the sound one must be an error"""
    each: bool = False
    """it reads the files that are there one by one"""


def reader(
    make: Make, sealed: bool = False, each: bool = False
) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Enter a function into the table, under its name."""

    def entered(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        READERS[read.__name__] = Reader(make, read, sealed, each)
        return read

    return entered


def files(contents: Mapping[str, str | bytes]) -> Make:
    """Writes these files."""

    def make(folder: Path) -> None:
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return make


# --- sources of photos -----------------------------------------------------------------------------------------------

TABLE = "file,year,species,tags,lon\n" + "".join(f'a{i}.jpg,{2000 + i},"owl, {i}",x y,{i}.5\n' for i in range(5))
COLUMNS = {"path": "file", "uploaded": "year", "label": "species", "tags": "tags", "longitude": "lon"}


def drained(source: Any, folder: Path) -> int:
    from driftline.curate.metadata.schema import SOURCE, judge_times
    from driftline.curate.sources.base import Workplace

    rows = 0
    for batch in source.batches(at=Workplace(folder, folder / "work")):
        assert batch.schema == SOURCE
        batch.validate(full=True)
        judge_times(pa.Table.from_batches([batch]))
        rows += len(batch)
    return rows


def check_rows(path: Path, rows: int, delimiter: bytes = b",") -> None:
    """Compare the rows that were read, kept or dropped, with the lines of the file, by its bytes: exactly, unless a
    quote is neither in pairs nor around a cell; then with the lines before it."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    lines = [line for line in data.removeprefix(b"\xef\xbb\xbf").splitlines() if line]
    cell = b'(?:[^"%b]*|"(?:[^"]|"")*")' % delimiter
    plain = re.compile(b"%b(?:%b%b)*" % (cell, delimiter, cell)).fullmatch
    columns = lines[0].count(b"\t")  # between which a quote may be a character
    odd = [k for k, line in enumerate(lines) if not (plain(line) or line.count(b"\t") == columns > 0)]
    assert max(1, *odd[:1]) <= rows + 1 <= len(lines) if odd else rows + 1 == len(lines), f"{rows} of {len(lines)}"


@reader(files({"t.csv": TABLE, "t.tsv": TABLE.replace('"', "").replace(", ", " ").replace(",", "\t"),
               "t.csv.gz": gzip.compress(TABLE.encode(), mtime=0)}), each=True)  # fmt: skip
def delimited(folder: Path) -> None:
    from driftline.curate.sources.table import Delimited

    for path in sorted(folder.glob("t.*")):
        delimiter = "\t" if path.suffix == ".tsv" else ","
        rows = drained(Delimited(path=path.name, columns=COLUMNS, delimiter=delimiter), folder)
        check_rows(path, rows, delimiter.encode())


@reader(files({"t.jsonl": "".join(json.dumps({"file": f"{i}.jpg", "year": 2000 + i, "species": "owl", "tags": ["a"],
                                                "lon": 1.5}) + "\n" for i in range(5))}))  # fmt: skip
def json_lines(folder: Path) -> None:
    from driftline.curate.sources.table import Delimited

    rows = drained(Delimited(path="t.jsonl", columns=COLUMNS), folder)
    assert rows == sum(map(bool, map(bytes.strip, (folder / "t.jsonl").read_bytes().splitlines())))


def photo_table(folder: Path) -> None:
    times = pa.array([10**9 + i for i in range(5)], pa.timestamp("s", "UTC"))
    images = pa.array([{"bytes": picture(seed=i), "path": "a"} for i in range(5)])
    table = pa.table({"image": images, "time": times, "species": ["owl"] * 5, "tags": [["a"]] * 5, "lon": [1.5] * 5})
    pq.write_table(table, folder / "t.parquet")


PICTURES = {"image": "image", "uploaded": "time", "label": "species", "tags": "tags", "longitude": "lon"}


def cells(folder: Path) -> None:
    """The images of a table, as the stage fetch reads them."""
    from driftline.curate.images.local_files import cell_path, read_local

    part = pa.table({"row": range(5), "path": [cell_path(folder / "t.parquet", "image", i) for i in range(5)]})
    seen: list[int] = []
    read_local(part, 10**6, lambda row, data, reason, detail: seen.append(row))
    assert sorted(seen) == list(range(5))


@reader(photo_table)
def parquet(folder: Path) -> None:
    from driftline.curate.sources.table import Parquet

    rows = drained(Parquet(path="t.parquet", columns=PICTURES), folder)
    assert rows == pq.read_metadata(folder / "t.parquet").num_rows


@reader(photo_table)
def parquet_cells(folder: Path) -> None:
    cells(folder)


def arrow(folder: Path) -> None:
    photo_table(folder)
    table = pq.read_table(folder / "t.parquet")
    with pa.ipc.new_stream(folder / "t.arrow", table.schema) as file:
        file.write_table(table)
    (folder / "t.parquet").unlink()


@reader(arrow)
def hugging_face(folder: Path) -> None:
    from driftline.curate.sources.table import HuggingFace

    rows = drained(HuggingFace(path=".", columns={k: v for k, v in PICTURES.items() if k != "image"}), folder)
    assert rows == sum(map(len, pa.ipc.open_stream(folder / "t.arrow")))


def yfcc_lines(n: int = 6) -> bytes:
    return "".join(yfcc_line(10 + i) + "\n" for i in range(n)).encode()


def yfcc_sqlite(folder: Path) -> None:
    from driftline.curate.sources.yfcc.reading import NAMES, TABLE_NAME

    base = sqlite3.connect(folder / "dataset.sql")
    base.execute(f"CREATE TABLE {TABLE_NAME} ({', '.join(f'{name} TEXT' for name in NAMES)})")
    for line in yfcc_lines().decode().splitlines():
        base.execute(f"INSERT INTO {TABLE_NAME} VALUES ({', '.join('?' * len(NAMES))})", line.split("\t"))
    base.commit()
    base.close()


def yfcc(folder: Path, name: str) -> None:
    from driftline.curate.sources.yfcc import Yfcc

    drained(Yfcc(source="yfcc", path=name), folder)


@reader(files({"dataset.tsv": yfcc_lines()}))
def yfcc_rows(folder: Path) -> None:
    yfcc(folder, "dataset.tsv")


@reader(lambda folder: files({"dataset.bz2": __import__("bz2").compress(yfcc_lines())})(folder))
def yfcc_bzip2(folder: Path) -> None:
    yfcc(folder, "dataset.bz2")


@reader(yfcc_sqlite)
def yfcc_database(folder: Path) -> None:
    yfcc(folder, "dataset.sql")


def flickr_answer(folder: Path) -> None:
    from support.flickr_server import photo

    photos = {"photos": {"total": 3, "photo": [photo(i, 1_300_000_000 + i) for i in range(3)]}, "stat": "ok"}
    write_json(folder / "answer.json", photos)


@reader(flickr_answer)
def flickr(folder: Path) -> None:
    """The answers of a server that sends what it likes, through the client, the windows and their files."""
    from driftline.curate.foreign.http import Client, Policy, Reply
    from driftline.curate.sources import flickr as source

    body = (folder / "answer.json").read_bytes()

    class Answers(Client):
        def send(self, *given: Any, **more: Any) -> Reply:
            return Reply(200, {"Retry-After": "0"}, body)

    api = source.Api.__new__(source.Api)
    vars(api).update(_key="KEY", _endpoint="http://h", _client=Answers(), _policy=Policy(2, 0.0))
    made = source.Flickr(source="flickr", start=1_300_000_000, end=1_300_000_010)
    window = source.Window(made.start, made.end, ("4",))
    for photos in made._windows(api, window, folder / "work"):
        licences = {"4": ("Attribution License", "")}
        batch_of([made._record(licences, photo, i) for i, photo in enumerate(photos)]).validate(full=True)


def dated(folder: Path) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769).update({0x9003: "2010:05:01 10:00:00", 0x9011: "+02:00"})
    exif[0x0110] = "Camera"
    Image.new("RGB", (8, 8)).save(folder / "a.jpg", exif=exif)
    for suffix in ("png", "webp", "tif"):
        Image.new("RGB", (8, 8)).save(folder / f"b.{suffix}")
    (folder / "b.png.json").write_text('{"photoTakenTime": {"timestamp": "1300000000"}, "date": "2011-02"}')
    (folder / "b.xmp").write_text('<x exif:DateTimeOriginal="2010-05-01T10:00:00+02:00"/>')


@reader(dated)
def photo_folder(folder: Path) -> None:
    from driftline.curate.sources.folder import Folder

    assert drained(Folder(path=".", dates=("exif", "sidecar", "path", "file")), folder) == 4


# --- images ----------------------------------------------------------------------------------------------------------


def progressive() -> bytes:
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(io.BytesIO(picture((40, 30)))).save(buffer, "JPEG", progressive=True, exif=exif, comment=b"hello")
    return buffer.getvalue()


KINDS = {kind.lower(): picture(kind=kind, mode="P" if kind == "GIF" else "RGB")
         for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")}  # fmt: skip


def unusual() -> dict[str, bytes]:
    """Depths, alphas and frames that are prepared before a picture is shown."""
    made = {"16.png": picture(mode="I;16", kind="PNG"), "16.tif": picture(mode="I;16", kind="TIFF"),
            "float.tif": picture(mode="F", kind="TIFF"), "alpha.png": picture(mode="RGBA", kind="PNG"),
            "ink.jpg": picture(mode="CMYK", kind="JPEG"), "a.jp2": picture(kind="JPEG2000")}  # fmt: skip
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "GIF", save_all=True, append_images=[Image.new("RGB", (8, 8), (9, 0, 0))] * 3)
    return made | {"several.gif": buffer.getvalue()}


def phone() -> dict[str, bytes]:
    """HEIC and AVIF, as far as this machine writes them."""
    from driftline.curate.foreign.images import reads_heic

    made = {}
    for kind in ("AVIF", *(["HEIF"] if reads_heic() else [])):
        with suppress(OSError, KeyError):
            made[f"a.{kind.lower()}"] = picture(kind=kind)
    return made


@reader(
    lambda folder: files({f"a.{k}": v for k, v in KINDS.items()} | {"p.jpeg": progressive()} | phone() | unusual())(
        folder
    )
)
def image(folder: Path) -> None:
    from driftline.curate.images.checks import ImageLimits, check_image
    from driftline.curate.images.near_duplicates import thumbnail
    from driftline.curate.release.packing import published

    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        found = check_image(data, ImageLimits())
        if found.reason is None:
            data = found.converted or data
            thumbnail(data)
            assert check_image(published(data, strip=True)[0], ImageLimits()).reason is None, path.name


@reader(files({f"a.{kind}": data for kind, data in KINDS.items()}))
def lazy_image(folder: Path) -> None:
    from driftline.stream_builder.lazy_images import from_files

    from_files(sorted(folder.iterdir()), 8, folder)[:]


def shard(folder: Path) -> None:
    from driftline.curate.images.shards import write_tar

    write_tar(folder / "00000.tar", [(f"{i}.jpg", picture(seed=i)) for i in range(3)])


@reader(shard)
def shards(folder: Path) -> None:
    from driftline.curate.images.shards import read_tar

    list(read_tar(folder / "00000.tar"))


# --- arrays, datasets, weights ---------------------------------------------------------------------------------------


def npz(folder: Path) -> None:
    rng = rng_for(0)
    x = rng.normal(size=(12, 4)).astype(np.float32)
    np.savez(folder / "a.npz", x=x, y=np.arange(12) % 3, step=np.arange(12) // 6, time=np.arange(12),
             id=np.array([f"i{i}" for i in range(12)]), group=np.arange(12) // 2, classes=np.array(["a", "b", "c"]),
             split=np.array(["train", "test"] * 6))  # fmt: skip


@reader(npz)
def arrays(folder: Path) -> None:
    from driftline.stream_builder.builders.arrays import from_arrays

    from_arrays(folder / "a.npz").save(folder / "out")


def base_npz(folder: Path) -> None:
    x = rng_for(0).integers(0, 255, (8, 4, 4, 3)).astype(np.uint8)
    y = np.arange(8) % 2
    np.savez(folder / "b.npz", train_x=x, train_y=y, test_x=x, test_y=y, train_sub=y, test_sub=y,
             classes=np.array(["a", "b"]))  # fmt: skip


def opened(path: Path) -> None:
    """A dataset, with the first of its images."""
    from driftline.stream_builder.datasets import open_dataset

    dataset = open_dataset(path)
    for part in (dataset.train, dataset.test):
        np.asarray(part.x[:3])


@reader(base_npz)
def dataset_arrays(folder: Path) -> None:
    opened(folder / "b.npz")


def base_parquet(folder: Path) -> None:
    write_base(folder / "base")
    (folder / "base" / "names.json").write_text('{"fine_names": ["a", "b"], "coarse_names": [], "subpop_order": [[0]]}')
    np.savez(folder / "base" / "toy_draws.npz", t0_train=np.arange(3))


@reader(base_parquet)
def dataset_parquet(folder: Path) -> None:
    opened(folder / "base")


@reader(files({f"t/{part}.csv": 'text,label\nhow are you,a\nfine,b\n"x, y",a\n' for part in ("train", "test")}))
def dataset_texts(folder: Path) -> None:
    opened(folder / "t")


@reader(
    files({"data.json": json.dumps({part: [["hello", "a"], ["bye", "b"]] for part in ("train", "test", "oos_train")})})
)
def dataset_intents(folder: Path) -> None:
    opened(folder / "data.json")


def order(folder: Path) -> None:
    import h5py

    for part in ("train", "test"):
        for name, values in (("labels", np.arange(4) % 2), ("image_paths", np.array([b"a", b"b", b"c", b"d"]))):
            with h5py.File(folder / f"{part}_{name}.hdf5", "w") as file:
                file["store_list"] = values
        np.save(folder / f"{part}.npy", np.ones((4, 3), np.float32))


@reader(order)
def hdf5(folder: Path) -> None:
    from driftline.stream_builder.builders.table import timed_hdf5

    timed_hdf5(folder, folder)


def timed(folder: Path) -> None:
    (folder / "t.csv").write_text("id,time,label,user\n" + "".join(f"i{i},{i},c{i % 2},u\n" for i in range(6)))
    pq.write_table(pa.table({"id": ["a", "b"], "time": [1, 2], "label": ["x", "y"]}), folder / "t.parquet")
    np.save(folder / "csv.npy", np.ones((6, 3), np.float32))
    np.save(folder / "parquet.npy", np.ones((2, 3), np.float32))


@reader(timed)
def time_table(folder: Path) -> None:
    from driftline.stream_builder.builders.table import timed_table

    for kind in ("csv", "parquet"):
        timed_table(folder / f"t.{kind}", features=folder / f"{kind}.npy")


def vectors(folder: Path) -> None:
    (folder / "img_emb").mkdir()
    (folder / "metadata").mkdir()
    np.save(folder / "img_emb" / "img_emb_0.npy", rng_for(0).normal(size=(4, 3)).astype(np.float16))
    pq.write_table(pa.table({"image_path": ["a", "b", "c", "d"]}), folder / "metadata" / "metadata_0.parquet")


@reader(vectors)
def clip_retrieval(folder: Path) -> None:
    from driftline.curate.embedding.vector_store import import_vectors

    members = pa.table({"id": ["a", "b"], "member": ["a.jpg", "b.jpg"], "bucket": pa.array([0, 1], pa.int32())})
    import shutil

    shutil.rmtree(folder / "out", ignore_errors=True)
    import_vectors(folder, members, folder / "out", RunLog(quiet=True))


def texts(folder: Path) -> None:
    (folder / "texts.json").write_text('["a", "b"]')
    np.save(folder / "texts.npy", np.eye(2, dtype=np.float32))


@reader(texts)
def text_vectors(folder: Path) -> None:
    from driftline.curate.encoders.texts import TableOfVectors

    TableOfVectors(str(folder)).texts(["a"])


def weights(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    state = torch.nn.Linear(3, 2).state_dict()
    save_file(state, folder / "w.safetensors")
    torch.save({"state_dict": state}, folder / "w.pt")
    torch.save(dict(state), folder / "f.pt")


@reader(weights)
def checkpoints(folder: Path) -> None:
    import torch

    from driftline.curate.encoders.backbone import load_checkpoint
    from driftline.stream_builder.importers.pickles import read_tensors

    read_tensors(folder / "f.pt")
    for name in ("w.safetensors", "w.pt"):
        load_checkpoint(torch.nn.Linear(3, 2), folder / name)


def state(folder: Path) -> None:
    from collections import Counter

    from driftline.eval.checkpoint import Checkpoint

    Checkpoint(folder / "state.pt", last=-1e9).keep({"a": [1, 2.5, "x"], "n": Counter("abca")}, np.eye(3))


@reader(state)
def run_state(folder: Path) -> None:
    from driftline.eval.checkpoint import Checkpoint

    Checkpoint(folder / "state.pt").load({}, np.eye(3))


# --- streams, releases, results --------------------------------------------------------------------------------------


def stream_folder(folder: Path) -> None:
    grouped(drifting(steps=2, n=6)).save(folder / "S")


def read_stream(folder: Path) -> Any:
    found = Stream.load(folder / "S")
    found.verify(folder / "S")
    seen: list[Any] = [found.name, list(found.classes), dict(found.facts), found.sha256]
    for step in found.steps:
        for name, split in step.splits.items():
            columns = {"x": split.x[:], "y": split.y, "ids": split.ids} | split.columns()
            seen.append([step.name, name, {key: np.asarray(column).tolist() for key, column in columns.items()}])
    return seen


@reader(stream_folder, sealed=True)
def stream(folder: Path) -> Any:
    return read_stream(folder)


def release_folder(folder: Path) -> None:
    rows = [
        {"id": f"p{i}", "bucket": i % 2, "concept": "ab"[i // 2 % 2], "uploaded": 10**9 + i, "score": 0.5,
         "votes": "{}", "width": 20, "height": 16, "user": f"u{i}", "creator": "c", "title": "t", "licence": "l",
         "licence_url": "http://l", "page_url": "http://p", "url": "http://u"}
        for i in range(8)
    ]  # fmt: skip
    buckets = [{"index": i, "name": str(i), "start": None, "end": None} for i in range(2)]
    provenance = {
        "driftline": "0", "notice": "", "source": "yfcc", "seed": 0, "encoder": {"model": "m", "fingerprint": "f" * 64},
        "prompts": {"a": ["a"]}, "validation": {"method": "crowd", "workers": 3, "agree": 2, "rule": "exact"},
        "counts": {"ingest": {"read": 9, "kept": 8, "dropped": {"not_utf8": 1}}}, "judgement": None,
    }  # fmt: skip
    release_of(rows, {f"p{i}": (picture(seed=i), "jpg") for i in range(8)}, np.eye(8, 4, dtype=np.float16), buckets,
               ["a", "b"], provenance, folder / "R", ReleaseSettings(per_class=2, splits=1))  # fmt: skip


@reader(release_folder, sealed=True)
def release(folder: Path) -> Any:
    found = Release.open(folder / "R")
    features = {name: found.features(name)[:].tolist() for name in found.facts["features"]}
    found.verify()
    return [found.facts, found.table.to_pylist(), features, list(found.images())]


def stream_of_pictures(folder: Path) -> None:
    import shutil

    from driftline.stream_builder.builders.release import from_release

    release_folder(folder)
    from_release(Release.open(folder / "R"), "images:8").save(folder / "S")
    shutil.rmtree(folder / "R")


@reader(stream_of_pictures, sealed=True)
def lazy_stream(folder: Path) -> Any:
    return read_stream(folder)


def rows_folder(folder: Path) -> None:
    from driftline.eval.run import evaluate

    evaluate(drifting(2, 2, 6), "clear-iid", ["majority"], seeds=[0], out=folder / "runs")


@reader(rows_folder)
def rows(folder: Path) -> None:
    from driftline.eval import predictions
    from driftline.eval.leaderboard.submission import documents_of
    from driftline.eval.rows import find_skipped, folders, load

    for place in folders([folder / "runs"]):
        run = load(place)
        predictions.attached(place / predictions.FILE, place / predictions.FILE, run.rows)
        documents_of([run])
    find_skipped([folder / "runs"])


@reader(rows_folder)
def report(folder: Path) -> None:
    from driftline.eval.reporting.report import report as write

    write([folder / "runs"], folder / "report")


def submission_file(folder: Path) -> None:
    from driftline.eval.leaderboard.submission import pack

    rows_folder(folder)
    pack([folder / "runs"], "me", folder / "s.zip")
    import shutil

    shutil.rmtree(folder / "runs")


@reader(submission_file)
def submission(folder: Path) -> None:
    from driftline.eval.leaderboard import submission as files_of

    members, _ = files_of.opened(folder / "s.zip")
    runs = [files_of.with_records(run, members, i) for i, run in enumerate(files_of.runs_of(members))]
    files_of.documents_of(runs)


def ledger_file(folder: Path) -> None:
    from driftline.eval.memory.correction_ledger import Ledger

    with Ledger(folder / "l.ledger") as ledger:
        for i in range(4):
            ledger.append({"label": i, "who": "me"}, np.arange(3, dtype=np.float32))


@reader(ledger_file)
def ledger(folder: Path) -> None:
    from driftline.eval.memory.correction_ledger import entries, verify

    verify(folder / "l.ledger")
    [entry.content for entry in entries(folder / "l.ledger")]


# --- answers, settings, states of runs -------------------------------------------------------------------------------

ANSWER_HEAD = ("WorkerId", "AssignmentId", "AssignmentStatus", "WorkTimeInSeconds", "Input.batch", "Input.item")
ANSWER_ROWS = {
    "labels": ["bus|car", "['bus', 'car']", "none", "bus"],
    "taskAnswers": [json.dumps([v]) for v in ({"labels": {"bus": True}}, {"labels.car": {"on": True}},
                                               {"labels": {"labels": ["bus"]}}, {"sensitive": {"yes": True}})],
}  # fmt: skip


def answer_files(folder: Path) -> None:
    for name, answers in ANSWER_ROWS.items():
        lines = [(f"W{i}", f"A{i}", "Submitted", "7", "b1", f"i{i % 2}", answer) for i, answer in enumerate(answers)]
        (folder / f"{name}.csv").write_text(csv_text((*ANSWER_HEAD, f"Answer.{name}"), lines, quote_all=True))


@reader(answer_files, each=True)
def answers(folder: Path) -> None:
    from driftline.curate.validation.answers.answers import read_answers, read_lines
    from driftline.curate.validation.answers.verdicts import agreement, tally
    from driftline.curate.validation.settings import ValidationSettings

    batch = {"batch": "b1", "items": {"i0": "p0", "i1": "p1"}, "concepts": ["bus", "car"]}
    for path in sorted(folder.glob("*.csv")):
        found = read_lines([path])
        check_rows(path, sum(map(len, found.values())))
        table = read_answers(found.get("b1", []), batch, "key")
        assert len(table) == len(found.get("b1", []))
        tally([{"id": "p0", "bucket": 0, "concept": "bus"}], table, ValidationSettings(workers=2, agree=1))
        agreement(table)


@reader(files({"gold.csv": "id,labels\np1,bus\np2,bus|car\n"}))
def lists_of_people(folder: Path) -> None:
    from driftline.curate.validation.asking.batches import read_gold

    read_gold(folder / "gold.csv", ["bus", "car"])


def run_file(folder: Path) -> None:
    from driftline.pipelines.config.presets import write_run_file

    write_run_file(folder, "folder", ["collection.path=photos"])


@reader(run_file)
def settings(folder: Path) -> None:
    from driftline.pipelines.config.loader import load

    load(folder / "driftline.yaml")


@reader(
    files(
        {
            "head": "noai, max-image-preview:large\n3\nhttp://u@[::1]:80/a\nHTTP://ÖX.de:80/a b%2F\n127.0.0.1\n"
            "Sun, 06 Nov 1994 08:49:37 GMT"
        }
    )
)
def heads(folder: Path) -> None:
    """Values of answers' heads and addresses."""
    from driftline.curate.fetch.address_guard import is_private_host, origin
    from driftline.curate.fetch.native import host_of
    from driftline.curate.fetch.outcome import opted_out
    from driftline.curate.foreign.http import one_address, seconds_after

    for line in (folder / "head").read_bytes().decode("utf-8", "surrogateescape").split("\n"):
        opted_out([line])
        assert 0 <= seconds_after(line) <= 120
        is_private_host(line)
        if (form := one_address(line)) is not None:
            assert form.isascii()
            assert one_address(form) == form
        if host_of(line):
            origin(line)
