"""States of interrupted runs: data only. A prepared file runs nothing."""

import pickle
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driftline.curate.core.errors import BadInput
from driftline.curate.core.seeding import rng_for
from driftline.eval import checkpoint
from driftline.eval.checkpoint import Checkpoint
from driftline.eval.learners import LEARNERS


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)


def kept(tmp_path: Path, *values: Any) -> list[Any]:
    Checkpoint(tmp_path / "state.pt").keep(*values)
    return Checkpoint(tmp_path / "state.pt").load(*values)


def test_plain_data_arrays_and_generators_come_back(tmp_path: Path) -> None:
    shared = [1]
    value = {
        "a": shared, "b": (shared, None, 2.5, float("inf"), True), 3: np.arange(4, dtype=np.int16), "t": {"x", "y"},
        "texts": np.array([["ab", "c"]]), "scalar": np.float32(0.1), "count": Counter("aab"),
        "half": torch.ones(2).bfloat16(), "empty": np.zeros((0, 3), np.float32), "bits": np.array([True, False]),
    }  # fmt: skip
    (again,) = kept(tmp_path, value)
    assert again["a"] is again["b"][0]
    assert again["b"][1:] == (None, 2.5, float("inf"), True)
    assert again[3].dtype == np.int16
    assert again[3].tolist() == [0, 1, 2, 3]
    assert again["texts"].tolist() == [["ab", "c"]]
    assert again["scalar"] == np.float32(0.1)
    assert again["count"] == Counter("aab")
    assert again["half"].dtype is torch.bfloat16
    assert again["empty"].shape == (0, 3)
    assert (again["t"], again["bits"].tolist()) == ({"x", "y"}, [True, False])


def test_two_names_of_one_generator_stay_one(tmp_path: Path) -> None:
    rng = rng_for(0, "a")
    rng.integers(9)
    first, second = kept(tmp_path, rng, rng)
    assert first is second
    assert first.integers(10**9) == rng.integers(10**9)


def test_the_memory_format_of_a_tensor_stays(tmp_path: Path) -> None:
    images = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    (again,) = kept(tmp_path, images)
    assert again.stride() == images.stride()
    assert torch.equal(again, images)


def test_an_array_in_fortran_order_comes_back_as_it_was(tmp_path: Path) -> None:
    square = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    (again,) = kept(tmp_path, square)
    assert again.tolist() == square.tolist()
    assert again.strides == square.strides


@pytest.mark.parametrize("value", [defaultdict(list), lambda: 0, Path("a"), np.array([{}], object), open])
def test_what_is_no_data_is_not_kept_and_said_once(tmp_path: Path, value: Any) -> None:
    place = Checkpoint(tmp_path / "state.pt")
    with pytest.warns(UserWarning, match="No state is kept, an interrupted run starts again"):
        place.keep(value)
    place.keep(value)
    assert not list(tmp_path.iterdir())


def prepared(path: Path, name: str) -> None:
    """A state file that somebody wrote by hand: a call of `name`, as module:attribute."""
    torch.save(None, path)
    with zipfile.ZipFile(path) as whole:
        members = {member: whole.read(member) for member in whole.namelist()}
    called = b"\x80\x02c" + name.replace(":", "\n").encode() + b"\n)R."
    with zipfile.ZipFile(path, "w") as forged:
        for member, data in members.items():
            forged.writestr(member, called if member.endswith("/data.pkl") else data)


@pytest.mark.parametrize(
    "name",
    [
        "os:system", "subprocess:Popen", "builtins:eval", "pathlib:Path", "driftline.eval.learners.texts:Llm",
        "torch.nn:Linear", "driftline.eval.memory.correction_ledger:Ledger", "driftline.eval.learners.texts:os.system",
        "driftline.eval.learners.texts:ThreadPoolExecutor", "trap:Name",
        "driftline.eval.rows:Path",
    ],
)  # fmt: skip
def test_no_object_of_another_kind_is_made(tmp_path: Path, name: str) -> None:
    prepared(tmp_path / "state.pt", name)
    with pytest.raises(BadInput, match=r"no stored state.*Delete it; the run starts again"):
        Checkpoint(tmp_path / "state.pt").load({})


@pytest.mark.parametrize("values", [[], [1], [{}, {}], 3])
def test_a_state_of_another_kind_of_run_is_named(tmp_path: Path, values: Any) -> None:
    torch.save(values, tmp_path / "state.pt")
    with pytest.raises(BadInput, match=r"state\.pt is no stored state"):
        Checkpoint(tmp_path / "state.pt").load({})


@pytest.mark.parametrize("data", [b"", b"PK", pickle.dumps({"a": 1}), b"\xff" * 64])
def test_damaged_files_are_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "state.pt").write_bytes(data)
    with pytest.raises(BadInput, match="no stored state"):
        Checkpoint(tmp_path / "state.pt").load({})


def test_addresses_and_files_are_never_those_of_a_state(tmp_path: Path) -> None:
    """A prepared state of a language model's run must not send texts and keys elsewhere."""
    theirs, ours = (LEARNERS["er"](weights=name) for name in ("/etc/passwd", ""))
    Checkpoint(tmp_path / "state.pt", kinds={"driftline.eval.learners.er.Er": type(theirs)}).keep(theirs)
    again = Checkpoint(tmp_path / "state.pt").load(ours)
    assert again[0].weights == ""


@dataclass
class Mine:
    """Somebody's own object."""

    numbers: Any


def test_objects_that_the_run_has_itself_come_back(tmp_path: Path) -> None:
    place = Checkpoint(tmp_path / "state.pt")
    assert place.load([Mine(None)]) is None
    place.keep([Mine(np.arange(3))])
    again = place.load([Mine(None)])
    assert again[0][0].numbers.tolist() == [0, 1, 2]


def test_networks_get_their_weights_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained, fresh = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    place = Checkpoint(tmp_path / "state.pt")
    place.load([fresh])
    place.keep([trained, trained])
    again = place.load([fresh])
    assert torch.equal(again[0][0].weight, trained.weight)
    assert again[0][0] is again[0][1]
