"""examples/table_2.py: visits end when their time is over, and the next one goes on; a done cell keeps no weights."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import console
from support.helpers import example, write_base

from driftline.curate.core.atomic_io import read_json
from driftline.stream_builder.stream import Split, Step, Stream


@pytest.mark.proof("paper")
def test_visits_finish_a_table_and_leave_a_small_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, asked = example("table_2"), []

    def here(*words: object, seconds: float | None = None) -> None:
        """The command; stopped by the clock of the visit, as a process would be."""
        asked.append([str(word) for word in words])
        if seconds == 0:
            raise subprocess.TimeoutExpired("driftline", 0)
        done = console.driftline(*asked[-1])
        assert done.returncode == 0, done.stderr

    monkeypatch.setattr(table, "driftline", here)
    write_base(tmp_path / "base")
    words: list[Any] = [
        "--base", tmp_path / "base", "--out", tmp_path / "out", "--device", "cpu", "--workers", 1,
        "--networks", "conv-1", "--sequences", "C:L", "C:R", "--learners", "baseline", "ft",
        "--set", "epochs=1", "--compose", "--sizes 20,10,10 --test-size 10",
    ]  # fmt: skip
    assert table.main([str(word) for word in (*words, "--minutes", 0)]) == table.UNFINISHED
    assert not (tmp_path / "out" / "runs" / "cells.json").exists()
    assert table.main([str(word) for word in (*words, "--minutes", 9)]) == 0

    runs = tmp_path / "out" / "runs"
    assert read_json(runs / "cells.json") == ["conv-1 C:L", "conv-1 C:R"]
    assert [words[0] for words in asked] == ["stream", "eval", "eval", "stream", "eval", "report"]
    assert not list((runs / "fits").rglob("*.safetensors"))
    fits = list((runs / "fits").rglob("fit.json"))
    assert len(fits) == 24  # eight of the history, which both sequences have, and eight of each last step
    assert sum(path.stat().st_size for path in (runs / "fits").rglob("*") if path.is_file()) < 2500 * len(fits)
    assert (tmp_path / "out" / "page" / "index.html").is_file()


def test_means_of_fields_are_those_of_their_pixels() -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)
    step = Step(0, "0", {"train": Split(x, np.zeros(3, np.int64))})
    (made,) = example("table_2").field_means(Stream("images", [step], ["a"]), 4).steps
    assert made["train"].x.shape == (3, 4 * 4 * 3)
    field = x[1, 2:4, 6:8].astype(np.float64)  # the second row's last one
    np.testing.assert_allclose(made["train"].x[1, 3 * 7 : 3 * 8], field.mean((0, 1)) / 255, atol=5e-4)


def test_the_table_has_all_methods_of_the_paper() -> None:
    assert {"sft", "sft-linear", "sft-exponential", "st-1", "jst-b", "oracle"} < set(example("table_2").learners())
    assert len(example("table_2").learners()) == 20
