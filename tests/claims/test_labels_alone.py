"""What is reached without looking at a sample: the shift S, and who may be called first beside it."""

import re
from typing import Any

import numpy as np
import pytest
from support.helpers import correlated, drifting

from driftline.curate.core.seeding import rng_for
from driftline.eval.protocol import Document
from driftline.eval.protocols.near_future.protocol import retained
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.pages import linked
from driftline.eval.reporting.protocols import Lead, page_of
from driftline.eval.reporting.report import results_of
from driftline.eval.rows import Row
from driftline.eval.run import evaluate
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.measures.label_correlation import LIMIT, blind_curve
from driftline.stream_builder.stream import Split, Step, Stream

SEEING = ["overadapt", "nearest-mean", "slda", "acm"]


def labels_in_runs(n: int, length: float, seed: int, classes: int = 8) -> np.ndarray:
    rng = rng_for(seed, "runs of labels", n, length)
    lengths = rng.geometric(1 / length, size=1 + int(4 * n / length))
    return np.repeat(rng.integers(0, classes, len(lengths)), lengths)[:n]


def noise(seed: int, n: int = 1200) -> Stream:
    """Inputs that tell nothing; labels in runs of 20."""
    rng, y = rng_for(seed, "noise"), labels_in_runs(n, 20, seed)
    steps = []
    for t in range(4):
        of, time = y[t * n // 4 : (t + 1) * n // 4], np.arange(t * n // 4, (t + 1) * n // 4)
        drawn = rng.integers(0, 8, 60)
        splits = {
            "train": Split(rng.normal(size=(len(of), 8)).astype(np.float32), of, time=time * 600),
            "test": Split(rng.normal(size=(60, 8)).astype(np.float32), drawn, time=np.full(60, time[0] * 600)),
        }
        steps.append(Step(t, str(t), splits))
    return Stream("noise", steps, [str(c) for c in range(8)], sha256=f"noise {seed}")


def lead_of(stream: Stream, protocol: str, learners: list[str], out: Any) -> tuple[Lead, Document]:
    """The first sentence of the page, and the page."""
    evaluate(stream, protocol, learners, [0], out=out)
    (document,) = linked(results_of([out], [stream]))
    (part,) = parts(document)
    full = shown(part, stream)
    lead = page_of(full).lead(full)
    assert lead is not None
    assert full["answer"].sentences[0] == lead.sentence
    return lead, full


def nobody_is_first(seed: int, out: Any) -> bool:
    lead, full = lead_of(noise(seed), "near-future", ["blind", *SEEING], out)
    assert not any(" is first " in text or " has the best " in text for text in full["answer"].sentences)
    return not lead.above and lead.sentence.startswith("No learner is shown to be above labels alone: blind ")


@pytest.mark.parametrize("seed", [0, 1])
def test_in_pure_noise_nobody_is_first(seed: int, tmp_path: Any) -> None:
    assert nobody_is_first(seed, tmp_path)


@pytest.mark.proof("statistics")
def test_in_ten_streams_of_pure_noise_nobody_is_first(tmp_path: Any) -> None:
    assert sum(nobody_is_first(seed, tmp_path / str(seed)) for seed in range(10, 20)) == 10


def test_who_is_above_labels_alone_is_named_beside_them(tmp_path: Any) -> None:
    lead, full = lead_of(correlated(), "near-future", SEEING, tmp_path)
    assert set(lead.above) <= set(SEEING)
    best = max(full["results"], key=lambda r: r["scores"]["near_future"]["mean"])
    assert lead.sentence.startswith(f"<strong>{best['label']}</strong> is right on ")
    for name in ("blind", "chance", "the most frequent class"):
        assert re.search(rf"{name} \d+\.\d %", lead.sentence), name
    assert full["ageing_table"] is None, "its models learn after every batch and are tested on the past"
    assert full["first"].title == "Online, near-future and retention"
    assert "labels alone" in {row[0] for row in full["first"].picture.rows}


def test_two_seeds_that_cannot_be_tested_hide_no_learner_above_a_constant_answer(tmp_path: Any) -> None:
    """No p is known then, and all learners are one group."""
    stream = drifting(steps=1, classes=6, n=240, noise=1.0)
    evaluate(stream, "ocrr", ["substrate", "nearest-mean", "majority"], [0, 1], {"held_out": 2}, out=tmp_path)
    (document,) = linked(results_of([tmp_path], [stream]))
    (part,) = parts(document)
    found = page_of(part).lead(part)
    assert found is not None
    assert set(found.above) == {"substrate", "nearest-mean"}
    assert "majority" not in found.sentence


def test_in_ocrr_a_constant_answer_is_named(tmp_path: Any) -> None:
    stream = noise(0)
    lead, full = lead_of(stream, "ocrr", ["static-linear", "substrate", "majority"], tmp_path)
    assert not lead.above
    assert "above a constant answer: one answer for all samples " in lead.sentence
    last, others = stream.steps[-1]["test"].y, np.concatenate([s["test"].y for s in stream.steps[:-1]])
    best = max(min(np.mean(last == c), np.mean(others == c)) for c in range(8))
    assert f"one answer for all samples {100 * best:.1f} %" in lead.sentence
    assert full["first"].picture.columns[1:3] == ["novel", "original"]


@pytest.mark.parametrize(("length", "n"), [(1, 1200), (5, 3000), (20, 3000), (20, 20_000)])
def test_at_the_suggested_shift_labels_alone_do_not_help(length: int, n: int) -> None:
    """Two samples S + 1 apart have one label by their run with probability (1 − 1 / length) ** (S + 1)."""
    for seed in range(2 if n > 5000 else 4):
        curve = blind_curve(labels_in_runs(n, length, seed))
        assert curve.suggested is not None
        assert (1 - 1 / length) ** (curve.suggested + 1) < 2 * LIMIT
        assert curve.suggested <= (0 if length == 1 else 30 * length)


def test_what_is_not_shown_is_said_to_be_so() -> None:
    short, long = blind_curve(labels_in_runs(1200, 1, 0)), blind_curve(labels_in_runs(20_000, 1, 0))
    assert "are not shown to help, nor shown not to: " in short.text(short.suggested)
    assert "are shown not to help: " in long.text(long.suggested)
    runs = blind_curve(labels_in_runs(1200, 20, 0))
    assert runs.text(2).startswith("At S = 2, labels alone help: ")
    assert f"chance {100 * runs.chance:.1f} %." in runs.text(2)


def test_retention_is_that_of_the_last_model_on_a_growing_test() -> None:
    rows = [Row("retention/0", 10, 9, learned_to=0), Row("retention/0", 10, 4, learned_to=1)]
    rows.append(Row("retention/1", 30, 24, learned_to=1))
    assert retained(rows) == {0: 0.4, 1: 0.7}
    assert retained([]) == {}
