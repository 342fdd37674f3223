"""Predictions: what a learner answered for each sample of each test, equal to the rows, compact, enough for scores."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.special import softmax
from support.helpers import drifting

from driftline.curate.core.errors import BadInput, IntegrityError
from driftline.eval import predictions, rows
from driftline.eval.leaderboard.repeating import rescored
from driftline.eval.learner import Learner, Task, best, sureness
from driftline.eval.learners.trained_heads import Nap
from driftline.eval.predictions import Tally, attached, numbered
from driftline.eval.rows import Row, Run
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("clear-iid", "nearest-mean", {}),
    ("clear-iid", "joint", {"epochs": 1}),
    ("clear-iid", "nearest-mean", {"splits": "seeded"}),
    ("clear-streaming", "nearest-mean", {}),
    ("near-future", "fc-only", {"batch": 20, "shift": 40, "also": "20"}),
    ("near-future", "blind", {"batch": 20, "shift": 40, "delay": 1}),
    ("seq-to-final", "ft", {"val_share": 0.2, "epochs": 2, "lrs": 0.001, "per_step": True}),
    ("ocrr", "substrate", {"every": 20}),
    ("ocrr", "online-linear", {"every": 20, "policy": "random_50"}),
    ("ocrr", "substrate", {"every": 20, "policy": "random_50+delayed:5", "mix": 0.5}),
    ("ocrr", "substrate", {"every": 20, "scenario": "within-class"}),
]


def made(protocol: str, learner: str, settings: dict[str, Any], out: Path | None = None) -> tuple[Stream, Run]:
    """A stream, and a run on it that is in memory only, or was read from a folder."""
    stream, kept = drifting(classes=6, n=120), []
    evaluate(stream, protocol, [learner], [1], settings, out=out, keep_run=kept.append)
    if out is None:
        return stream, kept[0]
    (folder,) = rows.folders([out])
    run = rows.load(folder)
    return stream, Run(run.about, attached(folder / predictions.FILE, folder / predictions.FILE, run.rows))


@pytest.mark.parametrize(("protocol", "learner", "settings"), CASES)
class TestEveryProtocol:
    def test_every_counted_sample_has_a_record(self, protocol, learner, settings, tmp_path):
        stream, run = made(protocol, learner, settings, tmp_path)
        whole = [split for step in numbered(stream).steps for _, split in sorted(step.splits.items(), reverse=True)]
        labels = dict(
            zip(np.concatenate([s.position for s in whole]), np.concatenate([s.y for s in whole]), strict=True)
        )
        for row in run.rows:
            if row.tested_on == "cost":
                assert row.answers is None
                continue
            assert len(row.answers) == row.n
            assert int((row.answers.label == row.answers.predicted).sum()) == row.n_correct
            assert [labels[position] for position in row.answers.sample] == row.answers.label.tolist()

    def test_rows_follow_from_answers_and_stream(self, protocol, learner, settings, tmp_path):
        stream, run = made(protocol, learner, settings, tmp_path)
        assert rescored(run, stream) == ""

    def test_another_stream_is_noticed(self, protocol: str, learner: str, settings: dict[str, Any]) -> None:
        stream, run = made(protocol, learner, settings)
        steps = [
            replace(step, splits={name: s.take(np.roll(np.arange(len(s)), 1)) for name, s in step.splits.items()})
            for step in stream.steps
        ]
        assert rescored(run, replace(stream, steps=steps))


def test_what_is_stored_is_what_was_answered(tmp_path: Path) -> None:
    memory, disk = (made("ocrr", "online-linear", CASES[8][2], out)[1] for out in (None, tmp_path))
    for one, two in zip(memory.rows, disk.rows, strict=True):
        assert rows.counted(one) == rows.counted(two)
        if one.answers is not None and two.answers is not None:
            assert np.array_equal(one.answers.predicted, two.answers.predicted)
    given = [row.answers.confidence for row in disk.rows if row.answers and row.answers.confidence is not None]
    assert given
    assert 0 <= np.nanmin(np.concatenate(given)) <= np.nanmax(np.concatenate(given)) <= 1


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming", "near-future"])
def test_a_record_takes_at_most_three_bytes(protocol: str, tmp_path: Path) -> None:
    """With answers and confidences at random; streaming tests a step's samples in the order of their times."""
    rng = np.random.default_rng(0)

    def split(n: int) -> Split:
        time = None if protocol == "near-future" else rng.integers(0, 10**6, n)
        return Split(rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 11, n), time=time)

    steps = [Step(t, str(t), {"train": split(600), "test": split(300)}) for t in range(5)]
    stream = Stream("random", steps, [str(c) for c in range(11)], sha256="random")
    settings = {"shift": 64} if protocol == "near-future" else {}
    evaluate(stream, protocol, [Sure()], [0], settings, out=tmp_path)
    (path,) = tmp_path.rglob(predictions.FILE)
    assert path.stat().st_size / pq.ParquetFile(path).metadata.num_rows <= 3


@dataclass
class Sure(Learner):
    """Answers and confidence as the setting says; no number: at random."""

    told: str = ""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.rng, self.task = rng, task

    def learn(self, x: Any, y: Any) -> None:
        pass

    def predict(self, x: Any) -> Any:
        sure = np.full(len(x), float(self.told)) if self.told else self.rng.random(len(x))
        return self.rng.integers(0, self.task.n_classes, len(x)), sure


class TestConfidence:
    @pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming", "near-future", "seq-to-final", "ocrr"])
    def test_every_protocol_records_it(self, protocol: str, tmp_path: Path) -> None:
        learner, settings = {
            "near-future": ("fc-only", {"batch": 20, "shift": 40}),
            "seq-to-final": ("ft", {"val_share": 0.2, "epochs": 2, "lrs": 0.001}),
            "ocrr": ("substrate", {"every": 20}),
        }.get(protocol, ("nap", {"epochs": 2}))
        _, run = made(protocol, learner, settings, tmp_path)
        tests = [row for row in run.rows if row.answers is not None and row.tested_on != "stream"]
        assert tests
        for row in tests:
            assert 0 <= row.answers.confidence.min() <= row.answers.confidence.max() <= 1

    def test_it_is_the_learners_own_to_a_step(self) -> None:
        stream, kept, learner = drifting(), [], Nap(epochs=3)
        evaluate(stream, "clear-iid", [learner], keep_run=kept.append)
        last = kept[0].rows[-1]
        x = stream.steps[-1]["test"].x
        assert np.array_equal(last.answers.predicted, learner.predict(x))
        shares = softmax(learner.scores(x), 1).max(1)
        assert np.abs(last.answers.confidence - shares).max() <= 0.5 / 255 + 1e-6

    @pytest.mark.parametrize("told", ["nan", "1.01", "-0.5", "inf"])
    def test_one_that_is_none_names_the_learner(self, told: str) -> None:
        found = evaluate(drifting(), "clear-iid", [Sure(told)])
        (skipped,) = found["skipped"]
        assert skipped["because"].startswith(f"Sure.predict gave the confidence {told}")
        assert "from 0 to 1" in skipped["because"]

    def test_scores_and_probabilities_give_the_same(self) -> None:
        """A learner that has answers of its own is asked for them."""

        class Asked(Nap):
            def predict(self, x: Any) -> Any:
                return super().predict(x), softmax(self.scores(x), 1).max(1)

        def confidences(learner: Nap) -> list[npt.NDArray[Any]]:
            kept: list[Any] = []
            evaluate(drifting(), "clear-iid", [learner], keep_run=kept.append)
            return [row.answers.confidence for row in kept[0].rows]

        for one, own in zip(confidences(Nap(epochs=3)), confidences(Asked(epochs=3)), strict=True):
            assert one.shape == (len(one),)
            assert one.dtype == np.float32
            assert np.array_equal(one, own)

    def test_scores_of_other_samples_name_the_learner(self) -> None:
        class Short(Nap):
            def scores(self, x: Any) -> Any:
                return np.zeros((len(x) - 1, 2), np.float32)

        (skipped,) = evaluate(drifting(), "clear-iid", [Short(epochs=1)])["skipped"]
        assert skipped["because"].startswith("Short.scores gave shape")

    def test_softmax_is_torchs(self) -> None:
        """The slow twin; equal scores are the first class."""
        for kind in (torch.float32, torch.bfloat16):
            scores = torch.randn(300, 11, generator=torch.Generator().manual_seed(0)).to(kind)
            shares = sureness(scores.float().numpy(), scores.argmax(1).numpy())
            assert np.allclose(shares, scores.double().softmax(1).max(1)[0].numpy(), atol=1e-6)

    def test_a_network_that_diverged_is_sure_of_nothing(self) -> None:
        scores = np.array([[np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0]], np.float32)
        assert best(scores).tolist() == [-1, 0, 0]
        assert sureness(scores, best(scores)).tolist() == [0, 0, 0.5]

    def test_a_score_that_is_nan_is_no_answer_and_is_counted(self, tmp_path: Path) -> None:
        class Lost(Nap):
            def scores(self, x: Any) -> Any:
                return np.where(np.arange(len(x))[:, None] % 4 == 0, np.nan, super().scores(x))

        (result,) = evaluate(drifting(), "clear-iid", [Lost(epochs=1)], out=tmp_path)["results"]
        assert result["no_answer"] == pytest.approx(0.25, abs=0.05)
        runs, wrong = predictions.find([tmp_path])  # as a report reads them
        share = np.mean(np.concatenate([row.answers.predicted for row in runs[0].rows if row.answers]) == -1)
        assert (wrong, share) == ([], pytest.approx(0.25, abs=0.05))

    @pytest.mark.parametrize("values", [[0.5, 2.0, 0.0, 0.0], ["a", "b", "c", "d"]])
    def test_others_are_refused(self, values: list[Any], tmp_path: Path) -> None:
        pq.write_table(records(confidence=pa.array(values)), tmp_path / "o.parquet")
        with pytest.raises(BadInput, match=r"column confidence of .*o\.parquet"):
            attached(tmp_path / "o.parquet", tmp_path / "o.parquet", [ROW])


def test_an_edited_file_is_named(tmp_path: Path) -> None:
    evaluate(drifting(), "clear-iid", ["nearest-mean", "nap"], settings={"epochs": 1}, out=tmp_path)
    edited, missing = sorted(tmp_path.rglob(predictions.FILE))
    table = pq.read_table(edited)
    pq.write_table(table.set_column(1, "sample", pa.array(table["sample"].to_numpy() + 1)), edited)
    missing.unlink()
    runs, wrong = predictions.find([tmp_path])
    assert [run.rows[0].answers for run in runs] == [None, None]
    assert f"{edited} was changed after it was written" in wrong[0]
    assert f"{missing} is missing" in wrong[1]


def test_a_protocol_of_its_own_splits_has_rows_without_records() -> None:
    tally = Tally("own")
    tally.add(None, np.array([0, 1]), np.array([0, 0]))
    row = tally.row()
    assert (row.n, row.n_correct, row.answers) == (2, 1, None)
    assert predictions.table([row]) is None


def records(**columns: Any) -> pa.Table:
    """Records of one row of four samples, three of them right."""
    plain = {"row": [0] * 4, "sample": [3, 4, 5, 6], "label": [0, 1, 0, 1], "predicted": [0, 1, 1, 1]}
    return pa.table(plain | columns)


ROW = Row("0", 4, 3, class_n=(2, 2), class_correct=(1, 2))


@pytest.mark.parametrize(
    ("table", "row", "message"),
    [
        (records(row=[0, 0, 0, 9]), ROW, "predictions of missing test results"),
        (records(row=[0, 0, -1, 0]), ROW, "other values than numbers from 0"),
        (records(row=[1, 0, 0, 0]), ROW, "missing test results, or not in their order"),
        (records(label=[0.0, 1.0, 0.0, float("nan")]), ROW, "column label .* numbers from 0"),
        (records(label=["a"] * 4), ROW, "column label .* numbers from 0"),
        (records(sample=[3, 4, 5, None]), ROW, "column sample .* numbers from 0"),
        (records(more=[0] * 4), ROW, "has the columns"),
        (records().drop_columns(["label"]), ROW, "has the columns"),
    ],
)
def test_records_that_are_not_those_of_the_rows(table: pa.Table, row: Row, message: str, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "o.parquet")
    with pytest.raises((BadInput, IntegrityError), match=message):
        attached(tmp_path / "o.parquet", tmp_path / "o.parquet", [row])


def test_a_file_of_a_few_bytes_with_millions_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "MOST", 1000)
    zeros = np.zeros(1_000_000, np.int32)
    pq.write_table(pa.table(dict.fromkeys(predictions.COLUMNS[:4], zeros)), tmp_path / "o")
    with pytest.raises(BadInput, match="1,000,000 records"):
        attached(tmp_path / "o", tmp_path / "o", [ROW])


def test_a_report_reads_each_file_of_a_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(drifting(), "clear-iid", ["nearest-mean", "random"], out=tmp_path)
    opened, real = [], Path.open
    monkeypatch.setattr(Path, "open", lambda path, *rest, **more: [opened.append(path), real(path, *rest, **more)][1])
    monkeypatch.setattr(pq, "ParquetFile", in_memory(pq.ParquetFile))
    runs, wrong = predictions.find([tmp_path])
    assert not wrong
    assert sorted(path.name for path in opened) == sorted(["run.json", "rows.parquet", predictions.FILE] * 2)
    first, second = ([row.answers for row in run.rows if row.answers is not None] for run in runs)
    assert all(a.sample is b.sample and a.label is b.label for a, b in zip(first, second, strict=True))


def in_memory(kind: Any) -> Any:
    """The reader; a path would be opened once more."""

    def opened(source: Any) -> Any:
        assert isinstance(source, pa.BufferReader)
        return kind(source)

    return opened
