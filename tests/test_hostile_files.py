"""Files that travel never run code: a pickle in the place of each leaves no mark, and is named in one sentence."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import drifting, write_base
from support.traps import Trap

from driftline.curate.core.errors import DriftlineError, IntegrityError
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.stream import Stream

MARK = "mark"


def plain(path: Path, mark: Path) -> None:
    """A pickle."""
    path.write_bytes(pickle.dumps(Trap(mark)))


def checkpoint(path: Path, mark: Path) -> None:
    """What torch.save makes."""
    torch.save({"state_dict": Trap(mark)}, path)


def array(path: Path, mark: Path) -> None:
    """A .npy file of Python objects."""
    np.save(path, np.array([Trap(mark)], object), allow_pickle=True)


def arrays(path: Path, mark: Path) -> None:
    """An .npz file of Python objects."""
    np.savez(path, x=np.array([Trap(mark)], object), y=np.zeros(1, np.int64), train_x=np.array([Trap(mark)], object))


def stream_of(part: str) -> Callable[[Path, Callable[[Path, Path], None]], Any]:
    def opened(folder: Path, write: Callable[[Path, Path], None]) -> Any:
        drifting().save(folder / "S")
        write(folder / "S" / "step_00001" / f"train_{part}.npy", folder / MARK)
        return Stream.load(folder / "S")

    return opened


def from_arrays(folder: Path, write: Callable[[Path, Path], None]) -> Any:
    from driftline.stream_builder.builders.arrays import from_arrays as build

    write(folder / "a.npz", folder / MARK)
    return build(folder / "a.npz")


def dataset(folder: Path, write: Callable[[Path, Path], None]) -> Any:
    from driftline.stream_builder.datasets import open_dataset

    write(folder / "base.npz", folder / MARK)
    return open_dataset(str(folder / "base.npz"))


def draws(folder: Path, write: Callable[[Path, Path], None]) -> Any:
    from driftline.stream_builder.datasets import open_dataset

    write_base(folder / "base")
    write(folder / "base" / "toy_draws.npz", folder / MARK)
    return open_dataset(str(folder / "base"))


def vectors(folder: Path, write: Callable[[Path, Path], None]) -> Any:
    from driftline.curate.retrieval.vector_store import vector_file

    write(folder / "a.npy", folder / MARK)
    return vector_file(folder / "a.npy")


def weights(name: str) -> Callable[[Path, Callable[[Path, Path], None]], Any]:
    def opened(folder: Path, write: Callable[[Path, Path], None]) -> Any:
        from driftline.eval.engine.deep import Deep

        write(folder / name, folder / MARK)
        return Deep.new("resnet18", 2, (), rng_for(0), "cpu", False, str(folder / name))

    return opened


def backbone(name: str) -> Callable[[Path, Callable[[Path, Path], None]], Any]:
    def opened(folder: Path, write: Callable[[Path, Path], None]) -> Any:
        from driftline.curate.encoders.backbone import Backbone

        write(folder / name, folder / MARK)
        return Backbone("resnet18", str(folder / name), "cpu")

    return opened


def fit(folder: Path, write: Callable[[Path, Path], None]) -> Any:
    from driftline.eval.finetuning.fit_cache import Store

    place = Store(folder).place("abc")
    place.mkdir(parents=True)
    about = '{"format": 1, "accuracy": 1, "best_epoch": 0, "curve": [1], "steps": 1, "seconds": 1, "hyper": {"lr": 1}}'
    (place / "fit.json").write_text(about)
    write(place / "best.safetensors", folder / MARK)
    return Store(folder).get("abc")


def submission(folder: Path, write: Callable[[Path, Path], None]) -> Any:
    from driftline.eval.leaderboard.submission import opened

    write(folder / "raw", folder / MARK)
    with zipfile.ZipFile(folder / "s.zip", "w") as file:
        file.write(folder / "raw", "manifest.json")
    return opened(folder / "s.zip")


CASES = [
    *((stream_of(part), write) for part in ("x", "y", "ids", "time") for write in (array, plain)),
    *((opener, write) for opener in (from_arrays, dataset, draws) for write in (arrays, plain)),
    *((vectors, write) for write in (array, plain)),
    *((weights(name), write) for name in ("w.pt", "w.pth", "w.safetensors") for write in (checkpoint, plain)),
    *((backbone(name), write) for name in ("w.pt", "w.pth.tar", "w.safetensors") for write in (checkpoint, plain)),
    (fit, plain),
    (submission, plain),
]


@pytest.mark.parametrize(("opened", "write"), CASES, ids=[f"{o.__qualname__}-{w.__name__}" for o, w in CASES])
def test_nothing_runs(opened: Any, write: Callable[[Path, Path], None], tmp_path: Path) -> None:
    with pytest.raises(DriftlineError) as caught:
        opened(tmp_path, write)
    assert not (tmp_path / MARK).exists()
    assert str(tmp_path) in str(caught.value) or opened is submission


def test_the_features_of_a_release(tmp_path: Path) -> None:
    from driftline.curate.release import Release

    (tmp_path / "features").mkdir()
    array(tmp_path / "features" / "clip.npy", tmp_path / MARK)
    release = object.__new__(Release)
    vars(release).update(path=tmp_path, facts={"features": {"clip": {}}}, table=[])
    with pytest.raises(IntegrityError, match=r"clip\.npy cannot be read as an array"):
        release.features("clip")
    assert not (tmp_path / MARK).exists()


def test_the_state_of_an_interrupted_pre_training(tmp_path: Path) -> None:
    from driftline.curate.pretrain.train import _resume

    checkpoint(tmp_path / "state.pt", tmp_path / MARK)
    with pytest.raises(DriftlineError, match=r"state\.pt"):
        _resume(tmp_path / "state.pt", "key", type("Training", (), {"device": "cpu"}))  # type: ignore[arg-type]
    assert not (tmp_path / MARK).exists()
