"""Pre-training: views as in torchvision, the loss by definition, interruptions, several processes, features."""

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from support.console import python

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig, MissingFile
from driftline.curate.encoders import EncoderSpec
from driftline.curate.encoders.backbone import MEAN, STD, Backbone
from driftline.curate.pretrain import RECIPES, Recipe
from driftline.curate.pretrain.moco import Moco
from driftline.curate.pretrain.pool import ImageArray, gather
from driftline.curate.pretrain.train import STATE, WEIGHTS, ProcessGroup, Training, pretrain
from driftline.curate.pretrain.views import (
    ViewParameters,
    draw_views,
    hue_rotations,
    random_crops,
    render_views,
    resampling_matrices,
)

TINY = Recipe(
    "resnet10t", size=16, room=20, epochs=3, batch=16, lr=0.03, queue=32, key_momentum=0.9, groups=2,
    precision="float32",
)  # fmt: skip


def unchanged(n: int, room: int) -> ViewParameters:
    """Views of complete images as they are."""
    zero, one = np.zeros(n), np.ones(n)
    same = np.broadcast_to(np.eye(3), (n, 3, 3))
    return ViewParameters(zero, zero, one * room, one * room, flip=zero, sigma=zero, colours=same, contrast=one)


def photos(n: int = 48, seed: int = 0) -> np.ndarray:
    """Blobs of two colours and two shapes."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 20, 20, 3), np.uint8)
    for i in range(n):
        x[i] = rng.integers(0, 80, (1, 1, 3))
        low = rng.integers(2, 8)
        x[i, low : low + 8 + 4 * (i % 2), low : low + 8] = (220, 60, 40) if i % 2 else (40, 90, 220)
    return x


def pictures(n: int = 48) -> ImageArray:
    return ImageArray(photos(n), {}, f"blobs {n}")


class TestViews:
    def test_crop_and_resize_equal_pillow(self) -> None:
        x = np.random.default_rng(0).integers(0, 256, (1, 40, 40, 3), np.uint8)
        box = unchanged(1, 40)
        box = replace(box, left=np.array([4.0]), top=np.array([7.0]), width=np.array([30.0]), height=np.array([25.0]))
        got = render_views(torch.from_numpy(x).permute(0, 3, 1, 2).float(), box, 16)[0]
        got = (got * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]).permute(1, 2, 0).numpy()
        cut = Image.fromarray(x[0]).crop((4, 7, 34, 32)).resize((16, 16), Image.Resampling.BILINEAR)
        assert np.abs(255 * got - np.asarray(cut, np.float64)).max() < 1.5

    def test_a_flip_mirrors_the_image(self) -> None:
        x = 255 * torch.rand(1, 3, 20, 20)
        flipped = render_views(x, replace(unchanged(1, 20), flip=np.ones(1)), 16)
        assert torch.allclose(flipped, render_views(x.flip(3), unchanged(1, 20), 16), atol=1e-5)

    def test_blur_is_gaussian(self) -> None:
        x = np.zeros((31, 31), np.uint8)
        x[15, 15] = 255
        blurred = render_views(
            torch.from_numpy(np.stack([x] * 3))[None].float(), replace(unchanged(1, 31), sigma=np.array([2.0])), 31
        )[0, 0]
        blurred = blurred * STD[0] + MEAN[0]
        theirs = np.asarray(Image.fromarray(x).filter(ImageFilter.GaussianBlur(2.0)), np.float64) / 255
        assert float(blurred[15, 15]) == pytest.approx(1 / (2 * np.pi * 4), rel=0.02)
        assert np.abs(blurred.numpy() - theirs).max() < 0.012

    def test_crops_have_the_distribution_of_torchvision(self) -> None:
        from torchvision.transforms import RandomResizedCrop

        torch.manual_seed(0)
        image = torch.zeros(3, 200, 200)
        theirs = np.array([RandomResizedCrop.get_params(image, [0.2, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
        _, _, width, height = random_crops(4000, 200, np.random.default_rng(0))
        assert (width * height).mean() == pytest.approx((theirs[:, 2] * theirs[:, 3]).mean(), rel=0.02)
        assert (width / height).std() == pytest.approx((theirs[:, 3] / theirs[:, 2]).std(), rel=0.05)

    def test_a_hue_rotation_keeps_grey_and_has_an_inverse(self) -> None:
        there, back = hue_rotations(np.array([0.4]))[0], hue_rotations(np.array([-0.4]))[0]
        assert np.allclose(there @ back, np.eye(3), atol=1e-6)
        assert np.allclose(there @ np.ones(3), np.ones(3), atol=1e-4)

    def test_views_depend_on_the_generator_only(self) -> None:
        x = 255 * torch.rand(4, 3, 20, 20)
        one, two = (render_views(x, draw_views(4, 16, 20, np.random.default_rng(3)), 16) for _ in range(2))
        assert torch.equal(one, two)
        assert resampling_matrices(torch.zeros(1), torch.full((1,), 20.0), 16, 20).sum(2).allclose(torch.ones(1, 16))


class TestMoco:
    def test_the_key_encoder_is_a_moving_average_without_gradients(self) -> None:
        moco = Moco(TINY, 32, 0, "cpu")
        work = Training(TINY, moco, photos(), "cpu", ProcessGroup(), 0)
        before = [p.clone() for p in moco.key.parameters()]
        work.update(np.arange(16), 0, 0)
        for old, key, query in zip(before, moco.key.parameters(), moco.query.parameters(), strict=True):
            assert key.grad is None
            assert torch.allclose(key, 0.9 * old + 0.1 * query.detach(), atol=1e-6)

    def test_the_queue_drops_its_oldest_keys(self) -> None:
        moco = Moco(TINY, 32, 0, "cpu")
        for turn in range(3):
            moco.enqueue(torch.full((16, 128), float(turn)), torch.arange(16) + 16 * turn)
        assert moco.queue[:16].eq(2).all()
        assert moco.queue[16:].eq(1).all()
        assert moco.owner.tolist() == [*range(32, 48), *range(16, 32)]

    def test_groups_are_normalised_separately(self) -> None:
        moco = Moco(TINY, 32, 0, "cpu")
        moco.query.train()
        x = torch.rand(16, 3, 16, 16)
        with torch.no_grad():
            whole = moco._groups(moco.query, x)
            half = moco._groups(moco.query, torch.cat([x[:8], torch.rand(8, 3, 16, 16)]))
        assert torch.allclose(whole[:8], half[:8], atol=1e-5)


class TestTraining:
    def test_it_learns_the_content_of_the_images(self, tmp_path: Path) -> None:
        x, y = photos(64, 1), np.arange(64) % 2
        facts = pretrain(pictures(96), replace(TINY, epochs=6), tmp_path, device="cpu")
        assert facts["loss"][-1] < np.log(1 + facts["queue"])  # the loss of a random guess
        encoder = Backbone(TINY.network, str(tmp_path), "cpu")
        v = encoder.images(torch.stack([encoder.prepare(Image.fromarray(photo)) for photo in x]))
        assert (y[(v[32:] @ v[:32].T).argmax(1)] == y[32:]).mean() > 0.9

    def test_bfloat16_on_a_cpu_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(BadConfig, match="bfloat16 on a CPU.*Expected float32 or auto"):
            pretrain(pictures(), replace(TINY, precision="bfloat16"), tmp_path, device="cpu")
        assert not list(tmp_path.iterdir())

    @pytest.mark.proof("kills")
    def test_a_killed_training_continues_with_the_same_bytes(self, tmp_path, monkeypatch):
        pretrain(pictures(), TINY, tmp_path / "whole", device="cpu")
        plain_epoch = Training.epoch

        def dies(self: Any, number: int, tick: Any) -> float:
            if number == 2:
                raise KeyboardInterrupt
            return plain_epoch(self, number, tick)

        monkeypatch.setattr(Training, "epoch", dies)
        with pytest.raises(KeyboardInterrupt):
            pretrain(pictures(), TINY, tmp_path / "cut", device="cpu")
        assert (tmp_path / "cut" / STATE).is_file()
        done: list[int] = []
        monkeypatch.setattr(Training, "epoch", lambda self, n, tick: done.append(n) or plain_epoch(self, n, tick))
        pretrain(pictures(), TINY, tmp_path / "cut", device="cpu")
        assert done == [2]
        assert (tmp_path / "cut" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
        assert not (tmp_path / "cut" / STATE).exists()

    def test_a_finished_folder_is_not_changed_and_other_settings_are_refused(self, tmp_path, monkeypatch):
        recipe = replace(TINY, epochs=1)
        first = pretrain(pictures(), recipe, tmp_path, device="cpu")
        monkeypatch.setattr(Training, "epoch", lambda *a: pytest.fail("it trained again"))
        assert pretrain(pictures(), recipe, tmp_path, device="cpu")["key"] == first["key"]
        with pytest.raises(BadConfig, match="finished with other"):
            pretrain(pictures(), replace(recipe, lr=0.1), tmp_path, device="cpu")

    def test_fifty_images_are_too_few(self, tmp_path: Path) -> None:
        with pytest.raises(BadConfig, match="There are 50 images, the batch is 128"):
            pretrain(pictures(50), replace(RECIPES["small"], room=20, size=16), tmp_path, device="cpu")

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"epochs": 0}, "epochs is 0"),
            ({"size": 30}, "room 20"),
            ({"groups": 5}, "groups 5"),
            ({"batch": 0}, "batch"),
        ],
    )
    def test_an_impossible_recipe_is_refused(self, change: dict[str, int], what: str) -> None:
        with pytest.raises(BadConfig, match=what):
            replace(TINY, **change)

    @pytest.mark.proof("processes")
    def test_two_processes_end_with_one_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "in").mkdir()
        for i, x in enumerate(photos(64)):
            Image.fromarray(x).save(tmp_path / "in" / f"{i:02d}.png")
        script = (
            "import sys, numpy as np, torch\n"
            "torch.set_num_threads(1)\n"
            "from pathlib import Path\n"
            "from driftline.curate.pretrain import Recipe\n"
            "from driftline.curate.pretrain.pool import gather\n"
            "from driftline.curate.pretrain.train import ProcessGroup, Training, pretrain\n"
            f"recipe = Recipe(**{vars(replace(TINY, epochs=2))!r})\n"
            "kept = []\n"
            "begin = Training.__init__\n"
            "def remember(self, *a):\n    begin(self, *a)\n    kept.append(self)\n"
            "Training.__init__ = remember\n"
            "with ProcessGroup.join('cpu').first_then_others():\n"
            "    pictures = gather(Path('in'), 0, 20, Path('out'))\n"
            "pretrain(pictures, recipe, Path('out'), device='cpu')\n"
            "flat = torch.cat([p.detach().flatten() for p in kept[0].weights] + [kept[0].moco.queue.flatten()])\n"
            "np.save(f'rank{kept[0].group.rank}.npy', flat.numpy())\n"
        )
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
        for name, text in group.items():
            monkeypatch.setenv(name, text)
        codes = [f"import os; os.environ['RANK'] = '{rank}'\n{script}" for rank in range(2)]
        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(lambda code: python(code, tmp_path), codes))
        assert [one.returncode for one in ended] == [0, 0], ended
        one, two = (np.load(tmp_path / f"rank{rank}.npy") for rank in range(2))
        assert np.array_equal(one, two)
        assert read_json(tmp_path / "out" / "pretrain.json")["processes"] == 2

    def test_the_folder_is_an_encoder_with_the_size_of_the_training(self, tmp_path: Path) -> None:
        pretrain(pictures(), replace(TINY, epochs=1), tmp_path, device="cpu")
        encoder = EncoderSpec(model="resnet10t", weights=str(tmp_path), device="cpu", encoder="backbone").load()
        tensor = encoder.prepare(Image.fromarray(photos(1)[0]))
        assert tuple(tensor.shape[1:]) == (16, 16)
        assert encoder.images(torch.stack([tensor])).shape == (1, 512)
        with pytest.raises(BadConfig, match="holds a resnet10t"):
            EncoderSpec(model="resnet18", weights=str(tmp_path), device="cpu", encoder="backbone").load()


class TestGather:
    def test_dropped_files_of_a_folder_are_counted(self, tmp_path: Path) -> None:
        for name, x in zip("abc", photos(3), strict=True):
            Image.fromarray(x).save(tmp_path / f"{name}.png")
        (tmp_path / "copy.png").write_bytes((tmp_path / "a.png").read_bytes())
        (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff not a picture")
        found = gather(tmp_path, 0, 20, tmp_path / "out")
        assert found.x.shape == (3, 20, 20, 3)
        assert sum(found.dropped.values()) == 2
        assert found.dropped["copy"] == 1

    def test_decoded_images_are_not_decoded_again(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        Image.fromarray(photos(1)[0]).save(tmp_path / "in" / "a.png")
        first = gather(tmp_path / "in", 0, 20, tmp_path / "out")
        ticks: list[int] = []
        again = gather(tmp_path / "in", 0, 20, tmp_path / "out", ticks.append)
        assert not ticks
        assert again.sha256 == first.sha256

    def test_an_empty_folder_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match="holds no images"):
            gather(tmp_path, 0, 20, tmp_path / "out")
