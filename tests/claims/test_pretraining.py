"""Pre-training: what is a negative of an image is another image."""

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.seeding import rng_for
from driftline.curate.pretrain import Recipe, moco, small_clip
from driftline.curate.pretrain.moco import Moco
from driftline.curate.pretrain.pool import Photo, Pool
from driftline.curate.pretrain.small_clip import captioned, contrast, numbered
from driftline.curate.pretrain.train import ProcessGroup, Training

TINY = Recipe(
    "resnet10t", size=16, room=16, epochs=2, batch=8, queue=16, key_momentum=0.9, groups=2, precision="float32"
)


def images(n: int) -> np.ndarray:
    return rng_for(0, "images").integers(0, 256, (n, 16, 16, 3)).astype(np.uint8)


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Arguments and value of every loss that is computed."""
    seen: list[tuple[Any, ...]] = []
    plain = moco.info_nce

    def watched(*arguments: Any) -> Any:
        value = plain(*arguments)
        copies = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in arguments]
        seen.append((*copies, float(value.detach())))
        return value

    monkeypatch.setattr(moco, "info_nce", watched)
    return seen


def by_hand(q: Any, k: Any, queue: Any, temperature: float, of_q: list[int], of_queue: list[int]) -> float:
    """InfoNCE, an image at a time in float64; keys of an image's own views are left out."""
    q, k, queue = (np.asarray(x, np.float64) for x in (q, k, queue))
    values = []
    for i, image in enumerate(of_q):
        right = np.exp(q[i] @ k[i] / temperature)
        others = [key for key, of in zip(queue, of_queue, strict=True) if of != image]
        wrong = [np.exp(q[i] @ key / temperature) for key in others]
        assert wrong
        values.append(-np.log(right / (right + sum(wrong))))
    return float(np.mean(values))


class TestOwnKeysAreNoNegatives:
    @pytest.mark.parametrize(("n", "queue"), [(16, 16), (17, 8), (40, 13)])
    def test_the_loss_of_every_update_is_that_of_its_definition(self, n, queue, losses, monkeypatch):
        """Whose key is whose is recorded beside the training: by the images that it asks for, in their order."""
        asked: list[list[int]] = []
        plain = Training.images
        monkeypatch.setattr(Training, "images", lambda self, at: asked.append(at.tolist()) or plain(self, at))
        work = Training(TINY, Moco(TINY, queue, 0, "cpu"), images(n), "cpu", ProcessGroup(), 0)
        means = [work.epoch(epoch, lambda _: None) for epoch in range(TINY.epochs)]
        assert np.mean(means) == pytest.approx(np.mean([value for *_, value in losses]))
        fills = -(-queue // TINY.batch)
        owner, at, masked = [-1] * queue, 0, 0
        for number, batch in enumerate(asked):
            if number >= fills:
                q, k, keys, temperature, own, value = losses[number - fills]
                assert value == pytest.approx(by_hand(q, k, keys, temperature, batch, owner), rel=1e-4)
                masked += int(own.sum())
            for image in batch[:queue]:
                owner[at] = image
                at = (at + 1) % queue
        assert len(losses) == TINY.epochs * (n // TINY.batch)
        assert masked > 0

    def test_the_first_updates_have_none_although_the_queue_begins_with_their_keys(self, losses):
        work = Training(TINY, Moco(TINY, 16, 0, "cpu"), images(32), "cpu", ProcessGroup(), 0)
        work.epoch(0, lambda _: None)
        assert [int(own.sum()) for *_, own, _ in losses[:2]] == [8, 8]  # each image's own key was there

    def test_an_own_key_does_not_push_its_image_away(self) -> None:
        q = torch.nn.functional.normalize(torch.randn(3, 8), dim=1).requires_grad_()
        k = q.detach().clone()
        others = torch.nn.functional.normalize(torch.randn(5, 8), dim=1)
        own = torch.cat([torch.eye(3, dtype=torch.bool), torch.zeros(3, 5, dtype=torch.bool)], 1)
        masked = moco.info_nce(q, k, torch.cat([k, others]), 0.2, own)
        both = torch.cat([k, others])
        without = torch.stack(
            [
                moco.info_nce(q[i : i + 1], k[i : i + 1], both[~own[i]], 0.2, own[i : i + 1][:, ~own[i]])
                for i in range(3)
            ]
        ).mean()
        assert masked.item() == pytest.approx(without.item(), rel=1e-5)
        first, second = (torch.autograd.grad(loss, q, retain_graph=True)[0] for loss in (masked, without))
        assert torch.allclose(first, second, atol=1e-6)

    def test_a_queue_of_own_keys_only_is_refused(self) -> None:
        with pytest.raises(BadConfig, match="queue is 1.*at least 2 keys: an image's own key is no negative"):
            replace(TINY, queue=1)


class TestCopiesAreNoNegatives:
    def pool(self, place: Path, texts: list[str], copies: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
        """A run of photos with these titles, some of which have the pixels of another."""
        (place / "stages" / "03_fetch").mkdir(parents=True)
        (place / "stages" / "03_fetch" / "index.parquet").touch()
        data = []
        for i, x in enumerate(images(len(texts))):
            file = io.BytesIO()
            Image.fromarray(x.repeat(2, 0).repeat(2, 1)).save(file, "PNG")
            data.append(data[copies[i]] if i in copies else file.getvalue())
        photos = {str(i): Photo(str(i), None, f"{i}", 1_200_000_000) for i in range(len(texts))}
        pool = Pool(photos, lambda ids: ((id_, data[int(id_)]) for id_ in photos), Counter(), "left out")
        monkeypatch.setattr(small_clip, "open_pool", lambda *a, **k: pool)
        monkeypatch.setattr(small_clip, "_texts", lambda source: {str(i): text for i, text in enumerate(texts)})
        monkeypatch.setattr(small_clip, "FEWEST", 18)

    def test_of_a_photo_with_another_caption(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool(tmp_path, [f"thing {i}" for i in range(20)], {7: 2, 11: 2}, monkeypatch)
        made = captioned(tmp_path, 32)
        assert made.texts == [f"thing {i}" for i in range(20) if i not in (7, 11)]
        assert made.dropped == {"copy": 2}

    def test_texts_that_copies_take_away_do_not_count(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool(tmp_path, [f"thing {i}" for i in range(19)], {7: 2, 11: 2}, monkeypatch)
        with pytest.raises(BadInput, match="has 17 different captions.*at least 18"):
            captioned(tmp_path, 32)

    @pytest.mark.parametrize("keys", [["car", "bus", "car", "tram"], ["Red car", "bus", "red  car", "tram"]])
    def test_equal_words_are_one_text_for_a_small_clip(self, keys: list[str]) -> None:
        """Against the loss by its definition: the target of an image is shared equally by all texts like its own."""
        x = torch.nn.functional.normalize(torch.randn(4, 6), dim=1)
        y = torch.nn.functional.normalize(torch.randn(4, 6), dim=1)
        loss = float(contrast(x, y, torch.tensor(numbered(keys)), np.exp(1.0)))
        logits = np.exp(1.0) * (x @ y.T).numpy()
        same = [[0, 2], [1], [0, 2], [3]]
        values = []
        for table in (logits, logits.T):
            shares = table - np.log(np.exp(table).sum(1, keepdims=True))
            values += [-np.mean([shares[i, j] for j in same[i]]) for i in range(4)]
        assert loss == pytest.approx(np.mean(values), rel=1e-5)
