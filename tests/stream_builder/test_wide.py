"""Streams of pixels: more numbers a sample than samples; and streams too large for exact distances."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.measures import shift_distance
from driftline.stream_builder.measures.shift_distance import affordable, measure, principal
from driftline.stream_builder.stream import Split, Step, Stream

MEASURE = """
import re, sys, time
sys.argv = ["driftline", "stream", "measure", sys.argv[1], "--json"]
from driftline.pipelines.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())  # ru_maxrss counts the parent before exec
print(time.process_time(), int(peak[1]) / 1024, file=sys.stderr)
"""


def pixels(n: int, edge: int, steps: int = 3) -> Stream:
    """Images of noise around a mean that moves, n a step."""
    made = []
    for t in range(steps):
        splits = {}
        for name in ("train", "test"):
            y = np.arange(n, dtype=np.int64) % 3
            noise = rng_for(0, "pixels", t, name).normal(0, 20, (n, edge, edge, 3))
            x = np.clip(90 + 20 * t + 10 * y[:, None, None, None] + noise, 0, 255).astype(np.uint8)
            splits[name] = Split(x, y, np.array([f"{t}-{name}-{i}" for i in range(n)]))
        made.append(Step(t, str(t), splits))
    return Stream("pixels", made, list("abc"), sha256="pixels")


@pytest.mark.parametrize("shape", [(60, 200), (200, 60)])
def test_the_axes_are_those_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    x = rng_for(1).normal(size=shape).astype(np.float32) * np.linspace(1, 3, shape[1], dtype=np.float32)
    mean, axes = principal(x, 20, 1.0)
    _, _, rows = np.linalg.svd(x.astype(np.float64) - x.mean(0, dtype=np.float64))
    assert axes.shape == (shape[1], 20)
    assert mean == pytest.approx(x.mean(0), abs=1e-5)
    assert np.abs((axes * rows[:20].T).sum(0)) == pytest.approx(np.ones(20), abs=1e-4)


def test_no_axis_is_beyond_the_rank() -> None:
    low = rng_for(2).normal(size=(30, 4)) @ rng_for(3).normal(size=(4, 100))
    assert principal(low.astype(np.float32), 20, 1.0)[1].shape == (100, 4)


def test_pixels_give_the_distances_of_their_covariance() -> None:
    stream = pixels(24, 8)
    found = measure(stream)
    trains, test = [s["train"] for s in stream.steps], stream.steps[-1]["test"]
    flat = [np.asarray(s.x, np.float64).reshape(len(s), -1) for s in (*trains, test)]
    every = np.concatenate(flat[:-1])
    values, vectors = np.linalg.eigh(np.cov(every.T))
    order = np.argsort(-values)
    k = int(np.searchsorted(np.cumsum(values[order]) / values.sum(), 0.95)) + 1
    *points, target = ((f - every.mean(0)) @ vectors[:, order[: min(k, 100)]] for f in flat)
    expected = [shift_distance.wasserstein2(p, target) for p in points]
    assert found["covariate"] == pytest.approx([e / expected[-1] for e in expected[:-1]], rel=1e-3)


def test_147_samples_of_12288_pixels_take_seconds_and_300_megabytes(tmp_path: Path) -> None:
    pixels(49, 64).save(tmp_path / "stream")
    pixels(4, 8).save(tmp_path / "small")  # the first process compiles modules, which takes memory of its own
    subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path / "small")], capture_output=True, timeout=300)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "stream")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["covariate"]) == 2
    seconds, megabytes = map(float, done.stderr.split()[-2:])
    assert seconds < 20, "CPU time; two seconds on an idle machine"
    assert megabytes < 300


def test_a_large_stream_is_sampled_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = pixels(60, 4)
    assert affordable(stream) == (stream, None)
    monkeypatch.setattr(shift_distance, "MOST", 30)
    monkeypatch.setattr(shift_distance, "FEWEST", 30)
    thinned, most = affordable(stream)
    assert most == 30
    assert [len(step["train"]) for step in thinned.steps] == [30] * 3
    assert len(thinned.steps[-1]["test"]) == 30
    exact, sampled = measure(stream)["covariate"], measure(thinned)["covariate"]
    assert sampled == pytest.approx(exact, rel=0.2)

    from typer.testing import CliRunner

    from driftline.pipelines.cli import app

    stream.save(tmp_path / "stream")
    run = CliRunner().invoke
    said = json.loads(run(app, ["stream", "measure", str(tmp_path / "stream"), "--json"]).stdout)
    assert said["samples_of_each_split"] == 30
    assert said["covariate"] == pytest.approx(sampled)
    assert "--exact uses all" in run(app, ["stream", "measure", str(tmp_path / "stream")]).stdout
    full = json.loads(run(app, ["stream", "measure", str(tmp_path / "stream"), "--exact", "--json"]).stdout)
    assert "samples_of_each_split" not in full
    assert full["covariate"] == pytest.approx(exact)


def test_axes_of_a_matrix_that_is_large_both_ways_are_those_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = pixels(60, 8)
    whole = measure(stream)["covariate"]
    monkeypatch.setattr(shift_distance, "LARGEST", 120)
    assert measure(stream)["covariate"] == pytest.approx(whole, rel=0.1)
