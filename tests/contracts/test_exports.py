"""Every export: written, read back with the format's own library, same ids, labels and bytes."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from curate.export import EXPORTS
from curate.release import Release


@pytest.fixture(scope="module")
def release(journey: Path) -> Release:
    return Release.open(journey)


@pytest.fixture(scope="module")
def exports(release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("exports")
    for name in EXPORTS:
        counts = EXPORTS[name](release, out / name)
        assert counts["images"] == len(release.table)
    return {name: out / name for name in EXPORTS}


def truth(release: Release) -> dict[str, tuple[int, int, str]]:
    """id → (bucket, label, sha256)."""
    columns = (release.table[c].to_pylist() for c in ("id", "bucket", "label", "sha256"))
    return {i: (b, y, s) for i, b, y, s in zip(*columns, strict=True)}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_webdataset_loads_in_webdataset(exports: dict[str, Path], release: Release) -> None:
    import webdataset

    found = {}
    for shard in sorted((exports["webdataset"] / "shards").glob("*.tar")):
        for sample in webdataset.WebDataset(str(shard), shardshuffle=False):
            bucket = int(shard.name[7:9])
            found[sample["__key__"].rpartition("/")[2]] = (bucket, int(sample["cls"]), sha(sample["jpg"]))
    assert found == truth(release)


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


def test_the_cards_head_is_what_the_hub_reads(hub: Path, release: Release) -> None:
    from huggingface_hub import DatasetCard

    told = DatasetCard.load(hub / "README.md").data.to_dict()
    assert sum(s["num_examples"] for s in told["dataset_info"]["splits"]) == len(release.table)
    assert [c["split"] for c in told["configs"][0]["data_files"]] == [f"bucket_{b:02d}" for b in range(1, 11)]


def test_croissant_is_valid_and_its_records_are_the_releases(
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


def test_croissant_of_the_tars_joins_every_image_with_its_row(
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


def test_imagefolder_loads_in_torchvision(exports: dict[str, Path], release: Release) -> None:
    from torchvision.datasets import ImageFolder

    found = {}
    for bucket in release.buckets:
        folder = ImageFolder(str(exports["imagefolder"] / f"bucket_{bucket['index']:02d}"))
        assert folder.classes == release.classes
        for path, label in folder.samples:
            found[Path(path).stem] = (bucket["index"], label, sha(Path(path).read_bytes()))
    assert found == truth(release)


def avalanche_clear(exports: dict[str, Path], **how: Any) -> Any:
    """Avalanche's own CLEAR loader on the exported folder."""
    from avalanche.benchmarks.classic import CLEAR

    return CLEAR(data_name="clear10_neurips2021", dataset_root=exports["clear"], **how)


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
        here = np.flatnonzero(bucket_of == bucket["index"])
        x = np.stack([np.asarray(sample[0]) for sample in experience.dataset])
        y = [int(sample[1]) for sample in experience.dataset]
        assert (x == vectors[here]).all()
        assert y == labels[here].tolist()


def test_clear_layout_iid_splits_are_the_releases_own(exports: dict[str, Path], release: Release) -> None:
    for seed in (0, 4):
        benchmark = avalanche_clear(exports, evaluation_protocol="iid", seed=seed)
        sides = np.array(release.table[f"split_{seed}"].to_pylist())
        bucket_of = release.table["bucket"].to_numpy()
        for bucket, train, test in zip(release.buckets, benchmark.train_stream, benchmark.test_stream, strict=True):
            here = bucket_of == bucket["index"]
            assert len(train.dataset) == int((here & (sides == "train")).sum())
            assert len(test.dataset) == int((here & (sides == "test")).sum())


def test_urls_holds_everything_but_the_bytes(exports: dict[str, Path], release: Release) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(exports["urls"] / "urls.parquet")
    columns = (table[c].to_pylist() for c in ("id", "bucket", "label", "sha256"))
    assert {i: (b, y, s) for i, b, y, s in zip(*columns, strict=True)} == truth(release)
    assert not list(exports["urls"].rglob("*.tar")) + list(exports["urls"].rglob("*.jpg"))


def test_every_export_is_read_back_by_a_test() -> None:
    assert set(EXPORTS) == {"webdataset", "huggingface", "clear", "imagefolder", "urls"}
