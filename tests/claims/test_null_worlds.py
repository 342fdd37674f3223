"""Where nothing differs, nobody is called best, fastest or significant: on the page, on the terminal, in JSON.

Learners are copies of one guesser that is right in as many cases, on others; labels are random and nothing drifts. All
seeds were chosen before the results were seen. Where learners do differ, the same sentences say so.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import correlated, drifting, few_of
from support.worlds import null_world

from driftline.curate.core.seeding import rng_for
from driftline.eval.protocol import Document
from driftline.eval.protocols.near_future.protocol import retained
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.exports import scores_text
from driftline.eval.reporting.pages import linked
from driftline.eval.reporting.protocols import Lead, page_of
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import Row
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import plain
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.measures.label_correlation import blind_curve
from driftline.stream_builder.stream import Split, Step, Stream

CROWN = re.compile(
    r"has the best|is the most accurate|is ahead by|Models age|age on this stream|ages (?:least|fastest)"
)
WORLDS = 12


def document_of(learners: list[str], seed: int, folder: Path) -> dict[str, Any]:
    stream = null_world(seed)
    evaluate(stream, "clear-iid", [f"support.worlds:Guess({own})" for own in learners], [0, 1, 2], out=folder / "runs")
    (document,) = results_of([folder / "runs"], [stream])
    return document


def crowns(document: dict[str, Any]) -> list[str]:
    found = shown(parts(linked([document])[0])[0], None)["answer"].texts()
    return CROWN.findall(" ".join([found["headline"], *found["sentences"], *found["may_conclude"]]))


@pytest.mark.proof("statistics")
@pytest.mark.parametrize("skill", [0.7, 1 / 3])
def test_of_equal_learners_none_is_crowned(skill: float, tmp_path: Path) -> None:
    """At most one world in twenty has a crown: of 12, more than two once in 50 choices of seeds if the rate were 5 %,
    and in 98 of 100 if it were one half. A page has four sentences that may crown, tested at 5 % each or less."""
    crowned = [
        crowns(document_of([f"name={name}, skill={skill}" for name in "abc"], seed, tmp_path / str(seed)))
        for seed in range(WORLDS)
    ]
    assert sum(map(bool, crowned)) <= 2, crowned


def test_of_unequal_learners_the_first_is_named(tmp_path: Path) -> None:
    document = document_of(["name=a, skill=0.9", "name=b, skill=0.6", "name=c, skill=0.9, loses=0.2"], 0, tmp_path)
    assert "is the most accurate" in crowns(document)


def test_page_terminal_and_json_of_a_null_world_have_no_crown(tmp_path: Path) -> None:
    document = document_of(["name=a", "name=b", "name=c"], 0, tmp_path)
    page = write([document], tmp_path / "out").read_text()
    for text in (page, scores_text(document), json.dumps(plain(document))):
        assert not CROWN.search(re.sub("<[^>]+>", "", text))
    assert "best" not in scores_text(document)
    assert "do not differ measurably" in re.sub("<[^>]+>", "", page)


# ---- what is reached without looking at a sample: the shift S, and who may be called first beside it


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
    assert full["answer"].sentences[0] == lead.sentence
    return lead, full


@pytest.mark.parametrize("seed", few_of(range(10), [0, 1], "statistics"))
def test_in_pure_noise_nobody_is_first(seed: int, tmp_path: Path) -> None:
    lead, full = lead_of(noise(seed), "near-future", ["blind", *SEEING], tmp_path)
    assert not any(" is first " in text or " has the best " in text for text in full["answer"].sentences)
    assert not lead.above
    assert lead.sentence.startswith("No learner is shown to be above labels alone: blind ")


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


def test_what_is_not_shown_is_said_to_be_so() -> None:
    short, long = blind_curve(labels_in_runs(1200, 1, 0)), blind_curve(labels_in_runs(20_000, 1, 0))
    assert "may or may not help: " in short.text(short.suggested)
    assert "labels alone do not help: " in long.text(long.suggested)
    runs = blind_curve(labels_in_runs(1200, 20, 0))
    assert runs.text(2).startswith("At S = 2, labels alone help: ")
    assert f"chance {100 * runs.chance:.1f} %." in runs.text(2)


def test_retention_is_that_of_the_last_model_on_a_growing_test() -> None:
    rows = [Row("retention/0", 10, 9, learned_to=0), Row("retention/0", 10, 4, learned_to=1)]
    rows.append(Row("retention/1", 30, 24, learned_to=1))
    assert retained(rows) == {0: 0.4, 1: 0.7}
    assert retained([]) == {}
