"""Embedding: unit vectors in a convention others read, resumable to the byte, and clear about wrong models."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curate.concepts import Concept, queries
from curate.embed import embed, parts
from curate.encoders import EncoderSpec
from curate.encoders.clip import Clip
from curate.ground.errors import BadConfig, BadInput, MissingFile
from curate.ground.files import sha256_bytes
from curate.ground.progress import Journal
from curate.ground.rng import rng_for
from curate.ground.workers import Engine
from curate.shards import shard_path, write_tar
from pipelines.demo.draw import jpeg, photo

MODEL = str(files("pipelines") / "demo" / "model")
SPEC = EncoderSpec(MODEL)
QUIET = Journal(quiet=True)


@pytest.fixture(scope="module")
def encoder() -> Clip:
    return Clip(MODEL)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """Two shards of rendered cars and buses, with the index rows that embed reads."""
    folder = tmp_path_factory.mktemp("shards")
    rows = []
    for shard in range(2):
        members = []
        for i in range(9):
            thing = ("car", "bus")[i % 2]
            name, data = f"{thing}-{shard}-{i}", jpeg(photo([thing], 0.1, rng_for(shard, i)))
            members.append((f"{name}.jpg", data))
            rows.append(
                {"id": name, "shard": shard, "member": f"{name}.jpg", "sha256": sha256_bytes(data), "bucket": i % 3}
            )
        write_tar(shard_path(folder, shard), members)
    return folder, pa.Table.from_pylist(rows)


def test_vectors_are_unit_float16_in_clip_retrievals_convention(
    encoder: Clip, images: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    counts = embed(*images, SPEC, tmp_path, QUIET, batch=4)
    assert counts == {"": 18}
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == [
        "img_emb_00000.npy", "img_emb_00001.npy", "metadata_00000.parquet", "metadata_00001.parquet",
    ]  # fmt: skip
    for table, vectors in parts(tmp_path):
        assert vectors.dtype == np.float16
        assert vectors.shape == (len(table), encoder.width)
        assert np.allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=2e-3)


def test_the_text_finds_its_pictures(encoder: Clip, images: tuple[Path, pa.Table], tmp_path: Path) -> None:
    embed(*images, SPEC, tmp_path, QUIET)
    texts = queries(encoder, [Concept(n, (f"a photo of a {n}", n), n, n) for n in ("car", "bus")])
    assert np.allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-6)
    right = [
        id_.startswith(("car", "bus")[int(np.argmax(texts @ v.astype(np.float32)))])
        for table, vectors in parts(tmp_path) for id_, v in zip(table["id"].to_pylist(), vectors, strict=True)
    ]  # fmt: skip
    assert np.mean(right) > 0.85


def test_a_killed_run_embeds_only_what_is_missing_and_ends_in_the_same_bytes(
    encoder: Clip, images: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    embed(*images, SPEC, tmp_path / "whole", QUIET, batch=4)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    (tmp_path / "killed" / "metadata" / "metadata_00001.parquet").unlink()  # killed between vectors and their mark
    kept = tmp_path / "killed" / "img_emb" / "img_emb_00000.npy"
    before = kept.stat().st_mtime_ns
    embed(*images, SPEC, tmp_path / "killed", QUIET, batch=4, engine=Engine(workers=2))
    assert kept.stat().st_mtime_ns == before
    for path in (p for p in (tmp_path / "whole").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "killed" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_open_clip_opens_the_model_by_itself() -> None:
    import open_clip

    model, _, _ = open_clip.create_model_and_transforms(f"local-dir:{MODEL}")
    assert model.visual.image_size in (64, (64, 64))


def test_an_unknown_model_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(BadConfig, match=r"'RN5O'.*Nearest names: .*RN50"):
        Clip("RN5O", "openai")


def test_an_unknown_tag_is_answered_with_the_models_tags() -> None:
    with pytest.raises(BadConfig, match=r"one of RN50's tags: .*openai"):
        Clip("RN50", "openay")


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    shutil.copytree(MODEL, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["width"] = 32
    (tmp_path / "model" / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="do not fit the model"):
        Clip(str(tmp_path / "model"))


def test_weights_that_cannot_be_reached_say_how_to_place_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # the environment is read at import only
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MissingFile, match=r"cannot be reached[\s\S]*set embed\.weights to its path"):
        Clip("ViT-B-32", "laion2b_s34b_b79k")


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"no open_clip_config\.json"):
        Clip(str(tmp_path))


def test_cuda_is_refused_where_there_is_none() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(BadConfig, match="No CUDA device"):
        Clip(MODEL, device="cuda")
