"""Every registered encoder: repeatable unit vectors of the declared width; what it cannot read, it refuses."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import ENCODERS, Encoder, EncoderSpec, Vectors

TEXTS = ["a car", "a bus on a road"]
Model = tuple[str, str | None]  # model, weights


def clip(folder: Path) -> Model:
    return str(files("driftline.pipelines") / "demo" / "model"), None


def table(folder: Path) -> Model:
    write_json(folder / "texts.json", TEXTS)
    np.save(folder / "texts.npy", rng_for(0, "table").normal(size=(len(TEXTS), 6)))
    return str(folder), None


def ngrams(folder: Path) -> Model:
    return "64", None


def backbone(folder: Path) -> Model:
    import timm
    import torch

    torch.manual_seed(0)
    torch.save(timm.create_model("resnet10t", num_classes=0).state_dict(), folder / "weights.pt")
    return "resnet10t", str(folder / "weights.pt")


MODELS: dict[str, Callable[[Path], Model]] = {"clip": clip, "table": table, "ngrams": ngrams, "backbone": backbone}
ELSEWHERE = {"sentence"}  # needs a model of another library: eval/test_texts.py
READS = {
    "clip": (True, True),
    "table": (False, True),
    "ngrams": (False, True),
    "backbone": (True, False),
}  # others: both


def loaded(name: str, folder: Path) -> Encoder:
    """An encoder on the CPU; the model is `any`, or what the function of its name in MODELS writes."""
    model, weights = MODELS[name](folder) if name in MODELS else ("any", None)
    kind: type[Encoder] = ENCODERS[name]
    try:
        return kind(model, weights, "cpu", "float32", False)  # type: ignore[call-arg]
    except DriftlineError as error:
        pytest.fail(f"The encoder {name!r} needs a model: {error} Expected a function that writes one in MODELS.")


def vectors_of_images(encoder: Encoder, n: int = 2) -> Vectors | None:
    """(n, D); None if it does not read images."""
    pixels = rng_for(0, "images").integers(0, 256, (n, 40, 48, 3)).astype(np.uint8)
    try:
        prepared = [encoder.prepare(Image.fromarray(x)) for x in pixels]
    except BadConfig:
        return None
    import torch

    return encoder.images(torch.stack(prepared))


def vectors_of_texts(encoder: Encoder, texts: list[str]) -> Vectors | None:
    """(N, D); None if it does not read texts."""
    try:
        return encoder.texts(texts)
    except BadConfig:
        return None


@pytest.mark.parametrize("name", [name for name in ENCODERS if name not in ELSEWHERE])
class TestEncoder:
    def test_vectors_are_unit_float32_of_its_width(self, name: str, tmp_path: Path) -> None:
        encoder = loaded(name, tmp_path)
        found = [vectors_of_images(encoder), vectors_of_texts(encoder, TEXTS)]
        reads = tuple(vectors is not None for vectors in found)
        assert any(reads)
        assert reads == READS.get(name, reads)
        for vectors in found:
            if vectors is not None:
                assert (vectors.shape, vectors.dtype) == ((2, encoder.width), np.float32)
                assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
                assert not np.allclose(vectors[0], vectors[1], atol=1e-4), "different inputs"

    def test_an_encoder_loaded_again_gives_the_same_vectors_and_fingerprint(self, name: str, tmp_path: Path) -> None:
        one, two = loaded(name, tmp_path), loaded(name, tmp_path)
        assert one.fingerprint == two.fingerprint != ""
        for a, b in (
            (vectors_of_images(one), vectors_of_images(two)),
            (vectors_of_texts(one, TEXTS), vectors_of_texts(two, TEXTS)),
        ):
            assert (a is None and b is None) or np.array_equal(a, b)

    def test_a_text_has_one_vector_in_every_batch(self, name: str, tmp_path: Path) -> None:
        encoder = loaded(name, tmp_path)
        both, last = vectors_of_texts(encoder, TEXTS), vectors_of_texts(encoder, TEXTS[1:])
        assert both is last is None or np.allclose(both[1:], last, atol=1e-5)
        assert encoder.truncated("short") == ""

    def test_is_named_in_a_run_file(self, name: str, tmp_path: Path) -> None:
        assert EncoderSpec(encoder=name, model="any").encoder == name
        assert ENCODERS.summary(name)
