"""Every registered export: all images, and read back with the library of the format, the same ids, labels and bytes."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from driftline.curate.export import EXPORTS
from driftline.curate.release import Release


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
            samples[sample["__key__"].rpartition("/")[2]] = (bucket, int(sample["cls"]), sha(sample["jpg"]))
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


def test_webdataset_loads_in_hugging_face_datasets(
    exports: dict[str, Path], release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    shards = exports["webdataset"] / "shards"
    names = [f"bucket_{b['index']:02d}" for b in release.buckets]
    files = {name: [str(p) for p in sorted(shards.glob(f"{name}-*.tar"))] for name in names}
    loaded = datasets.load_dataset("webdataset", data_files=files, cache_dir=str(tmp_path))
    found = {}
    for name, split in loaded.items():
        for sample in split.cast_column("jpg", datasets.Image(decode=False)):
            found[sample["json"]["id"]] = (int(name[7:]), sample["cls"], sha(sample["jpg"]["bytes"]))
            assert sample["json"]["class"] == release.classes[sample["cls"]]
    assert found == truth(release)


@pytest.fixture
def hub(exports: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    return exports["huggingface"]


@pytest.mark.parametrize("streaming", [False, True])
def test_parquet_loads_in_hugging_face_datasets_without_settings(
    hub: Path, release: Release, tmp_path: Path, streaming: bool
) -> None:
    import datasets

    loaded = datasets.load_dataset(str(hub), cache_dir=str(tmp_path / "cache"), streaming=streaming)
    assert set(loaded) == {f"bucket_{b['index']:02d}" for b in release.buckets}
    found = {}
    for name, split in loaded.items():
        assert isinstance(split.features["image"], datasets.Image)
        assert split.features["label"].names == release.classes
        for sample in split.cast_column("image", datasets.Image(decode=False)):
            found[sample["id"]] = (int(name[7:]), sample["label"], sha(sample["image"]["bytes"]))
    assert found == truth(release)
    first = next(iter(loaded["bucket_01"]))
    assert first["image"].size == (
        release.table["width"][0].as_py(),
        release.table["height"][0].as_py(),
    )


def test_the_hub_reads_the_header_of_the_card(hub: Path, release: Release) -> None:
    from huggingface_hub import DatasetCard

    header = DatasetCard.load(hub / "README.md").data.to_dict()
    assert sum(s["num_examples"] for s in header["dataset_info"]["splits"]) == len(release.table)
    assert [c["split"] for c in header["configs"][0]["data_files"]] == [f"bucket_{b:02d}" for b in range(1, 11)]


def test_croissant_is_valid_and_has_the_records_of_the_release(
    hub: Path, release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROISSANT_CACHE", str(tmp_path))
    import json

    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=str(hub / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors
    found = {}
    for record in dataset.records("images"):
        id_ = record["images/id"]
        image = record["images/image"]
        found[id_.decode() if isinstance(id_, bytes) else id_] = (
            int(record["images/bucket"]), int(record["images/label"]), image.size,
        )  # fmt: skip
    columns = (release.table[c].to_pylist() for c in ("id", "bucket", "label", "width", "height"))
    assert found == {i: (b, y, (w, h)) for i, b, y, w, h in zip(*columns, strict=True)}
    document = json.loads((hub / "croissant.json").read_text())
    for name in ("dataLimitations", "dataBiases", "personalSensitiveInformation", "dataUseCases"):
        assert len(document[f"rai:{name}"]) > 20
    sums = dict(reversed(line.split("  ")) for line in (hub / "SHA256SUMS").read_text().splitlines())
    for file in document["distribution"]:
        if file["@type"] == "cr:FileObject":
            assert sums[file["contentUrl"]] == file["sha256"]


def test_croissant_of_tars_joins_every_image_with_its_row(
    exports: dict[str, Path], release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROISSANT_CACHE", str(tmp_path))
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=str(exports["webdataset"] / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors

    def text(value: Any) -> str:
        return value.decode() if isinstance(value, bytes) else value

    found = {
        text(record["images/id"]): (
            int(record["images/bucket"]),
            text(record["images/class"]),
            record["images/image"].size,
        )
        for record in dataset.records("images")
    }
    columns = (release.table[c].to_pylist() for c in ("id", "bucket", "class", "width", "height"))
    assert found == {i: (b, c, (w, h)) for i, b, c, w, h in zip(*columns, strict=True)}


def test_imagefolder_has_the_classes_in_every_bucket(exports: dict[str, Path], release: Release) -> None:
    from torchvision.datasets import ImageFolder

    for bucket in release.buckets:
        assert ImageFolder(str(exports["imagefolder"] / f"bucket_{bucket['index']:02d}")).classes == release.classes


def avalanche_clear(exports: dict[str, Path], **settings: Any) -> Any:
    """Avalanche's own CLEAR loader on the exported folder."""
    from avalanche.benchmarks.classic import CLEAR

    return CLEAR(data_name="clear10_neurips2021", dataset_root=exports["clear"], **settings)


def test_clear_layout_loads_in_avalanche_with_the_right_images_in_every_experience(
    exports: dict[str, Path], release: Release
) -> None:
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
