"""Every registered export: all images, and read back with the library of the format, the same ids, labels and bytes."""

import hashlib
import io
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image, ImageOps
from support.clear_layouts import PROVENANCE
from support.helpers import release_of

from driftline.curate.export import EXPORTS
from driftline.curate.foreign.images import read_rgb
from driftline.curate.images.changes import kinds_of
from driftline.curate.metadata.columns import safe_id
from driftline.curate.release import Release
from driftline.curate.release.settings import ReleaseSettings
from driftline.stream_builder.builders.release import from_release


@pytest.fixture(scope="module")
def release(journey: Path) -> Release:
    return Release.open(journey)


@pytest.fixture(scope="module")
def exports(release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("exports")
    for name in EXPORTS:
        assert EXPORTS[name](release, out / name)["images"] == len(release.table)
    return {name: out / name for name in EXPORTS}


Samples = dict[str, tuple[int, int, str]]


def samples_of(table: Any) -> Samples:
    """id → (bucket, label, sha256)."""
    columns = (table[c].to_pylist() for c in ("id", "bucket", "label", "sha256"))
    return {i: (b, y, s) for i, b, y, s in zip(*columns, strict=True)}


def truth(release: Release) -> Samples:
    return samples_of(release.table)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_webdataset(folder: Path) -> Samples:
    import webdataset

    samples = {}
    for shard in sorted((folder / "shards").glob("*.tar")):
        for sample in webdataset.WebDataset(str(shard), shardshuffle=False):
            bucket = int(shard.name[7:9])
            image = sample["jpg"] if "jpg" in sample else sample["png"]
            samples[sample["__key__"].rpartition("/")[2]] = (bucket, int(sample["cls"]), sha(image))
    return samples


def read_huggingface(folder: Path) -> Samples:
    import pyarrow.parquet as pq

    rows = [row for path in sorted(folder.glob("data/*.parquet")) for row in pq.read_table(path).to_pylist()]
    return {row["id"]: (row["bucket"], row["label"], sha(row["image"]["bytes"])) for row in rows}


def read_clear(folder: Path) -> Samples:
    samples = {}
    for listing in (folder / "training_folder" / "filelists").glob("*/all.txt"):
        for line in listing.read_text().splitlines():
            path, label = line.split()
            samples[Path(path).stem] = (int(listing.parent.name), int(label), sha((folder / path).read_bytes()))
    return samples


def read_imagefolder(folder: Path) -> Samples:
    from torchvision.datasets import ImageFolder

    return {
        Path(path).stem: (int(bucket.name[7:]), label, sha(Path(path).read_bytes()))
        for bucket in folder.glob("bucket_*")
        for path, label in ImageFolder(str(bucket)).samples
    }


def read_urls(folder: Path) -> Samples:
    import pyarrow.parquet as pq

    return samples_of(pq.read_table(folder / "urls.parquet"))


@pytest.mark.parametrize("name", EXPORTS)
def test_every_registered_format_has_every_image(name: str, exports: dict[str, Path], release: Release) -> None:
    reader = f"read_{name.replace('-', '_')}"
    if reader not in globals():
        pytest.fail(f"The export {name!r} has no reader. Expected {reader}(folder) → Samples in {__name__}.")
    assert globals()[reader](exports[name]) == truth(release)


def test_webdataset_loads_in_hugging_face_datasets(exports, release, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    shards = exports["webdataset"] / "shards"
    names = [f"bucket_{b['index']:02d}" for b in release.buckets]
    files = {name: [str(p) for p in sorted(shards.glob(f"{name}-*.tar"))] for name in names}
    loaded = datasets.load_dataset("webdataset", data_files=files, cache_dir=str(tmp_path))
    found = {}
    for name, split in loaded.items():
        for sample in split.cast_column("jpg", datasets.Image(decode=False)):
            assert sample["json"]["class"] == release.classes[sample["cls"]]
            if sample["jpg"] is not None:
                found[sample["json"]["id"]] = (int(name[7:]), sample["cls"], sha(sample["jpg"]["bytes"]))
    members = dict(zip(*(release.table[c].to_pylist() for c in ("id", "member")), strict=True))
    assert found == {id_: facts for id_, facts in truth(release).items() if members[id_].endswith(".jpg")}
    card = (exports["webdataset"] / "README.md").read_text(encoding="utf-8")
    assert "`datasets` reads these tars if all images have one format" in card, "others, such as PNG, are missing"


def test_the_hub_reads_the_header_of_the_card(exports: dict[str, Path]) -> None:
    from huggingface_hub import DatasetCard

    header = DatasetCard.load(exports["huggingface"] / "README.md").data.to_dict()
    assert [c["split"] for c in header["configs"][0]["data_files"]] == [f"bucket_{b:02d}" for b in range(1, 11)]


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value


def avalanche_clear(exports: dict[str, Path], **settings: Any) -> Any:
    """Avalanche's own CLEAR loader on the exported folder."""
    from avalanche.benchmarks.classic import CLEAR

    return CLEAR(data_name="clear10_neurips2021", dataset_root=exports["clear"], **settings)


@pytest.mark.usefixtures("home")
def test_clear_layout_loads_in_avalanche_with_the_right_images_in_every_experience(exports, release):
    wanted = truth(release)
    benchmark = avalanche_clear(
        exports, evaluation_protocol="streaming", train_transform=np.asarray, eval_transform=np.asarray
    )
    assert len(benchmark.train_stream) == len(release.buckets)
    by_pixels = {}
    for id_, data in release.images():
        with Image.open(io.BytesIO(data)) as image:
            by_pixels[np.asarray(image.convert("RGB")).tobytes()] = id_
    for bucket, experience in zip(release.buckets, benchmark.train_stream, strict=True):
        found = {by_pixels[np.asarray(x).tobytes()]: int(y) for x, y, *_ in experience.dataset}
        assert found == {i: y for i, (b, y, _) in wanted.items() if b == bucket["index"]}


@pytest.mark.usefixtures("home")
def test_clear_layout_features_load_in_avalanche(exports: dict[str, Path], release: Release) -> None:
    benchmark = avalanche_clear(exports, evaluation_protocol="streaming", feature_type="moco_b0")
    vectors = np.asarray(release.features("clip"), np.float32)
    bucket_of = release.table["bucket"].to_numpy()
    labels = release.table["label"].to_numpy()
    for bucket, experience in zip(release.buckets, benchmark.train_stream, strict=True):
        rows = np.flatnonzero(bucket_of == bucket["index"])
        x = np.stack([np.asarray(sample[0]) for sample in experience.dataset])
        y = [int(sample[1]) for sample in experience.dataset]
        assert (x == vectors[rows]).all()
        assert y == labels[rows].tolist()


@pytest.mark.usefixtures("home")
def test_clear_layout_iid_splits_are_the_releases_own(exports: dict[str, Path], release: Release) -> None:
    for seed in (0, 4):
        benchmark = avalanche_clear(exports, evaluation_protocol="iid", seed=seed)
        sides = np.array(release.table[f"split_{seed}"].to_pylist())
        bucket_of = release.table["bucket"].to_numpy()
        for bucket, train, test in zip(release.buckets, benchmark.train_stream, benchmark.test_stream, strict=True):
            rows = bucket_of == bucket["index"]
            assert len(train.dataset) == int((rows & (sides == "train")).sum())
            assert len(test.dataset) == int((rows & (sides == "test")).sum())


def test_urls_has_no_image_bytes(exports: dict[str, Path]) -> None:
    assert not list(exports["urls"].rglob("*.tar")) + list(exports["urls"].rglob("*.jpg"))


FEATURES = ["train", "test", "validation", "clip.b32", "7"]
ODD = ["0", "10", "2", "__x", "test", "train", "v1.0", "validation"]  # classes, as text is sorted


def unusual(i: int) -> tuple[bytes, str]:
    """A picture that is turned, transparent, of 16 bits or of several frames; i: its shade."""
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    tone = np.zeros((32, 48, 3), np.uint8)
    tone[:, :24] = (200, 10 * i, 20)
    picture = Image.fromarray(tone)
    kind = ("JPEG", "PNG", "TIFF", "GIF")[i % 4]
    if kind == "PNG":
        picture.putalpha(Image.new("L", picture.size, 40))
    elif kind == "TIFF":
        picture = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    more: dict[str, Any] = {"save_all": True, "append_images": [picture.rotate(180)]} if kind == "GIF" else {}
    picture.save(buffer, kind, **({"exif": exif} if kind == "JPEG" else more))
    return buffer.getvalue(), {"JPEG": "jpg", "PNG": "png", "TIFF": "tif", "GIF": "gif"}[kind]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Path]:
    """Cases 19, 20 and 21: classes, photos, buckets and features named as splits, numbers or with dots; pictures of all
    kinds."""
    out = tmp_path_factory.mktemp("odd")
    rows = [
        {"id": name if (b, c) == (1, "0") else f"{name}-{b}-{ODD.index(c)}", "bucket": b, "concept": c, "user": None,
         "uploaded": 0, "licence": None, "sha256": f"{b}{c}{name}", "width": 1, "height": 1}
        for b in (1, 2) for c in ODD for name in ("train", "test", "validation", "dev")
    ]  # fmt: skip
    images = {row["id"]: unusual(i % 20) for i, row in enumerate(rows)}
    buckets = [{"index": b, "name": name, "start": None, "end": None} for b, name in ((1, "train"), (2, "test"))]
    vectors, rules = np.zeros((len(rows), 2), np.float16), ReleaseSettings(name="train", splits=1)
    release = release_of(
        rows, images, vectors, buckets, ODD, PROVENANCE, out / "release", rules, strip=True, features=FEATURES
    )
    for name in ("webdataset", "huggingface", "imagefolder"):
        EXPORTS[name](release, out / name)
    return release, out


Shown = dict[str, tuple[int, str, bytes]]


def shown_in_release(odd: tuple[Release, Path]) -> Shown:
    """id → (bucket, class, pixels as driftline reads them)."""
    rows = {row["id"]: row for row in odd[0].table.to_pylist()}
    return {
        id_: (rows[id_]["bucket"], rows[id_]["class"], read_rgb(data, id_).tobytes()) for id_, data in odd[0].images()
    }


def shown_by_datasets(odd: tuple[Release, Path], **more: bool) -> Shown:
    import datasets

    loaded = datasets.load_dataset(str(odd[1] / "huggingface"), cache_dir=str(odd[1] / "cache"), **more)
    return {
        row["id"]: (int(name[7:]), split.features["label"].names[row["label"]], row["image"].convert("RGB").tobytes())
        for name, split in loaded.items() for row in split
    }  # fmt: skip


def shown_by_datasets_that_stream(odd: tuple[Release, Path]) -> Shown:
    return shown_by_datasets(odd, streaming=True)


def shown_by_image_folders_in_datasets(odd: tuple[Release, Path]) -> Shown:
    import datasets

    loaded = datasets.load_dataset(str(odd[1] / "imagefolder"), cache_dir=str(odd[1] / "cache"))
    paths = {name: split.cast_column("image", datasets.Image(decode=False)) for name, split in loaded.items()}
    return {
        Path(path["image"]["path"]).stem: (
            int(name[7:]), unquote(split.features["label"].names[row["label"]]), row["image"].convert("RGB").tobytes(),
        )
        for name, split in loaded.items() for row, path in zip(split, paths[name], strict=True)
    }  # fmt: skip


def shown_by_torchvision(odd: tuple[Release, Path]) -> Shown:
    from torchvision.datasets import ImageFolder

    folders = {b: ImageFolder(str(odd[1] / "imagefolder" / f"bucket_{b:02d}")) for b in (1, 2)}
    return {
        Path(path).stem: (b, unquote(folder.classes[label]), folder.loader(path).tobytes())
        for b, folder in folders.items() for path, label in folder.samples
    }  # fmt: skip


def shown_by_webdataset(odd: tuple[Release, Path]) -> Shown:
    import webdataset

    return {
        sample["__key__"]: (sample["json"]["bucket"], ODD[sample["cls"]], sample[kind].tobytes())
        for tar in sorted((odd[1] / "webdataset" / "shards").glob("*.tar"))
        for sample in webdataset.WebDataset(str(tar), shardshuffle=False).decode("pil")
        for kind in ("jpg", "png") if kind in sample
    }  # fmt: skip


def shown_by_croissant(odd: tuple[Release, Path], layout: str = "huggingface") -> Shown:
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=str(odd[1] / layout / "croissant.json"))
    return {
        text(record["images/id"]): (
            int(record["images/bucket"]), text(record["images/class"]), record["images/image"].convert("RGB").tobytes(),
        )
        for record in dataset.records("images")
    }  # fmt: skip


def shown_by_croissant_of_tars(odd: tuple[Release, Path]) -> Shown:
    return shown_by_croissant(odd, "webdataset")


READERS = [shown_by_datasets, shown_by_datasets_that_stream, shown_by_image_folders_in_datasets, shown_by_torchvision,
           shown_by_webdataset, shown_by_croissant, shown_by_croissant_of_tars]  # fmt: skip


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.usefixtures("croissant_cache")
def test_every_library_shows_the_same_upright_pictures_by_the_same_names(read, odd, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert read(odd) == shown_in_release(odd)


def test_a_stream_of_the_release_has_the_same_pixels(odd: tuple[Release, Path]) -> None:
    stream = from_release(odd[0], "pixels:32")
    pixels = {
        str(id_): x for step in stream.steps for split in step.splits.values()
        for id_, x in zip(split.ids, np.asarray(split.x), strict=True)
    }  # fmt: skip
    id_, data = next((i, d) for i, d in odd[0].images() if i == "train")
    upright = np.asarray(ImageOps.fit(read_rgb(data, id_), (32, 32), Image.Resampling.BICUBIC))
    assert np.array_equal(pixels["train"], upright)
    assert upright[0, :, 0].min() > 150 > upright[-1, :, 0].max(), "what was left is on top"


@pytest.mark.parametrize("name", FEATURES)
def test_features_of_any_name_are_read_by_it(name: str, odd: tuple[Release, Path]) -> None:
    assert odd[0].facts["features"] == FEATURES
    assert len(from_release(odd[0], name).steps) == 2


@pytest.mark.parametrize("text", ["22.05", "v1.0/1.1", ".hidden", "a..b", "1.tar.gz", "."])
def test_case_20_an_id_has_no_dot(text: str) -> None:
    assert "." not in safe_id(text)


def test_the_record_says_what_was_done_and_members_have_one_dot(odd: tuple[Release, Path]) -> None:
    kinds = {kind for record in odd[0].table["changes"].to_pylist() for kind in kinds_of(record)}
    assert kinds == {"orientation", "depth", "alpha", "frames"}
    assert all(member.count(".") == 1 for member in odd[0].table["member"].to_pylist())
    card = (odd[0].path / "README.md").read_text()
    assert "by kind: orientation 16, depth 16, alpha 16, frames 16." in card
