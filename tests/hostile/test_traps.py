"""In the place of each file of each reader: code in a pickle, and a header of petabytes. Neither is run or made."""

import io
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile.fuzz import READERS, judged, sound_input
from support.traps import Trap

HUGE = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**6)}


def array(objects: Trap | None) -> bytes:
    """A .npy file of Python objects, or with a header of four petabytes."""
    sink = io.BytesIO()
    if objects is None:
        np.lib.format.write_array_header_1_0(sink, HUGE)
    else:
        np.save(sink, np.array([objects], object), allow_pickle=True)
    return sink.getvalue()


def traps(name: str, sound: bytes, mark: Path) -> Iterator[bytes]:
    """What may be in the place of a file."""
    yield pickle.dumps(Trap(mark))
    if name.endswith(".npy"):
        yield from (array(Trap(mark)), array(None))
    if name.endswith((".pt", ".safetensors")):
        sink = io.BytesIO()
        torch.save({"state_dict": Trap(mark)}, sink)
        yield sink.getvalue()
    if name.endswith(".npz"):
        with zipfile.ZipFile(io.BytesIO(sound)) as file:
            members = file.namelist()
        for objects in (Trap(mark), None):
            sink = io.BytesIO()
            with zipfile.ZipFile(sink, "w") as file:
                for member in members:
                    file.writestr(member, array(objects))
            yield sink.getvalue()


def put(path: Path, data: bytes) -> None:
    """A new file; the old one may be a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize("name", READERS)
def test_nothing_runs_and_nothing_takes_memory_or_time(name: str, tmp_path: Path) -> None:
    folder, mark, content = tmp_path / "input", tmp_path / "mark", sound_input(name)
    for path, data in content.items():
        put(folder / path, data)
    sound = READERS[name].read(folder)
    for path, data in content.items():
        for trap in traps(path.name, data, mark):
            put(folder / path, trap)
            outcome, problem = judged(name, folder, sound)
            assert outcome in ("accepted", "refused"), (path, problem)
            assert not mark.exists(), path
        put(folder / path, data)


def test_the_state_of_an_interrupted_pre_training(tmp_path: Path) -> None:
    from driftline.curate.pretrain.train import _resume

    torch.save({"state_dict": Trap(tmp_path / "mark")}, tmp_path / "state.pt")
    with pytest.raises(pickle.UnpicklingError):  # the user's own file: the code in it is not run
        _resume(tmp_path / "state.pt", "key", type("Training", (), {"device": "cpu"}))  # type: ignore[arg-type]
    assert not (tmp_path / "mark").exists()
