"""A command that fails leaves no file where it was called, also no hidden one."""

from pathlib import Path

import pytest
from support.console import inside

FAILS = (
    "init out --preset nowhere",
    "plan nowhere",
    "run nowhere",
    "audit nowhere --out out",
    "release nowhere --format urls --out out",
    "stream from-arrays nowhere.npz --out out",
    "stream from-arrays broken.npz --out out",
    "stream from-wild-time broken.pkl --out out",
    "stream compose --base broken.npz --sequence A:0:0 --sizes 10,10 --out out",
    "eval nowhere --protocol clear-iid --learners er --out out",
    "eval broken.npz --protocol clear-iid --learners er --out out",
    "report nowhere --out out",
    "age broken.csv --out out",
    "submit nowhere --name me --out out.zip",
    "models train broken.csv --out out",
)


@pytest.mark.parametrize("command", FAILS)
def test_a_failing_command_leaves_nothing(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = [tmp_path / name for name in ("broken.npz", "broken.pkl", "broken.csv")]
    for path in given:
        path.write_bytes(bytes(16_384))
    assert inside(*command.split()).returncode not in (0, 3)
    assert sorted(tmp_path.rglob("*")) == sorted(given)
